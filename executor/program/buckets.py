"""Which sums of gradients and statistics a rank takes part in, and which of them are one buffer."""

from dataclasses import dataclass
from itertools import groupby

from executor.program.rank_program import RankProgram
from executor.runtime import JOIN_BYTES
from planner.compression import Compression

__all__ = ["JOIN_BYTES", "MOST_JOIN_BYTES", "Chain", "chains_of", "joined_sums", "longest_bytes"]

MOST_JOIN_BYTES = 25 * 1024 * 1024
"""Gradients are summed as one buffer up to this size however many replicas they have."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The tasks, one after another, that sum one buffer."""

    layer: int
    tasks: tuple[int, ...]
    """Rounds."""
    devices: tuple[int, ...]
    native: bool
    kind: Compression | None = None
    """Of the codes that travel, if any."""
    codings: tuple[int, ...] = ()
    """Tasks of this rank that encode before the rounds, between them, and decode after them."""


def chains_of(view: RankProgram, *, statistics: bool) -> list[Chain]:
    """The sums of gradients, or of statistics, that a rank takes part in, in program order."""
    program = view.program
    mine = [task for task in view.tasks if task in program.collectives and program.statistics[task] == statistics]
    if not statistics and program.compressed.gradients:
        coding = program.is_codec & (program.consumer < 0)
        mine = sorted([*mine, *(task for task in view.tasks if coding[task])])
    chains = []
    for (layer, *_), group in groupby(
        mine, key=lambda task: (int(program.layer[task]), int(program.sub_batch[task]), bool(program.backward[task]))
    ):
        together = tuple(group)
        tasks = tuple(task for task in together if task in program.collectives)
        codings = tuple(task for task in together if task not in program.collectives)
        first, kind = program.collectives[tasks[0]], program.compressed.gradient(program.graph, layer)
        native = len(tasks) == 1 and first.round.is_ring
        chains.append(Chain(layer, tasks, first.devices, native, None if statistics else kind, codings))
    return chains


def longest_bytes(join_bytes: float, replicas: int) -> float:
    """Up to what size buffers of gradients join.

    A ring of p replicas waits for others 2 (p - 1) times, for 1 / p of the buffer each: with more of them, fewer and
    longer sums are faster.
    """
    return min(join_bytes * (replicas / 2) ** 2, max(join_bytes, MOST_JOIN_BYTES))


def joined_sums(view: RankProgram, join_bytes: float) -> list[list[list[Chain]]]:
    """The sums of each layer, with those of others that join one buffer; the same on all ranks that share them.

    Sums by the back end's own ring join up to a size; the last ones, which little is left to hide, up to half of it.
    """
    sums: dict[int, list[Chain]] = {}
    for chain in chains_of(view, statistics=False):
        sums.setdefault(chain.layer, []).append(chain)
    sizes = {layer: view.program.collectives[chains[0].tasks[0]].buffer_bytes for layer, chains in sums.items()}
    left: dict[tuple[int, ...], float] = {}
    last: dict[int, bool] = {}
    for layer, chains in reversed(sums.items()):
        devices = chains[0].devices
        left[devices] = left.get(devices, longest_bytes(join_bytes, len(devices)) / 2) - sizes[layer]
        last[layer] = left[devices] >= 0
    groups: list[list[list[Chain]]] = []
    joined: dict[tuple[tuple[int, ...], int, bool], tuple[list[list[Chain]], float]] = {}
    for layer, chains in sums.items():
        key, joins = (chains[0].devices, len(chains), last[layer]), chains[0].native and chains[0].kind is None
        longest = longest_bytes(join_bytes, len(key[0]))
        group, size_bytes = joined.get(key, ([], longest))
        if not joins or size_bytes + sizes[layer] > longest:
            group, size_bytes = [], 0.0
            groups.append(group)
        group.append(chains)
        if joins:
            joined[key] = (group, size_bytes + sizes[layer])
    return groups
