"""Buffers of layers beside their tensors: saved for the backward pass, scratch during a task, and training data."""

import numpy as np

from groundwork.array_types import Floats
from planner.graph.data_sources import is_data
from planner.layouts.regions import needed_regions
from planner.lowering.unit_times import UnitTimes
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import BufferRows
from planner.operations.base import BATCH_STATISTICS

_STATISTICS_BYTES = 8
"""Statistics are summed in double precision."""


def layer_buffers(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return the buffers of all layers beside their tensors."""
    return [row for i in range(len(account.parts)) for row in _layer(account, i, times)]


def _layer(account: MemoryAccount, i: int, times: UnitTimes) -> list[BufferRows]:
    """Return the buffers of one layer."""
    rows, graph, part = list[BufferRows](), account.program.graph, account.parts[i]
    operation = graph.layers[i].operation
    for again in times.passes:
        moments = times.forward[again]
        # what the first pass saves is released at its end where a recomputation saves it again
        saved = times.kept_until[again] if again == account.saving_pass[i] else moments.end
        rows.append(account.by_cell("kept for backward", i, part.input_copies, moments.begin, saved))
        rows.append(account.by_cell("kept for backward", i, part.saved, moments.first, saved))
        if not again and graph.layers[i].reads_data:
            rows.append(_data(account, i, times))
        scratch = part.scratch["forward"] + part.partial
        rows.append(account.by_cell("workspace", i, scratch, moments.first, moments.second))
    for phase, moments in (("activation_gradient", times.activation), ("weight_gradient", times.weight)):
        rows.append(account.by_cell("workspace", i, part.scratch[phase], moments.second, moments.end))
    if operation.statistics:
        size = account.channels(i) * (_STATISTICS_BYTES + graph.element_bytes) * BATCH_STATISTICS
        sizes = np.full(len(account.program.spaces[i].devices), size)
        rows.append(account.by_cell("statistics", i, sizes, times.forward[0].first, times.kept_until[0]))
    return rows


def _data(account: MemoryAccount, i: int, times: UnitTimes) -> BufferRows:
    """Return the regions of the training data that the parts of a layer read."""
    first, second = times.forward
    forward_end = np.maximum(np.where(np.isfinite(second.end), second.end, first.end), first.end)
    cells, saves_inputs = account.cells_of[i], np.logical_or.reduce(account.parts[i].saves_inputs)
    saves = np.repeat(saves_inputs, len(cells) // saves_inputs.size)
    released = forward_end.copy()
    released[cells] = np.where(saves, np.maximum(forward_end[cells], times.backward.end[cells]), forward_end[cells])
    return account.by_cell("data", i, _data_bytes(account, i), first.begin, released)


def _data_bytes(account: MemoryAccount, i: int) -> Floats:
    """Return the bytes of the training data that each part of a layer reads at once, shape (parts,)."""
    program, layer = account.program, account.program.graph.layers[i]
    space = program.spaces_at(i)[i]
    size = np.zeros(len(space.devices))
    for slot, source in enumerate(layer.inputs):
        if is_data(source):
            shape = layer.input_shapes[slot]
            whole = type(shape)(shape.dims, (space.output.sizes[0], *shape.sizes[1:]))
            regions = needed_regions(space, layer.operation.interval_maps(slot, layer.input_shapes), whole)
            size += regions.volume * program.graph.element_bytes
    return size
