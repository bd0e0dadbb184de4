"""Reductions of gradients and statistics that a rank takes part in, and the buckets in which gradients are reduced."""

from dataclasses import dataclass, replace
from itertools import groupby

from executor.program.rank_program import RankProgram
from planner.compression.data_types import Compression

MOST_JOIN_BYTES = 25 * 1024 * 1024
"""Largest size of a bucket by default, however many replicas its gradients have."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The tasks that sum one buffer over its replicas, one after another."""

    layer: int
    tasks: tuple[int, ...]
    """Rounds of the all-reduce or of the parameter server."""
    devices: tuple[int, ...]
    native: bool
    """True if the back end's own ring all-reduce computes it."""
    kind: Compression | None = None
    """Compression of the buffer's messages, if any."""
    codec_tasks: tuple[int, ...] = ()
    """Tasks of this rank that compress before the rounds and between them, and decompress after them."""


def reductions_of(view: RankProgram, *, statistics: bool) -> list[Reduction]:
    """Return the reductions of gradients, or of statistics, that a rank takes part in, in program order."""
    program = view.program
    sums = program.statistics if statistics else program.syncs_gradients
    mine = [task for task in view.tasks if task in program.collectives and sums[task]]
    if statistics:
        mine = [task for task in mine if program.collectives[task].kind == "all-reduce"]
    if not statistics and program.compressed.gradients:
        codec = program.is_codec & (program.consumer < 0)
        mine = sorted([*mine, *(task for task in view.tasks if codec[task])])
    reductions = []
    for (layer, *_), group in groupby(
        mine, key=lambda task: (int(program.layer[task]), int(program.micro_batch[task]), bool(program.backward[task]))
    ):
        together = tuple(group)
        tasks = tuple(task for task in together if task in program.collectives)
        codec_tasks = tuple(task for task in together if task not in program.collectives)
        first, kind = program.collectives[tasks[0]], program.compressed.gradient(program.graph, layer)
        # parameters that channels split and those that they do not have a ring each: over the same devices, one will do
        rings = [program.collectives[task] for task in tasks]
        native = all(each.round.is_ring and each.devices == first.devices for each in rings)
        reductions.append(Reduction(layer, tasks, first.devices, native, None if statistics else kind, codec_tasks))
    return reductions


def largest_bucket_bytes(join_bytes: float, replicas: int) -> float:
    """Return the size up to which gradients join one bucket.

    A ring of p replicas waits for its neighbours 2 (p - 1) times, for 1 / p of the buffer each time: with more
    replicas, fewer and larger buffers are faster.
    """
    return min(join_bytes * (replicas / 2) ** 2, max(join_bytes, MOST_JOIN_BYTES))


def gradient_buckets(view: RankProgram, join_bytes: float) -> list[list[list[Reduction]]]:
    """Return the buckets of gradients: for each bucket its layers, and for each layer its reductions in an iteration.

    All ranks that share reductions group them equally.  A framework's buckets are those of the program.  Without one,
    buffers of the back end's own ring join up to a size; the last ones of the backward pass, which little arithmetic
    is left to hide, up to half of it.
    """
    by_layer: dict[int, list[Reduction]] = {}
    for reduction in reductions_of(view, statistics=False):
        by_layer.setdefault(reduction.layer, []).append(reduction)
    if view.program.framework.is_synchronous:
        members = view.program.buckets
        return [
            [[replace(row, layer=i) for row in rows] for i in members.get(layer, (layer,))]
            for layer, rows in by_layer.items()
        ]
    collectives = view.program.collectives
    sizes = {
        layer: sum(collectives[task].buffer_bytes for task in rows[0].tasks)
        if rows[0].native
        else collectives[rows[0].tasks[0]].buffer_bytes
        for layer, rows in by_layer.items()
    }
    last = _last_of_backward(by_layer, sizes, join_bytes)
    buckets: list[list[list[Reduction]]] = []
    open_buckets: dict[tuple[tuple[int, ...], int, bool], tuple[list[list[Reduction]], float]] = {}
    for layer, rows in by_layer.items():
        key, joins = (rows[0].devices, len(rows), last[layer]), rows[0].native and rows[0].kind is None
        largest = largest_bucket_bytes(join_bytes, len(key[0]))
        # without an open bucket for these devices the size is at its limit, so that a new bucket is opened
        bucket, size_bytes = open_buckets.get(key, ([], largest))
        if not joins or size_bytes + sizes[layer] > largest:
            bucket, size_bytes = [], 0.0
            buckets.append(bucket)
        bucket.append(rows)
        if joins:
            open_buckets[key] = (bucket, size_bytes + sizes[layer])
    return buckets


def _last_of_backward(
    by_layer: dict[int, list[Reduction]], sizes: dict[int, float], join_bytes: float
) -> dict[int, bool]:
    """Return for each layer whether its gradients are among the last half bucket that its devices reduce."""
    # from the last reduction backwards, until half a bucket is full
    left: dict[tuple[int, ...], float] = {}
    last: dict[int, bool] = {}
    for layer, rows in reversed(by_layer.items()):
        devices = rows[0].devices
        left[devices] = left.get(devices, largest_bucket_bytes(join_bytes, len(devices)) / 2) - sizes[layer]
        last[layer] = left[devices] >= 0
    return last
