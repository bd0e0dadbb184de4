"""The order in which gradients are summed over replicas, and updates that wait for their own sum only.

As lowered, all updates end an iteration, and sums share links as they come.  With an order, every layer's update stands
before the layer's next forward pass instead, and one sum follows the other.  Weight gradients come last layer first,
parameters are needed first layer first: so sums go by their reuse distance, the first layers before those of later
layers that still wait.  Large gradients are cut into slices, or one would hold the links while the others wait.

The order is fixed by simulation and is part of the program: all replicas sum in one order, and what the simulation
replays is what runs.

Source: "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from hwprofiles import ConfigError, Floats, Ints
from planner.graph import dependency_distances
from planner.lowering import KINDS, Collective, Program
from planner.simulation import ITERATIONS, ProgramGraph, build_program_graph, replay
from simulator.engines import simulate
from simulator.timelines import alone_s

__all__ = [
    "GRADIENT_SYNC_ORDERS",
    "SLICE_BYTES",
    "chain_gradient_syncs",
    "check_gradient_sync_order",
    "order_gradient_syncs",
    "slice_gradient_syncs",
]


GRADIENT_SYNC_ORDERS = ("end", "ready", "reuse")
"""All updates end the iteration; or each waits for its own sum, and sums go as their gradients are made, or by their
reuse distance, the first layers first."""
SLICE_BYTES = (float("inf"), 2.0**22, 2.0**20)
"""Sizes of slices that are tried: what waits for the links loses less time with small ones, and more latencies add
up."""
_LATENCY_SHARE = 0.05
"""Of a slice's time that its latency may take; slices are larger where it would take more."""
_TRIES = 2
"""Orders by reuse that are simulated, each from the times under the one before."""
_UPDATE = KINDS.index("update")


def check_gradient_sync_order(order: str) -> None:
    """Refuse an unknown order.

    Raises:
        ConfigError: As said.
    """
    if order not in GRADIENT_SYNC_ORDERS:
        raise ConfigError(f"gradient_sync_order must be one of {', '.join(GRADIENT_SYNC_ORDERS)}, got {order!r}")


def order_gradient_syncs(program: Program, order: str, *, slice_bytes: Sequence[float] = SLICE_BYTES) -> Program:
    """The program with its sums of gradients in an order, and the updates behind them where parameters are used again.

    Args:
        program: As lowered, collectives as activities.
        order: One of ``GRADIENT_SYNC_ORDERS``.
        slice_bytes: Least sizes of slices that are tried for ``reuse``; infinity: whole sums.

    Returns:
        The same program for ``end``, or where nothing is exchanged; else ``Program.sync_order`` has it.  For ``reuse``
        it is the one of the shortest simulated iteration, over sizes of slices, sums as they are made, and ``end``.

    Raises:
        ConfigError: An unknown order, sub-batches, gradients as codes, or an exchange other than rings.
    """
    check_gradient_sync_order(order)
    sums = _sums(program)
    if order == "end" or not sums:
        return program
    if program.micro_batching.parts > 1:
        raise ConfigError(f"gradient_sync_order must be end with sub-batches or micro-batches, got {order!r}")
    if program.compressed.gradients:
        raise ConfigError(f"gradient_sync_order must be end where gradients travel as codes, got {order!r}")
    waits = program.waiting
    if np.isin(waits, sums)[np.isin(program.after, sums)].any():
        raise ConfigError(f"gradient_sync_order must be end unless the exchange is ring, one round, got {order!r}")
    made = chain_gradient_syncs(slice_gradient_syncs(program, np.inf))
    if order == "ready":
        return made
    found = [program, made]
    for size in slice_bytes:
        last = chain_gradient_syncs(slice_gradient_syncs(program, size))
        for _ in range(_TRIES):
            last = chain_gradient_syncs(last, _by_reuse(last))
            found.append(last)
    return min(found, key=lambda row: replay(row).iteration_s)


def _sums(program: Program) -> list[int]:
    """Collectives that sum gradients of parameters, in program order."""
    return [task for task in sorted(program.collectives) if not program.statistics[task]]


def slice_gradient_syncs(program: Program, slice_bytes: float) -> Program:
    """The program with large sums cut into slices, and the updates behind sums where parameters are used again.

    Args:
        program: As lowered, without sub-batches; each layer is exchanged in one round.
        slice_bytes: Least size of a slice; its latency may ask for more.
    """
    return _with_updates_before_use(program, _slices(program, slice_bytes))


def _slices(program: Program, slice_bytes: float) -> Ints:
    """Into how many slices each task is cut, shape (T,): 1 but for large sums."""
    graph, sums = build_program_graph(program).graph, _sums(program)
    whole_s, latency_s = alone_s(graph), graph.latency_s
    counts = np.ones(program.size, dtype=np.int64)
    for task in sums:
        by_size = program.collectives[task].buffer_bytes / slice_bytes
        by_latency = whole_s[task] * _LATENCY_SHARE / latency_s[task] if latency_s[task] else np.inf
        counts[task] = max(int(min(by_size, by_latency)), 1)
    for layer in np.unique(program.layer[list(sums)]).tolist():  # all replicas of a layer alike
        mine = [task for task in sums if program.layer[task] == layer]
        counts[mine] = counts[mine].min()
    return counts


def _with_updates_before_use(program: Program, slices: Ints) -> Program:
    """Cut sums into slices, and put the updates that wait for them before the next forward tasks of their layers."""
    late, early = program.waiting, program.after
    summed = np.zeros(program.size, dtype=np.bool_)
    summed[_sums(program)] = True
    moves = np.zeros(program.size, dtype=np.bool_)
    moves[late[summed[early] & (program.kind[late] == _UPDATE)]] = True
    # place in program order: (group, slice, task); a moved update stands before the forward tasks of its layer
    group = 2.0 * program.group
    forward = (program.kind == KINDS.index("forward")) & ~program.recomputed
    first = {int(layer): int(row) for layer, row in zip(program.layer[forward], program.group[forward], strict=True)}
    group[moves] = [2.0 * first[int(layer)] - 1.0 for layer in program.layer[moves]]
    source = np.repeat(np.arange(program.size), slices)
    piece = np.arange(len(source)) - np.repeat(np.cumsum(slices) - slices, slices)
    order = np.lexsort((source, piece, group[source]))
    source, piece = source[order], piece[order]
    copies = _copies(source, program.size)
    pairs = [(late[~moves[late]], early[~moves[late]]), (late[moves[late]], early[moves[late]])]
    carried_late, carried_early = program.carried.T
    kept = ~moves[carried_early]
    inside = _joined(copies, [pairs[0], (carried_late[~kept], carried_early[~kept])])
    carried = _joined(copies, [pairs[1], (carried_late[kept], carried_early[kept])])
    rows = np.column_stack([group[source], piece])
    start = np.any(np.diff(rows, axis=0, prepend=rows[:1] - 1) != 0, axis=1)
    return _rebuilt(program, source, slices, np.cumsum(start) - 1, inside, carried)


def _copies(source: Ints, size: int) -> list[list[int]]:
    """New tasks by old one."""
    copies: list[list[int]] = [[] for _ in range(size)]
    for number, task in enumerate(source.tolist()):
        copies[task].append(number)
    return copies


def _joined(copies: Sequence[Sequence[int]], rows: Iterable[tuple[Ints, Ints]]) -> Ints:
    """Pairs between all new tasks of pairs of old ones, sorted, shape (N, 2)."""
    found = [
        (a, b)
        for late, early in rows
        for one, other in zip(late.tolist(), early.tolist(), strict=True)
        for a in copies[one]
        for b in copies[other]
    ]
    return np.unique(np.array(found, dtype=np.int64).reshape(-1, 2), axis=0)


def _rebuilt(program: Program, source: Ints, slices: Ints, group: Ints, inside: Ints, carried: Ints) -> Program:
    columns = {
        name: getattr(program, name)[source]
        for name in (
            "kind", "layer", "consumer", "slot", "micro_batch", "backward", "statistics", "recomputed", "device",
            "peer", "part", "size_bytes", "work_s", "compressed_bytes", "decompressed_bytes", "region_low",
            "region_high",
        )
    }  # fmt: skip
    columns["size_bytes"] = columns["size_bytes"] / slices[source]
    collectives = {
        number: _slice(program.collectives[task], int(slices[task]))
        for number, task in enumerate(source.tolist())
        if task in program.collectives
    }
    counts = np.bincount(inside[:, 0], minlength=len(source))
    return replace(
        program, group=group, collectives=collectives, after_start=np.concatenate([[0], np.cumsum(counts)]),
        after=inside[:, 1], carried=carried, **columns,
    )  # fmt: skip


def _slice(collective: Collective, count: int) -> Collective:
    return replace(collective, buffer_bytes=collective.buffer_bytes / count) if count > 1 else collective


def chain_gradient_syncs(program: Program, sums: Sequence[int] | None = None) -> Program:
    """Let each sum wait for those before it that share a device with it, also of the iteration before.

    Args:
        program: From ``slice_gradient_syncs``, or with an order, which this one replaces.
        sums: All of its sums of gradients; in program order if None.
    """
    sums = _sums(program) if sums is None else sums
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    pairs: set[tuple[int, int]] = set()
    for task in sums:
        for device in program.collectives[task].devices:
            if device in last:
                pairs.add((task, last[device]))
            first.setdefault(device, task)
            last[device] = task
    over = {(task, last[device]) for device, task in first.items()}
    late = program.waiting
    inside = np.concatenate([_unordered(program, np.column_stack([late, program.after])), _pairs(pairs)])
    inside = np.unique(inside, axis=0)
    counts = np.bincount(inside[:, 0], minlength=program.size)
    return replace(
        program, sync_order=tuple(sums), after_start=np.concatenate([[0], np.cumsum(counts)]), after=inside[:, 1],
        carried=np.concatenate([_unordered(program, program.carried), _pairs(over)]),
    )  # fmt: skip


def _unordered(program: Program, pairs: Ints) -> Ints:
    """Pairs of tasks without those between sums."""
    return pairs[~np.isin(pairs, _sums(program)).all(axis=1)]


def _pairs(rows: Iterable[tuple[int, int]]) -> Ints:
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)


def _by_reuse(program: Program) -> list[int]:
    """Sums one after another: whenever its devices are free, of those whose gradients are there the next used again.

    Args:
        program: With some order, whose steady iteration says when gradients are there.
    """
    reading = build_program_graph(program, iterations=ITERATIONS)
    made_s = _made_s(program, reading)
    taken_s = (alone_s(reading.graph) + reading.graph.latency_s)[: program.size]
    distance = dependency_distances(program.graph)
    queues: dict[tuple[int, tuple[int, ...]], list[int]] = {}  # slices of a sum, the last first: they are all alike
    for task in sorted(program.sync_order, reverse=True):
        queues.setdefault((int(program.layer[task]), program.collectives[task].devices), []).append(task)
    heads = sorted(queues, key=lambda key: (distance[key[0]], key))
    free_s = np.zeros(len(program.cluster.devices))
    found = []
    while heads:
        begins_s = [max(made_s[queues[key][-1]], free_s[list(key[1])].max()) for key in heads]
        begin_s = min(begins_s)
        key = heads[begins_s.index(begin_s)]  # the first of equals: the next used again
        task = queues[key].pop()
        free_s[list(key[1])] = begin_s + taken_s[task]
        found.append(task)
        if not queues[key]:
            heads.remove(key)
    return found


def _made_s(program: Program, reading: ProgramGraph) -> Floats:
    """When the gradients of each sum are there, in a steady iteration; 0 for other tasks."""
    ends_s = simulate(reading.graph).end_s[reading.task_of[ITERATIONS - 2]]
    late = program.waiting
    made_s = np.zeros(program.size)
    computed = program.is_compute[program.after]
    np.maximum.at(made_s, late[computed], ends_s[program.after[computed]])
    return made_s
