"""Which messages carry copies of the numbers that they send, and which the tensor itself."""

import numpy as np

from hwprofiles import Bools, Ints
from planner.lowering import MESSAGE_JOIN_BYTES, Program, phases
from planner.memory.memory_policy import PartMemory
from planner.parallel import held_regions, needed_regions

__all__ = ["are_copies"]


def are_copies(program: Program, parts: list[PartMemory], transfers: Ints) -> Bools:
    """Whether what a transfer sends as it is has been copied.

    A message is one run of numbers.  A region that lies so in its tensor is sent from there; what does not, for it is
    cut across rows or its tensor has the channels last, and what travels in a message with other regions, is copied.

    Args:
        program: What runs.
        parts: Of its layers, which tell how tensors lie.
        transfers: Shape (K,): of numbers, not of codes.

    Returns:
        Shape (K,).
    """
    copied = _joined(program, transfers)
    extent = program.region_high[transfers] - program.region_low[transfers]
    rows = program.layer[transfers], program.consumer[transfers], program.slot[transfers]
    backward = program.backward[transfers]
    edges, edge = np.unique(np.column_stack([*rows, backward]), axis=0, return_inverse=True)
    order = np.argsort(edge.ravel(), kind="stable")
    bounds = np.cumsum(np.bincount(edge.ravel(), minlength=len(edges)))[:-1]
    for (u, v, slot, back), k in zip(edges.tolist(), np.split(order, bounds), strict=False):  # one empty run of none
        whole = _extents(program, u, v, slot, program.device[transfers[k]], backward=bool(back))
        last = parts[v].gradient_last if back else parts[u].last
        copied[k] |= _scattered(extent[k, : whole.shape[1]], whole, channels_last=last)
    return copied


def _extents(program: Program, u: int, v: int, slot: int, device: Ints, *, backward: bool) -> Ints:
    """Sizes of the tensors that regions are cut out of: parts of a layer, or gradients of what parts of it read."""
    i = v if backward else u
    space = (program.micro_batch_spaces if program.micro_batching.of(i) > 1 else program.spaces)[i]
    if backward:
        layer, shape = program.graph.layers[v], program.spaces[u].output
        shape = program.micro_batch_spaces[u].output if program.micro_batching.of(v) > 1 else shape
        shapes = list(layer.input_shapes)
        shapes[slot] = shape
        boxes = needed_regions(space, layer.operation.needs(slot, shapes), shape)
    else:
        boxes = held_regions(space)
    part_of = np.full(len(program.cluster.devices), -1, dtype=np.int64)
    part_of[space.devices] = np.arange(len(space.devices))
    return np.asarray((boxes.high - boxes.low)[part_of[device]])


def _scattered(extent: Ints, whole: Ints, *, channels_last: bool) -> Bools:
    """Whether regions are not one run of numbers within their tensors; shape (K, D) each."""
    if channels_last and extent.shape[1] > 2:
        order = [0, *range(2, extent.shape[1]), 1]
        mixed = (extent[:, 1] > 1) & (extent[:, 2:].prod(axis=1) > 1)  # a message has its channels first
        return np.asarray(mixed | _scattered(extent[:, order], whole[:, order], channels_last=False))
    count, dims = extent.shape
    before = np.column_stack([np.ones(count, dtype=np.int64), np.cumprod(extent, axis=1)])[:, :dims]
    return np.asarray(((extent < whole) & (before > 1)).any(axis=1))


def _joined(program: Program, transfers: Ints) -> Bools:
    """Whether regions travel in messages of several."""
    size, together = program.size_bytes[transfers], np.zeros(len(transfers), dtype=bool)
    names = [phases(program)[transfers], program.micro_batch[transfers], program.layer[transfers]]
    key = np.column_stack([*names, program.device[transfers], program.peer[transfers]])
    order = np.lexsort((transfers, *key.T))
    same = (key[order[1:]] == key[order[:-1]]).all(axis=1)
    if not (same & (size[order[1:]] + size[order[:-1]] <= MESSAGE_JOIN_BYTES)).any():
        return together
    filled, last = 0.0, -1
    for n in (np.flatnonzero(same) + 1).tolist():
        if n - 1 != last:  # the first of several
            filled = size[order[n - 1]]
        if filled + size[order[n]] <= MESSAGE_JOIN_BYTES:
            filled += size[order[n]]
            together[order[n - 1 : n + 1]] = True
        else:
            filled = size[order[n]]
        last = n
    return together
