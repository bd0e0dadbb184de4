"""Buffers of the forward pass: outputs of parts, and inputs that are assembled from several of them.

A consumer reads a tensor in a layout.  Where its region is all that the device's own part holds, it reads a view of
that part; else the region is assembled in a buffer of its own from the part and from what other devices send.
"""

import numpy as np

from groundwork.array_types import Floats
from planner.graph.computation_graph import Edge
from planner.lowering.input_layouts import InputLayout
from planner.lowering.program import KINDS
from planner.lowering.unit_times import UnitTimes, unit_of
from planner.memory.buffer_account import MemoryAccount
from planner.memory.buffers import BufferRows
from planner.memory.message_lifetimes import sent_until

_TRANSFER = KINDS.index("transfer")


def activations(account: MemoryAccount, times: UnitTimes) -> list[BufferRows]:
    """Return the tensors of the forward pass, of the first time and of recomputations."""
    # by cell, the last use of an output, the first time and recomputed: raised by every reader and every message
    last_use = [moments.end.copy() for moments in times.forward]
    rows = [row for layout in account.input_layouts for row in _assembled(account, layout, times, last_use)]
    rows += [row for layout in account.input_layouts for row in _gathered_again(account, layout, times, last_use)]
    program = account.program
    sent = np.flatnonzero((program.kind == _TRANSFER) & ~program.backward & ~program.moves_parameters)
    made = unit_of(program, program.layer[sent], program.device[sent], program.micro_batch[sent])
    until = sent_until(account, times, sent)
    for again in times.passes:
        here = program.recomputed[sent] == bool(again)
        np.maximum.at(last_use[again], made[here], until[here])
    saved_until = [np.maximum(until, times.backward.end) for until in last_use]
    for i, part in enumerate(account.parts):
        for again in times.passes:
            moments = times.forward[again]
            saves = part.saves_output and again == account.saving_pass[i]
            released = saved_until[again] if saves else last_use[again]
            allocated = moments.second if part.saved_before_output else moments.first
            rows.append(account.by_cell("activations", i, part.output, allocated, released))
    return rows


def _assembled(
    account: MemoryAccount, layout: InputLayout, times: UnitTimes, last_use: list[Floats]
) -> list[BufferRows]:
    """Return the assembled regions of a tensor in one layout.

    Args:
        account: Contents and sizes.
        layout: The layout.
        times: Times of the cells.
        last_use: By cell, the last use of its output, the first time and recomputed; raised where this layout is a view
            of it, or assembled from it.
    """
    rows, program, u = list[BufferRows](), account.program, layout.edge.producer
    size = np.asarray(layout.elements, dtype=float) * program.graph.element_bytes
    here, view = layout.source >= 0, layout.is_view & (layout.source >= 0)
    for again in times.passes:
        readers = [e for e in layout.readers if not again or account.recomputed_together(u, e.consumer)]
        moments = times.forward[again]
        if not readers or not np.isfinite(moments.begin[layout.reader(program, readers[0])]).any():
            continue
        cells = [layout.reader(program, e) for e in readers]
        allocated = np.minimum.reduce([moments.begin[c] for c in cells])
        first = np.minimum.reduce([moments.first[c] for c in cells])
        until = np.maximum.reduce([_last_read(account, layout, e, times, again) for e in readers])
        np.maximum.at(last_use[again], layout.source[view], until[view])
        copied = here & ~view  # the part is read until its share has been copied, or a collective has ended
        read = allocated if layout.collective else first
        np.maximum.at(last_use[again], layout.source[copied], read[copied])
        whole = ~view & (layout.elements > 0)
        rows.append(
            BufferRows("assembled inputs", u, layout.device[whole], size[whole], allocated[whole], until[whole])
        )
    return rows


def _gathered_again(
    account: MemoryAccount, layout: InputLayout, times: UnitTimes, last_use: list[Floats]
) -> list[BufferRows]:
    """Return the regions of a tensor that are gathered again for the backward pass; arguments as for ``_assembled``."""
    program, readers = account.program, [e for e in layout.readers if e in account.program.gathered_again]
    if not readers:
        return []
    cells = [layout.reader(program, e) for e in readers]
    begin, first = (np.minimum.reduce([row[c] for c in cells]) for row in (times.backward.begin, times.backward.first))
    last, own = readers[-1].consumer, layout.source >= 0
    np.maximum.at(last_use[account.saving_pass[last]], layout.source[own], first[own])
    size = np.asarray(layout.elements, dtype=float) * program.graph.element_bytes
    until = np.maximum.reduce([times.backward.end[c] for c in cells])
    return [BufferRows("assembled inputs", layout.edge.producer, layout.device, size, begin, until)]


def _last_read(account: MemoryAccount, layout: InputLayout, reader: Edge, times: UnitTimes, again: int) -> Floats:
    """Return when one of the readers of a tensor has read it for the last time, shape (rows of the layout,)."""
    v, cells = reader.consumer, layout.reader(account.program, reader)
    until = times.forward[again].end[cells]
    keeps = account.parts[v].saves_inputs[reader.slot][layout.part] & (reader not in account.program.gathered_again)
    backward = np.where(keeps, times.backward.end[cells], -np.inf)
    if again or not account.saving_pass[v]:
        return np.maximum(until, backward)
    if account.recomputed_together(layout.edge.producer, v):  # recomputed before the layer's backward pass
        return until
    second = times.forward[1].end[cells]
    return np.maximum(until, np.maximum(np.where(np.isfinite(second), second, -np.inf), backward))
