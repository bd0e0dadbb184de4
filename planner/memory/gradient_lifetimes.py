"""Gradients of tensors: as readers make them, summed for a part, and what a part turns them into."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from hwprofiles import Bools, Floats, Ints
from planner.graph import Edge
from planner.lowering import KINDS, InputLayout, UnitTimes, unit_of
from planner.memory.buffer_account import Account
from planner.memory.buffers import Buffers
from planner.memory.message_lifetimes import leaves

__all__ = ["activation_gradients"]

_TRANSFER = KINDS.index("transfer")


class _Returned(NamedTuple):
    """A delivery of which readers make gradients."""

    delivery: InputLayout
    place: slice
    """Of its rows."""
    readers: list[Edge]


def activation_gradients(account: Account, times: UnitTimes) -> list[Buffers]:
    """All gradients of tensors of an iteration."""
    program = account.program
    back = np.flatnonzero((program.kind == _TRANSFER) & program.backward)
    direct, returned = _direct(account, times, back), _returned(account)
    made = _made(account, times, returned, direct, back)
    return [*_before_sums(account, times, returned), made, *_of_outputs(account, times, direct)]


def _direct(account: Account, times: UnitTimes, back: Ints) -> Bools:
    """By cell, whether the one gradient that a reader makes is that of the whole part."""
    program, rows = account.program, account.rows
    local = rows.own & (rows.source >= 0)
    count = np.bincount(rows.source[local], minlength=times.cells)
    covered = np.bincount(rows.source[local & rows.covers], minlength=times.cells)
    arriving = unit_of(program, program.layer[back], program.peer[back], program.micro_batch[back])
    remote = np.bincount(arriving, minlength=times.cells)
    return np.asarray((count == 1) & (covered == 1) & (remote == 0))


def _returned(account: Account) -> list[_Returned]:
    graph, found = account.program.graph, []
    for d, place in zip(account.input_layouts, account.rows_of, strict=True):
        readers = [e for e in d.readers if graph.has_phase(e.consumer, "activation_gradient")]
        if graph.has_gradient(d.edge.producer) and readers:
            found.append(_Returned(d, place, readers))
    return found


def _made_at(account: Account, times: UnitTimes, cells: Ints, reader: Edge) -> Floats:
    """When a reader has its gradient, of itself or as a view of its output's."""
    moments = times.activation
    return (moments.end if account.parts[reader.consumer].passes_on else moments.second)[cells]


def _before_sums(account: Account, times: UnitTimes, returned: list[_Returned]) -> list[Buffers]:
    """Gradients that are added to those of later readers, in a tensor of its own."""
    found = []
    for d, place, readers in returned:
        size = account.rows.size[place]
        for e in readers[:-1]:
            cells = d.reader(account.program, e)
            work = np.minimum(account.parts[e.consumer].work["activation_gradient"][d.part], size)
            birth, death = _made_at(account, times, cells, e), times.activation.end[cells]
            found.append(Buffers.made("workspace", d.edge.producer, d.device, 2 * size - work, birth, death))
    return found


def _made(account: Account, times: UnitTimes, returned: list[_Returned], direct: Bools, back: Ints) -> Buffers:
    """Gradients as readers make them, until the part takes them or they have been sent."""
    program, rows, backward = account.program, account.rows, times.backward
    birth, until = np.full(len(rows), np.inf), np.full(len(rows), -np.inf)
    sent_until = _sent_until(account, times, back)
    viewed_until = _sent_until(account, times, back[~account.copied[back]])
    for d, place, readers in returned:
        made = [_made_at(account, times, d.reader(program, e), e) for e in readers]
        birth[place] = np.minimum.reduce(made)
        transforms, source = account.parts[d.edge.producer].transforms, d.source
        alone = (backward.second if transforms else backward.end)[source]
        taken = np.where(direct[source], alone, backward.first[source])
        stays = (source >= 0) & (d.own > 0)
        until[place] = np.where(stays, np.maximum(taken, viewed_until[place]), sent_until[place])
    factor = np.ones(len(rows))
    for consumer, group in _passed_on(account, returned).items():
        last = np.maximum.reduce([until[each.place] for each in group])
        for n, each in enumerate(group):
            until[each.place] = last
            factor[each.place] = _share(account, consumer, len(group), n)
    return Buffers.made("activation gradients", rows.layer, rows.device, rows.size * factor, birth, until)


def _passed_on(account: Account, returned: list[_Returned]) -> dict[int, list[_Returned]]:
    """By layer, the tensors whose only gradients are views of that of its output."""
    groups: dict[int, list[_Returned]] = defaultdict(list)
    for each in returned:
        if len(each.readers) == 1 and account.parts[each.readers[0].consumer].passes_on:
            groups[each.readers[0].consumer].append(each)
    return groups


def _share(account: Account, consumer: int, count: int, n: int) -> float:
    """How much of the n-th gradient that a layer passes on is a tensor of its own: all inputs of a sum have the same,
    counted once, with the first, or with one that has other readers too."""
    graph = account.program.graph
    if graph.layers[consumer].operation.kind != "add":
        return 1.0
    everyone = count == sum(graph.has_gradient(e.producer) for e in graph.producers[consumer])
    return 1.0 if everyone and n == 0 else 0.0


def _of_outputs(account: Account, times: UnitTimes, direct: Bools) -> list[Buffers]:
    """Gradients of parts' outputs, where they are summed, and what a part turns them into."""
    graph, backward, found = account.program.graph, times.backward, list[Buffers]()
    for i, part in enumerate(account.parts):
        if not graph.consumers[i] or not graph.has_gradient(i):
            continue
        cells = account.cells_of[i]
        each = len(cells) // len(part.output)
        summed = np.where(direct[cells], 0.0, np.repeat(part.output, each))
        device = np.repeat(account.program.spaces[i].devices, each)
        until = (backward.second if part.transforms else backward.end)[cells]
        found.append(Buffers.made("activation gradients", i, device, summed, backward.begin[cells], until))
        if part.transforms:
            found.append(account.by_cell("activation gradients", i, part.output, backward.first, backward.end))
    return found


def _sent_until(account: Account, times: UnitTimes, back: Ints) -> Floats:
    """For every row of the deliveries, when the last transfer of its gradient has left."""
    program = account.program
    until = np.full(len(account.rows), -np.inf)
    number = {(d.edge.producer, d.edge.consumer, d.edge.slot): k for k, d in enumerate(account.input_layouts)}
    keys = zip(program.layer[back].tolist(), program.consumer[back].tolist(), program.slot[back].tolist(), strict=True)
    k_of = np.array([number[key] for key in keys], dtype=np.int64)
    left = leaves(account, times, back)
    for k in np.unique(k_of).tolist():
        d, mine = account.input_layouts[k], k_of == k
        subs = int(d.micro_batch.max()) + 1
        table = np.full(account.devices * subs, -np.inf)
        sends = back[mine]
        np.maximum.at(table, program.device[sends] * subs + program.micro_batch[sends] % subs, left[mine])
        until[account.rows_of[k]] = table[d.device * subs + d.micro_batch]
    return until
