"""Messages that carry copies of the regions that they send, and messages that are sent from the tensor itself."""

import numpy as np

from groundwork.array_types import Bools, Ints
from planner.graph.computation_graph import Edge
from planner.layouts.regions import held_regions, needed_regions
from planner.lowering.program import Program
from planner.lowering.send_phases import phases
from planner.memory.cpu_backend import MESSAGE_JOIN_BYTES
from planner.memory.part_memory import PartMemory


def are_copies(program: Program, parts: list[PartMemory], transfers: Ints) -> Bools:
    """Return whether the region of a transfer is copied before it is sent.

    A message is one run of elements.  A region that is one run of its tensor is sent from there.  Copied are regions
    that are not, because they are split across rows or because the tensor has its channels last, and regions that
    travel in one message with others.

    Args:
        program: The program.
        parts: By layer, the memory layouts of its parts.
        transfers: Shape (K,): transfers that are not compressed.

    Returns:
        Shape (K,).
    """
    copied = _joined(program, transfers)
    extent = program.region_high[transfers] - program.region_low[transfers]
    rows = program.layer[transfers], program.consumer[transfers], program.slot[transfers]
    backward = program.backward[transfers]
    # one integer a row: integers are sorted ten times as fast as rows
    shape = *(int(column.max(initial=0)) + 1 for column in rows), 2
    edges, edge = np.unique(np.ravel_multi_index((*rows, backward.astype(np.int64)), shape), return_inverse=True)
    order = np.argsort(edge, kind="stable")
    bounds = np.cumsum(np.bincount(edge, minlength=len(edges)))[:-1]
    # without any transfers, ``split`` still returns one empty run
    names = np.column_stack(np.unravel_index(edges, shape)).tolist()
    for (u, v, slot, back), k in zip(names, np.split(order, bounds), strict=False):
        whole = _extents(program, u, v, slot, program.device[transfers[k]], backward=bool(back))
        last = parts[v].gradient_channels_last if back else parts[u].channels_last
        last = last and Edge(u, v, slot) not in program.graph.shared
        copied[k] |= _scattered(extent[k, : whole.shape[1]], whole, channels_last=last)
    return copied


def _extents(program: Program, u: int, v: int, slot: int, device: Ints, *, backward: bool) -> Ints:
    """Return the sizes of the tensors in which regions lie.

    Args:
        program: The program.
        u: Layer that makes the tensor.
        v: Layer that reads it.
        slot: Input of ``v`` that the tensor is.
        device: Shape (K,): senders.
        backward: Whether gradients are sent, regions of what parts of ``v`` read; else parts of ``u``.

    Returns:
        Shape (K, D).
    """
    i, shared = v if backward else u, program.graph.shared.get(Edge(u, v, slot))
    space = program.spaces_at(i)[i]
    if shared is not None:
        regions = needed_regions(space, shared.needed if backward else shared.held, shared.shape)
    elif backward:
        layer, shape = program.graph.layers[v], program.spaces_at(v)[u].output
        shapes = list(layer.input_shapes)
        shapes[slot] = shape
        regions = needed_regions(space, layer.operation.interval_maps(slot, shapes), shape)
    else:
        regions = held_regions(space)
    part = space.part_on(len(program.cluster.devices))[device]
    return np.asarray((regions.high - regions.low)[part])


def _scattered(extent: Ints, whole: Ints, *, channels_last: bool) -> Bools:
    """Return whether regions are not one run of elements within their tensors.

    A region is one run if all its dimensions behind the first that it does not fill are filled, or if those before
    that one have size 1:

        tensor 2 x 4 x 8     region 1 x 2 x 8 is one run of 16, region 2 x 2 x 8 is two runs of 16

    Args:
        extent: Shape (K, D): sizes of the regions.
        whole: Shape (K, D): sizes of the tensors.
        channels_last: Whether the tensors have their channels last in memory.

    Returns:
        Shape (K,).
    """
    if channels_last and extent.shape[1] > 2:
        order = [0, *range(2, extent.shape[1]), 1]
        mixed = (extent[:, 1] > 1) & (extent[:, 2:].prod(axis=1) > 1)  # a message has its channels first
        return np.asarray(mixed | _scattered(extent[:, order], whole[:, order], channels_last=False))
    count, dims = extent.shape
    before = np.column_stack([np.ones(count, dtype=np.int64), np.cumprod(extent, axis=1)])[:, :dims]
    return np.asarray(((extent < whole) & (before > 1)).any(axis=1))


def _joined(program: Program, transfers: Ints) -> Bools:
    """Return whether transfers travel in a message together with others.

    Transfers of one tensor, phase, micro-batch, sender and receiver fill messages up to ``MESSAGE_JOIN_BYTES``, in the
    order of the program.
    """
    size, together = program.size_bytes[transfers], np.zeros(len(transfers), dtype=bool)
    names = [phases(program)[transfers], program.micro_batch[transfers], program.layer[transfers]]
    parameters = program.moves_parameters[transfers]  # parameters and their gradients travel apart from others
    names += [np.where(parameters, column[transfers], -1) for column in (program.consumer, program.slot)]
    key = np.column_stack([*names, program.device[transfers], program.peer[transfers]])
    order = np.lexsort((transfers, *key.T))
    same = (key[order[1:]] == key[order[:-1]]).all(axis=1)
    if not (same & (size[order[1:]] + size[order[:-1]] <= MESSAGE_JOIN_BYTES)).any():
        return together
    filled, last = 0.0, -1
    for n in (np.flatnonzero(same) + 1).tolist():
        if n - 1 != last:  # the transfer before this one is the first of a message
            filled = size[order[n - 1]]
        if filled + size[order[n]] <= MESSAGE_JOIN_BYTES:
            filled += size[order[n]]
            together[order[n - 1 : n + 1]] = True
        else:
            filled = size[order[n]]
        last = n
    return together
