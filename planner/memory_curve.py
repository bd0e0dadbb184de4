"""Memory over time: when every buffer of a replayed program is born and dies, and what each device holds meanwhile."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from planner.memory import check_memory, parameter_bytes, residuals
from planner.program import KINDS, Program
from planner.replay import Replay, replay

__all__ = ["BUFFERS", "Buffers", "MemoryCurve", "buffers", "memory_curve", "replay_that_fits"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BUFFERS = (
    "parameters",
    "momentum",
    "parameter gradients",
    "activations",
    "received activations",
    "activation gradients",
    "gradients to send",
    "codes",
    "residuals",
)
"""Kinds of buffers; ``Buffers.kind`` holds indices into this tuple."""
_FORWARD, _ACTIVATION_GRADIENT, _WEIGHT_GRADIENT, _UPDATE = (
    KINDS.index(kind) for kind in ("forward", "activation_gradient", "weight_gradient", "update")
)
_COMPRESS, _DECOMPRESS, _TRANSFER = (KINDS.index(kind) for kind in ("compress", "decompress", "transfer"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buffers:
    """Every buffer of a replay, arrays of one shape (B,).

    Parameters and momentum are always there.  A parameter's gradient lives from the start of its weight
    gradient to the end of its update.  A layer's output part lives from the start of its forward task, and a
    received region from the start of its transfer, to the end of the last task that may read it: forward and
    backward tasks of consumers on the device, sends from it, and the layer's own backward tasks.  The gradient
    of an output part, into which arriving regions are summed, lives from the start of the first task that
    writes to it to the end of the layer's backward tasks; a gradient for another device from the start of the
    task that computes it to the end of the transfer.  Where a tensor travels as codes, what is received begins with
    its decoding, and what is to be sent ends with its encoding; codes live from the start of the task that makes them
    to the end of the last that sends or reads them, and where they arrive from the start of the first message to the
    end of decoding.  Residuals of gradients are always there.  The data itself, the few statistics of normalisations,
    buffers of exchanges of plain gradients and the libraries' workspace are left out.
    """

    device: Ints
    layer: Ints
    """Layer that owns the parameters or the tensor."""
    kind: Ints
    size_bytes: Floats
    birth_s: Floats
    death_s: Floats
    """Infinite for what is always there."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryCurve:
    """What every device holds over a replay, in exact steps.

    Steps of device d are rows ``start[d]`` to ``start[d + 1]``: from ``time_s`` on it holds ``held_bytes``.
    """

    program: Program
    buffers: Buffers
    always_bytes: Floats
    """Shape (devices,): what is there before and after."""
    start: Ints
    time_s: Floats
    held_bytes: Floats

    def of(self, device: int) -> tuple[Floats, Floats]:
        """Times and bytes held from then on, of one device."""
        rows = slice(self.start[device], self.start[device + 1])
        return self.time_s[rows], self.held_bytes[rows]

    @cached_property
    def peak_bytes(self) -> Floats:
        """Most that each device holds at once, shape (devices,)."""
        peaks = self.always_bytes.copy()
        busy = np.flatnonzero(np.diff(self.start))
        if len(busy):
            peaks[busy] = np.maximum(peaks[busy], np.maximum.reduceat(self.held_bytes, self.start[busy]))
        return peaks

    @property
    def fullest(self) -> int:
        """Device whose peak is the largest share of its memory."""
        capacity = np.array([device.memory_bytes for device in self.program.cluster.devices])
        return int((self.peak_bytes / capacity).argmax())

    def peak_time_s(self, device: int) -> float:
        """When a device first holds most; 0 where it never holds more than what is always there."""
        times, held = self.of(device)
        return float(times[held.argmax()]) if len(held) else 0.0

    def alive(self, device: int, at_s: float) -> pd.DataFrame:
        """What a device holds at a moment: layer, kind, count, size_bytes, the largest first."""
        known = self.buffers
        here = (known.device == device) & (known.birth_s <= at_s) & (at_s < known.death_s)
        rows = pd.DataFrame(
            {"layer": known.layer[here], "kind": known.kind[here], "count": 1, "size_bytes": known.size_bytes[here]}
        )
        rows = rows.groupby(["layer", "kind"], as_index=False).sum()
        rows = rows.sort_values("size_bytes", ascending=False, kind="stable", ignore_index=True)
        rows["layer"] = [self.program.graph.layers[i].name for i in rows["layer"]]
        rows["kind"] = [BUFFERS[i] for i in rows["kind"]]
        return rows


def replay_that_fits(program: Program) -> Replay:
    """Replay a program, and refuse it where the replay holds more than a device has.

    Raises:
        InfeasiblePlanError: It does; the message has the numbers.
    """
    replayed = replay(program)
    check_memory(program, memory_curve(replayed).peak_bytes)
    return replayed


def memory_curve(replay: Replay) -> MemoryCurve:
    """Follow every buffer of a replay, over all its iterations."""
    known, count = buffers(replay), len(replay.program.cluster.devices)
    passing = np.flatnonzero(np.isfinite(known.death_s) & (known.death_s > known.birth_s))
    always = ~np.isfinite(known.death_s)
    base = np.bincount(known.device[always], known.size_bytes[always], minlength=count).astype(np.float64)
    device = np.tile(known.device[passing], 2)
    time_s = np.concatenate([known.birth_s[passing], known.death_s[passing]])
    change = np.concatenate([known.size_bytes[passing], -known.size_bytes[passing]])
    order = np.lexsort((time_s, device))
    device, time_s, change = device[order], time_s[order], change[order]
    # Sizes are whole bytes, or nearly so: the running sum over all devices is exact, and each device ends at its base.
    last = np.ones(len(device), dtype=bool)
    last[:-1] = (device[1:] != device[:-1]) | (time_s[1:] != time_s[:-1])  # what is freed and taken at once is one step
    held = np.asarray(np.cumsum(change)[last] + base[device[last]], dtype=np.float64)
    return MemoryCurve(
        program=replay.program,
        buffers=known,
        always_bytes=base,
        start=np.searchsorted(device[last], np.arange(count + 1)),
        time_s=time_s[last],
        held_bytes=held,
    )


def buffers(replay: Replay) -> Buffers:
    """Every buffer of every iteration of a replay."""
    program = replay.program
    lives, schedule = _Lives(program), replay.schedule
    rows = [lives.kept()]
    rows += [lives.passing(schedule.start_s[tasks], schedule.end_s[tasks]) for tasks in replay.reading.task_of]
    device, layer, kind, size, birth, death = _joined(rows)
    return Buffers(device=device, layer=layer, kind=kind, size_bytes=size, birth_s=birth, death_s=death)


_Columns = tuple[Ints, Ints, Ints, Floats, Floats, Floats]


class _Lives:
    """Which tasks of a program give birth to each buffer, and which are the last to need it."""

    def __init__(self, program: Program) -> None:
        self.program, graph = program, program.graph
        self.output_bytes = np.array(
            [layer.output.elements * graph.element_bytes for layer in graph.layers], dtype=float
        )
        self.held_bytes = np.array([parameter_bytes(program, i) for i in range(len(graph.layers))])
        self.forward, self.updates = (np.flatnonzero(program.kind == kind) for kind in (_FORWARD, _UPDATE))
        parts = np.bincount(program.layer[self.forward], minlength=len(graph.layers))
        self.part_bytes = self.output_bytes / np.maximum(parts, 1)
        # pairs (task, what it waits for) of one iteration
        self.task = np.repeat(np.arange(program.size), np.diff(program.after_start))
        self.after = program.after
        # of a transfer, the task before which its region is whole at the source, and from which on it is at the target
        self.leaves, self.arrives = np.arange(program.size), np.arange(program.size)
        for end, kind, rows, others in (
            (self.leaves, _COMPRESS, self.task, self.after),
            (self.arrives, _DECOMPRESS, self.after, self.task),
        ):
            pairs = (program.kind[rows] == _TRANSFER) & (program.kind[others] == kind)
            end[rows[pairs]] = others[pairs]
        # a layer has one part a device at most: places number the pairs (layer, device), cells those with sub-batches
        devices, pieces = len(program.cluster.devices), program.cut.parts
        self.place = np.where(program.device >= 0, program.layer * devices + program.device, -1)
        self.cell = np.where(program.device >= 0, self.place * pieces + program.sub_batch, -1)
        self.cells = len(graph.layers) * devices * pieces

    def _columns(self, kind: str, tasks: Ints, device: Ints, size: Floats, birth: Floats, death: Floats) -> _Columns:
        return device, self.program.layer[tasks], np.full(len(tasks), BUFFERS.index(kind)), size, birth, death

    def kept(self) -> _Columns:
        """Parameters and momentum of every trained part."""
        program, first = self.program, np.unique(self.place[self.updates], return_index=True)[1]
        tasks = self.updates[np.sort(first)]
        size, born, never = self.held_bytes[program.layer[tasks]], np.zeros(len(tasks)), np.full(len(tasks), np.inf)
        rows = [
            self._columns(kind, tasks, program.device[tasks], size, born, never) for kind in ("parameters", "momentum")
        ]
        pairs = set(residuals(program))
        places = zip(program.layer[tasks].tolist(), program.device[tasks].tolist(), strict=True)
        kept = np.array([place in pairs for place in places], dtype=bool)
        rows.append(
            self._columns("residuals", tasks[kept], program.device[tasks[kept]], size[kept], born[kept], never[kept])
        )
        return _joined(rows)

    def passing(self, start_s: Floats, end_s: Floats) -> _Columns:
        """Buffers of one iteration, from when its tasks ran."""
        backward_s = self._backward_end_s(end_s)
        rows = [
            self._parameter_gradients(start_s, end_s),
            *self._activations(start_s, end_s, backward_s),
            self._activation_gradients(start_s, backward_s),
            self._gradients_to_send(start_s, end_s),
            *self._codes(start_s, end_s),
        ]
        return _joined(rows)

    def _backward_end_s(self, end_s: Floats) -> Floats:
        """End of the backward tasks of each cell; -inf where it has none."""
        found = np.full(self.cells, -np.inf)
        kind = self.program.kind
        tasks = np.flatnonzero((kind == _ACTIVATION_GRADIENT) | (kind == _WEIGHT_GRADIENT))
        np.maximum.at(found, self.cell[tasks], end_s[tasks])
        return found

    def _parameter_gradients(self, start_s: Floats, end_s: Floats) -> _Columns:
        program = self.program
        summed = self.cell if program.cut.update_each else self.place  # sub-batches add to one gradient
        born = np.full(self.cells, np.inf)
        gradients = np.flatnonzero(program.kind == _WEIGHT_GRADIENT)
        np.minimum.at(born, summed[gradients], start_s[gradients])
        tasks = self.updates
        size, birth = self.held_bytes[program.layer[tasks]], born[summed[tasks]]
        return self._columns("parameter gradients", tasks, program.device[tasks], size, birth, end_s[tasks])

    def _activations(self, start_s: Floats, end_s: Floats, backward_s: Floats) -> tuple[_Columns, _Columns]:
        """Output parts where they are made, and regions of them where they were sent."""
        program = self.program
        is_forward = program.kind == _FORWARD
        need_s = end_s.copy()  # until when a task needs what it reads: a forward task's layer reads it again
        need_s[self.forward] = np.maximum(end_s[self.forward], backward_s[self.cell[self.forward]])
        death_s = np.where(is_forward, need_s, end_s)
        np.maximum.at(death_s, self.after, need_s[self.task])
        tasks = self.forward
        made = self._columns(
            "activations", tasks, program.device[tasks], self.part_bytes[program.layer[tasks]],
            start_s[tasks], death_s[tasks],
        )  # fmt: skip
        sent = np.flatnonzero((program.kind == _TRANSFER) & ~program.backward)
        there = self.arrives[sent]
        received = self._columns(
            "received activations", sent, program.peer[sent], program.region_bytes[sent], start_s[there], death_s[there]
        )
        return made, received

    def _activation_gradients(self, start_s: Floats, backward_s: Floats) -> _Columns:
        """Gradients of output parts: written by the backward tasks and transfers that the layer's own wait for."""
        program = self.program
        kind = program.kind
        own = (kind == _ACTIVATION_GRADIENT) | (kind == _WEIGHT_GRADIENT)
        writing = (kind == _ACTIVATION_GRADIENT) | (kind == _TRANSFER) | (kind == _DECOMPRESS)
        writes = own[self.task] & writing[self.after]
        born = np.full(self.cells, np.inf)
        np.minimum.at(born, self.cell[self.task[writes]], start_s[self.after[writes]])
        cells = np.flatnonzero(np.isfinite(born))
        layer, device = np.divmod(cells // program.cut.parts, len(program.cluster.devices))
        kinds = np.full(len(cells), BUFFERS.index("activation gradients"))
        return device, layer, kinds, self.part_bytes[layer], born[cells], backward_s[cells]

    def _gradients_to_send(self, start_s: Floats, end_s: Floats) -> _Columns:
        program = self.program
        tasks = np.flatnonzero((program.kind == _TRANSFER) & program.backward)
        leaves, born = self.leaves[tasks], np.full(program.size, np.inf)
        np.minimum.at(born, self.task, start_s[self.after])
        return self._columns(
            "gradients to send", tasks, program.device[tasks], program.region_bytes[tasks], born[leaves], end_s[leaves]
        )

    def _codes(self, start_s: Floats, end_s: Floats) -> tuple[_Columns, _Columns]:
        """Codes where they are made, and where they arrive."""
        program, read_s, came_s = self.program, end_s.copy(), start_s.copy()
        np.maximum.at(read_s, self.after, end_s[self.task])
        moves = ~program.is_compute[self.after]
        np.minimum.at(came_s, self.task[moves], start_s[self.after[moves]])
        makes, takes = np.flatnonzero(program.made_bytes), np.flatnonzero(program.taken_bytes)
        made = self._columns(
            "codes", makes, program.device[makes], program.made_bytes[makes], start_s[makes], read_s[makes]
        )
        taken = self._columns(
            "codes", takes, program.device[takes], program.taken_bytes[takes], came_s[takes], end_s[takes]
        )
        return made, taken


def _joined(rows: list[_Columns]) -> _Columns:
    device, layer, kind, size, birth, death = (np.concatenate(column) for column in zip(*rows, strict=True))
    return device, layer, kind, size, birth, death
