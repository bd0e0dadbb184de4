"""Output parts where they are made, and inputs that are assembled of several of them."""

import numpy as np

from hwprofiles import Floats
from planner.graph import Edge
from planner.lowering import KINDS, InputLayout, UnitTimes, unit_of
from planner.memory.buffer_account import Account
from planner.memory.buffers import Buffers
from planner.memory.message_lifetimes import leaves

__all__ = ["activations"]

_TRANSFER = KINDS.index("transfer")


def activations(account: Account, times: UnitTimes) -> list[Buffers]:
    """Tensors of the forward pass, the first time and when they are computed again."""
    death = [moments.end.copy() for moments in times.forward]
    rows = [row for d in account.input_layouts for row in _delivered(account, d, times, death)]
    program = account.program
    sent = np.flatnonzero((program.kind == _TRANSFER) & ~program.backward)
    made = unit_of(program, program.layer[sent], program.device[sent], program.micro_batch[sent])
    left = leaves(account, times, sent)
    for again in (0, 1):
        here = program.recomputed[sent] == bool(again)
        np.maximum.at(death[again], made[here], left[here])
    for i, part in enumerate(account.parts):
        for again, moments in enumerate(times.forward):
            keeps = part.keeps_output and again == account.holds[i]
            end = np.maximum(death[again], times.backward.end) if keeps else death[again]
            birth = moments.second if part.separate else moments.first
            rows.append(account.by_cell("activations", i, part.output, birth, end))
    return rows


def _delivered(account: Account, d: InputLayout, times: UnitTimes, death: list[Floats]) -> list[Buffers]:
    """A tensor in one layout: assembled, or a view.

    Args:
        death: By cell, when outputs are no more needed, the first time and again; made later where this tensor is a
            view of them, or assembled of them.
    """
    rows, program, u = list[Buffers](), account.program, d.edge.producer
    size = np.asarray(d.elements, dtype=float) * program.graph.element_bytes
    here, view = d.source >= 0, d.is_view & (d.source >= 0)
    for again in (0, 1):
        readers = [e for e in d.readers if not again or account.inside(u, e.consumer)]
        moments = times.forward[again]
        if not readers or not np.isfinite(moments.begin[d.reader(program, readers[0])]).any():
            continue
        cells = [d.reader(program, e) for e in readers]
        birth = np.minimum.reduce([moments.begin[c] for c in cells])
        first = np.minimum.reduce([moments.first[c] for c in cells])
        until = np.maximum.reduce([_last_read(account, d, e, times, again) for e in readers])
        np.maximum.at(death[again], d.source[view], until[view])
        parted = here & ~view
        np.maximum.at(death[again], d.source[parted], first[parted])
        whole = ~view & (d.elements > 0)
        rows.append(Buffers.made("assembled inputs", u, d.device[whole], size[whole], birth[whole], until[whole]))
    return rows


def _last_read(account: Account, d: InputLayout, reader: Edge, times: UnitTimes, again: int) -> Floats:
    """When one of the readers of a tensor needs it no more."""
    v, cells = reader.consumer, d.reader(account.program, reader)
    until = times.forward[again].end[cells]
    backward = np.where(account.parts[v].keeps_inputs[d.part], times.backward.end[cells], -np.inf)
    if again or not account.holds[v]:
        return np.maximum(until, backward)
    if account.inside(d.edge.producer, v):  # it is there again before the layer goes back
        return until
    second = times.forward[1].end[cells]
    return np.maximum(until, np.maximum(np.where(np.isfinite(second), second, -np.inf), backward))
