"""What layers keep for their backward pass, what they take while they compute, and the data that they read."""

import numpy as np

from hwprofiles import Floats
from planner.lowering import UnitTimes
from planner.memory.buffer_account import Account
from planner.memory.buffers import Buffers
from planner.operations import BATCH_STATISTICS
from planner.parallel import needed_regions

__all__ = ["layers"]


_STATISTICS_BYTES = 8
"""Statistics are summed in double precision."""


def layers(account: Account, times: UnitTimes) -> list[Buffers]:
    """What all layers take beside their tensors."""
    return [row for i in range(len(account.parts)) for row in _layer(account, i, times)]


def _layer(account: Account, i: int, times: UnitTimes) -> list[Buffers]:
    rows, graph, part = list[Buffers](), account.program.graph, account.parts[i]
    operation = graph.layers[i].operation
    for again, moments in enumerate(times.forward):
        kept = np.maximum(moments.end, times.backward.end) if again == account.holds[i] else moments.end
        rows.append(account.by_cell("kept for backward", i, part.copies, moments.begin, kept))
        rows.append(account.by_cell("kept for backward", i, part.extra, moments.first, kept))
        if not again and "input" in graph.layers[i].inputs:
            rows.append(_data(account, i, times))
        if (part.work["forward"] > 0).any():
            rows.append(account.by_cell("workspace", i, part.work["forward"], moments.first, moments.second))
    for phase, moments in (("activation_gradient", times.activation), ("weight_gradient", times.weight)):
        if (part.work[phase] > 0).any():
            rows.append(account.by_cell("workspace", i, part.work[phase], moments.second, moments.end))
    if operation.statistics:
        size = account.channels(i) * (_STATISTICS_BYTES + graph.element_bytes) * BATCH_STATISTICS
        end = np.maximum(times.forward[0].end, times.backward.end)
        sizes = np.full(len(account.program.spaces[i].devices), size)
        rows.append(account.by_cell("statistics", i, sizes, times.forward[0].first, end))
    return rows


def _data(account: Account, i: int, times: UnitTimes) -> Buffers:
    """The region of the data that the parts of a layer read."""
    first, second = times.forward
    forward_end = np.maximum(np.where(np.isfinite(second.end), second.end, first.end), first.end)
    cells, keeps_inputs = account.cells_of[i], account.parts[i].keeps_inputs
    keeps = np.repeat(keeps_inputs, len(cells) // len(keeps_inputs))
    death = forward_end.copy()
    death[cells] = np.where(keeps, np.maximum(forward_end[cells], times.backward.end[cells]), forward_end[cells])
    return account.by_cell("data", i, _data_bytes(account, i), first.begin, death)


def _data_bytes(account: Account, i: int) -> Floats:
    """Bytes of the data that each part of a layer reads at once."""
    program, layer = account.program, account.program.graph.layers[i]
    space = (program.micro_batch_spaces if program.micro_batching.of(i) > 1 else program.spaces)[i]
    size = np.zeros(len(space.devices))
    for slot, source in enumerate(layer.inputs):
        if source == "input":
            shape = layer.input_shapes[slot]
            whole = type(shape)(shape.dims, (space.output.sizes[0], *shape.sizes[1:]))
            boxes = needed_regions(space, layer.operation.needs(slot, layer.input_shapes), whole)
            size += boxes.volume * program.graph.element_bytes
    return size
