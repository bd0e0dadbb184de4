"""Buffers of activation gradients: as readers compute them, summed for a part, and what a part turns them into.

A tensor with two readers on one device, whose backward tasks run one after the other (t: time):

    reader 2 goes back     its gradient of the tensor is allocated                 t1
    reader 1 goes back     its gradient is computed, and added to that of reader 2 t2 (workspace until its end)
    the producer goes back the sum of all devices is its output's gradient         t3
    ... and ends           which it releases, or releases once it is transformed   t4

A device that does not hold the part sends the sum of its readers' gradients, and releases it when it has left.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.graph.computation_graph import Edge
from planner.lowering.input_layouts import InputLayout
from planner.lowering.program import KINDS
from planner.lowering.unit_times import UnitTimes, unit_of
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import BufferRows
from planner.memory.message_lifetimes import sent_until

_TRANSFER = KINDS.index("transfer")


class _GradientLayout(NamedTuple):
    """An input layout of which readers compute gradients."""

    layout: InputLayout
    place: slice
    """Its rows in ``MemoryAccount.layout_rows``."""
    readers: list[Edge]


def activation_gradients(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return the gradients of all tensors of an iteration."""
    program = account.program
    sends = np.flatnonzero((program.kind == _TRANSFER) & program.backward & ~program.moves_parameters)
    direct, layouts = _direct(account, times, sends), _gradient_layouts(account)
    computed = _computed(account, times, layouts, direct, sends)
    return [*_before_sums(account, times, layouts), computed, *_of_outputs(account, times, direct)]


def _direct(account: MemoryAccount, times: UnitTimes, sends: Ints) -> Bools:
    """Return, by cell, whether its output's gradient is the one that its only reader computes: nothing is summed."""
    # Three counts by cell: layouts read on the device itself, those that cover its part, and gradients that arrive.
    #     read in one layout here                 1  1  0    nothing to sum
    #     read in one layout, with a halo         1  1  1    the neighbour's gradient is added
    #     read in two layouts here                2  2  0    two gradients are added
    program, rows = account.program, account.layout_rows
    local = rows.own & (rows.source >= 0)
    count = np.bincount(rows.source[local], minlength=times.cells)
    covered = np.bincount(rows.source[local & rows.covers], minlength=times.cells)
    arriving = unit_of(program, program.layer[sends], program.receiver[sends], program.micro_batch[sends])
    remote = np.bincount(arriving, minlength=times.cells)
    direct = np.asarray((count == 1) & (covered == 1) & (remote == 0))
    # Where several devices need one gradient, its regions travel one by one, and each adds all of them in one order.
    for i in np.unique(program.layer[sends]).tolist():
        direct[account.cells_of[i]] &= not program.spaces[i].has_copies
    return direct


def _gradient_layouts(account: MemoryAccount) -> list[_GradientLayout]:
    """Return the input layouts of which readers compute gradients."""
    graph, layouts = account.program.graph, []
    for layout, place in zip(account.input_layouts, account.rows_of_layout, strict=True):
        readers = [e for e in layout.readers if graph.has_phase(e.consumer, "activation_gradient")]
        if graph.has_gradient(layout.edge.producer) and readers:
            layouts.append(_GradientLayout(layout, place, readers))
    return layouts


def _computed_at(account: MemoryAccount, times: UnitTimes, cells: Ints, reader: Edge) -> Floats:
    """Return when a reader has its gradient: a buffer that it fills, or a view of its output's gradient."""
    moments = times.activation
    return (moments.end if account.parts[reader.consumer].passes_gradient else moments.second)[cells]


def _before_sums(account: MemoryAccount, times: UnitTimes, layouts: list[_GradientLayout]) -> list[BufferRows]:
    """Return the workspace of readers whose gradients are added to those of readers that went back before them."""
    rows = []
    for layout, place, readers in layouts:
        size = account.layout_rows.size[place]
        for e in readers[:-1]:  # the last reader is the first to go back: it has nothing to add to
            cells = layout.reader(account.program, e)
            scratch = np.minimum(account.parts[e.consumer].scratch["activation_gradient"][layout.part], size)
            allocated, released = _computed_at(account, times, cells, e), times.activation.end[cells]
            rows.append(
                BufferRows("workspace", layout.edge.producer, layout.device, 2 * size - scratch, allocated, released)
            )
    return rows


def _computed(
    account: MemoryAccount, times: UnitTimes, layouts: list[_GradientLayout], direct: Bools, sends: Ints
) -> BufferRows:
    """Return gradients as readers compute them, until the part takes them or they have been sent."""
    rows, backward = account.layout_rows, times.backward
    size = rows.size.copy()
    allocated, until = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
    # A gradient that the device's own part takes stays until then; one that is sent whole, until it has left.
    all_sent = _last_sent(account, times, sends)
    views_sent = _last_sent(account, times, sends[~account.sends_copy[sends]])
    for layout, place, readers in layouts:
        computed = [_computed_at(account, times, layout.reader(account.program, e), e) for e in readers]
        allocated[place] = np.minimum.reduce(computed)
        if len(readers) == 1:  # else their sum has no padding
            size[place] += account.parts[readers[0].consumer].gradient_padding[layout.part]
        # Alone, the gradient is the output's own and lasts until it is transformed, or until the part has ended.
        transforms, source = account.parts[layout.edge.producer].transforms_gradient, layout.source
        alone = (backward.second if transforms else backward.end)[source]
        taken = np.where(direct[source], alone, backward.first[source])
        stays = (source >= 0) & (layout.own > 0)
        until[place] = np.where(stays, np.maximum(taken, views_sent[place]), all_sent[place])
    factor = np.ones(len(rows))
    # Views of one gradient live as long as the last of them, and count once.
    for consumer, group in _views(account, layouts).items():
        last = np.maximum.reduce(
            [until[each.place] for each in group] + _until_added(account, times, layouts, consumer)
        )
        for n, each in enumerate(group):
            until[each.place] = last
            factor[each.place] = _share(account, consumer, len(group), n)
    return BufferRows("activation gradients", rows.layer, rows.device, size * factor, allocated, until)


def _views(account: MemoryAccount, layouts: list[_GradientLayout]) -> dict[int, list[_GradientLayout]]:
    """Return, by layer, the input layouts whose only gradients are views of the gradient of its output."""
    groups: dict[int, list[_GradientLayout]] = defaultdict(list)
    for each in layouts:
        if len(each.readers) == 1 and account.parts[each.readers[0].consumer].passes_gradient:
            groups[each.readers[0].consumer].append(each)
    return groups


def _until_added(
    account: MemoryAccount, times: UnitTimes, layouts: list[_GradientLayout], consumer: int
) -> list[Floats]:
    """Return until when views of the gradient of a concatenation wait for other readers of their tensors.

    Those of a sum are counted with the tensor that has other readers.
    """
    if account.program.graph.layers[consumer].operation.kind == "add":
        return []
    others = [each for each in layouts if len(each.readers) > 1 and each.readers[-1].consumer == consumer]
    return [times.activation.end[each.layout.reader(account.program, each.readers[-2])] for each in others]


def _share(account: MemoryAccount, consumer: int, count: int, n: int) -> float:
    """Return which share of the n-th gradient that a layer passes on is a buffer of its own.

    All inputs of a sum have the same gradient, counted once: with the first of them, or with one that has other
    readers too.
    """
    graph = account.program.graph
    if graph.layers[consumer].operation.kind != "add":
        return 1.0
    everyone = count == sum(graph.has_gradient(e.producer) for e in graph.producers[consumer])
    return 1.0 if everyone and n == 0 else 0.0


def _of_outputs(account: MemoryAccount, times: UnitTimes, direct: Bools) -> list[BufferRows]:
    """Return the gradients of parts' outputs: where they are summed, and what a part turns them into."""
    graph, backward, rows = account.program.graph, times.backward, list[BufferRows]()
    for i, part in enumerate(account.parts):
        if not graph.consumers[i] or not graph.has_gradient(i):
            continue
        cells = account.cells_of[i]
        each = len(cells) // len(part.output)  # micro-batches, by which the cells of a part follow each other
        summed = np.where(direct[cells], 0.0, np.repeat(part.output, each))
        device = np.repeat(account.program.spaces[i].devices, each)
        until = (backward.second if part.transforms_gradient else backward.end)[cells]
        rows.append(BufferRows("activation gradients", i, device, summed, backward.begin[cells], until))
        if part.transforms_gradient:
            rows.append(account.by_cell("activation gradients", i, part.output, backward.first, backward.end))
        rows.append(account.by_cell("workspace", i, part.transforming, backward.first, backward.second))
        rows.append(account.by_cell("activation gradients", i, part.partial, backward.first, backward.end))
    return rows


def _last_sent(account: MemoryAccount, times: UnitTimes, sends: Ints) -> Floats:
    """Return, for every row of the input layouts, until when the transfers ``sends`` need its gradient."""
    program, layouts = account.program, account.input_layouts
    until = np.full(len(account.layout_rows), -np.inf)
    index_of = {row.edge: k for k, row in enumerate(layouts)}
    columns = (program.layer[sends].tolist(), program.consumer[sends].tolist(), program.slot[sends].tolist())
    edges = map(Edge, *columns)
    # readers of one layout may make gradients of several: each is sent under the first reader that makes it
    layout_of = np.array([index_of[program.transferred_by.get(edge, edge)] for edge in edges], dtype=np.int64)
    needed = sent_until(account, times, sends)
    for k in np.unique(layout_of).tolist():
        layout, mine = layouts[k], layout_of == k
        count = int(layout.micro_batch.max()) + 1
        table = np.full(account.devices * count, -np.inf)  # by device and micro-batch
        rows = sends[mine]
        np.maximum.at(table, program.device[rows] * count + program.micro_batch[rows] % count, needed[mine])
        until[account.rows_of_layout[k]] = table[layout.device * count + layout.micro_batch]
    return until
