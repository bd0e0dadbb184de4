"""Every buffer of a program: what it holds, where, from when on and until when.

One account serves two readings of time: the replay's, for the memory over time, and program order, for the estimate
before any replay.  It says what the executor does: a device runs its tasks in program order and frees what nobody
reads any more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.deliveries import Delivery, deliveries_of
from planner.keeping import Keeping, PartMemory, part_memories
from planner.operations.base import BATCH_STATISTICS
from planner.program import KINDS, Program
from planner.unit_times import UnitTimes, unit_of

__all__ = ["BUFFERS", "Buffers", "Lives", "parameter_bytes", "residuals"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BUFFERS = (
    "parameters",
    "optimizer state",
    "parameter gradients",
    "data",
    "activations",
    "assembled inputs",
    "kept for backward",
    "activation gradients",
    "messages",
    "codes",
    "residuals",
    "statistics",
    "workspace",
)
"""Kinds of buffers; ``Buffers.kind`` holds indices into this tuple."""
_FORWARD, _ACTIVATION_GRADIENT, _WEIGHT_GRADIENT, _UPDATE = (
    KINDS.index(kind) for kind in ("forward", "activation_gradient", "weight_gradient", "update")
)
_COMPRESS, _DECOMPRESS, _TRANSFER, _COLLECTIVE = (
    KINDS.index(kind) for kind in ("compress", "decompress", "transfer", "collective")
)
_COLUMNS = ("device", "layer", "kind", "size_bytes", "birth_s", "death_s")
_STATISTICS_BYTES = 8
"""Statistics are summed in double precision."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buffers:
    """Buffers of a replay or of one iteration in program order, arrays of one shape (B,)."""

    device: Ints
    layer: Ints
    """Layer that owns the parameters or the tensor."""
    kind: Ints
    size_bytes: Floats
    birth_s: Floats
    death_s: Floats
    """Infinite for what is always there."""

    @classmethod
    def of(cls, rows: Iterable["Buffers"]) -> "Buffers":
        """Several together."""
        rows = list(rows)
        return cls(**{name: np.concatenate([getattr(row, name) for row in rows]) for name in _COLUMNS})

    def take(self, keep: Bools) -> "Buffers":
        """Some of them."""
        return Buffers(**{name: getattr(self, name)[keep] for name in _COLUMNS})


def parameter_bytes(program: Program, layer: int) -> float:
    """Bytes of a layer's parameters on each device that holds some."""
    channel = int(program.spaces[layer].shards[0, 1])
    parameters = program.graph.layers[layer].parameters
    return float(sum(p.elements / (channel if p.split else 1) for p in parameters) * program.graph.element_bytes)


def residuals(program: Program) -> list[tuple[int, int]]:
    """Pairs (layer, device) that keep what codes of the layer's gradients leave out: a number for every gradient."""
    coded = np.flatnonzero(program.is_coding & (program.consumer < 0))
    pairs = sorted(set(zip(program.layer[coded].tolist(), program.device[coded].tolist(), strict=True)))
    kinds = {i: program.compressed.gradient(program.graph, i) for i, _ in pairs}
    return [(i, device) for i, device in pairs if (kind := kinds[i]) is not None and kind.feedback]


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """All deliveries, one after another, as columns of shape (R,)."""

    number: Ints
    """Of the delivery."""
    layer: Ints
    """Producer."""
    device: Ints
    source: Ints
    """Cell of the device's own part of the producer; -1 where it holds none."""
    size: Floats
    own: Bools
    """Whether that part holds some of the region."""
    view: Bools
    covers: Bools


class Lives:
    """What gives birth to the buffers of a program, and what is the last to need them.

    Args:
        program: What runs.
        keeping: What is kept beside the tensors of the network.
    """

    def __init__(self, program: Program, keeping: Keeping) -> None:
        self.program, self.keeping, graph = program, keeping, program.graph
        layers, self.devices = len(graph.layers), len(program.cluster.devices)
        self.parts: list[PartMemory] = part_memories(program, keeping)
        self.held_bytes = np.array([parameter_bytes(program, i) for i in range(layers)])
        self.deliveries: list[Delivery] = deliveries_of(program)
        self.segments = np.array(program.segments)
        self.holds = (self.segments >= 0).astype(int)
        """By layer, which of its forward tasks makes what the backward pass reads: the first or the second."""
        summed = (program.kind == _COLLECTIVE) & ~program.statistics
        self.exchanged = np.bincount(program.layer[summed], minlength=layers) > 0
        trained = [graph.has_phase(i, "update") for i in range(layers)]
        self.places = {
            i: program.spaces[i].devices for i in range(layers) if trained[i]
        }  # devices that hold parameters
        # the cells of every layer, part by part
        cut = program.cut
        self.cells_of: list[Ints] = []
        for i, space in enumerate(program.spaces):
            subs = np.arange(cut.of(i))
            part = np.repeat(np.arange(len(space.devices)), len(subs))
            device = space.devices[part]
            self.cells_of.append(unit_of(program, np.full(len(part), i), device, np.tile(subs, len(space.devices))))
        columns = [
            (
                np.full(len(d.part), k), np.full(len(d.part), d.edge.producer), d.device, d.source,
                d.elements * float(graph.element_bytes), d.own > 0, d.is_view, d.covers,
            )
            for k, d in enumerate(self.deliveries)
        ]  # fmt: skip
        empty = np.empty(0, dtype=np.int64)
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)] if columns else [empty] * 8
        self.rows = _Rows(*(column.astype(bool) if k >= 5 else column for k, column in enumerate(joined)))
        self.bounds = np.concatenate([[0], np.cumsum([len(d.part) for d in self.deliveries])]).astype(int)

    # columns

    def _buffers(
        self, kind: str, layer: Ints | int, device: Ints, size: Floats | float, birth: Floats | float,
        death: Floats | float,
    ) -> Buffers:  # fmt: skip
        count = len(device)
        rows = [np.broadcast_to(np.asarray(row, dtype=float), (count,)) for row in (size, birth, death)]
        layers = np.broadcast_to(np.asarray(layer, dtype=np.int64), (count,))
        real = (rows[0] > 0) & (rows[2] > rows[1]) & np.isfinite(rows[1])
        return Buffers(
            device=device[real], layer=layers[real], kind=np.full(int(real.sum()), BUFFERS.index(kind)),
            size_bytes=rows[0][real], birth_s=rows[1][real], death_s=rows[2][real],
        )  # fmt: skip

    def _by_cell(self, kind: str, i: int, size: Floats, birth: Floats, death: Floats) -> Buffers:
        """Buffers of a layer: sizes by part, moments by cell."""
        cells, space = self.cells_of[i], self.program.spaces[i]
        times = len(cells) // len(space.devices)
        device = np.repeat(space.devices, times)
        return self._buffers(kind, i, device, np.repeat(size, times), birth[cells], death[cells])

    # what is always there

    def kept(self) -> Buffers:
        """Parameters with their optimizer's state, gradients that are exchanged, residuals, buffers of messages."""
        program, rows, never = self.program, [], np.inf
        for i, devices in self.places.items():
            size = self.held_bytes[i]
            rows.append(self._buffers("parameters", i, devices, size, 0.0, never))
            rows.append(self._buffers("optimizer state", i, devices, size * self.keeping.states, 0.0, never))
            if self.exchanged[i]:
                rows.append(self._buffers("parameter gradients", i, devices, size, 0.0, never))
            if program.graph.layers[i].operation.statistics:
                running = BATCH_STATISTICS * self._channels(i) * program.graph.element_bytes
                rows.append(self._buffers("statistics", i, devices, running, 0.0, never))
        for i, device in residuals(program):
            rows.append(self._buffers("residuals", i, np.array([device]), self.held_bytes[i], 0.0, never))
        if self.keeping.host:
            moves = np.flatnonzero(program.kind == _TRANSFER)
            rows.append(
                self._buffers("messages", program.layer[moves], program.peer[moves], program.size_bytes[moves], 0.0,
                              never)
            )  # fmt: skip
        return Buffers.of(rows) if rows else self._buffers("parameters", 0, np.empty(0, dtype=np.int64), 0.0, 0.0, 0.0)

    def _channels(self, i: int) -> float:
        """Channels of each part of a layer."""
        space = self.program.spaces[i]
        return float(space.output.size("channel") / space.degrees[0, 1])

    # what comes and goes

    def passing(self, start_s: Floats, end_s: Floats) -> Buffers:
        """Buffers of one iteration, from when its tasks ran."""
        times = UnitTimes(self.program, start_s, end_s)
        rows = [*self._activations(times), *self._gradients(times), *self._messages(times), *self._codes(times)]
        rows += [*self._parameter_gradients(times), *self._layers(times)]
        return Buffers.of(rows)

    def _layers(self, times: UnitTimes) -> list[Buffers]:
        """What layers keep for their backward pass, what they take while they compute, and the data they read."""
        rows, graph = [], self.program.graph
        for i, part in enumerate(self.parts):
            layer, holds = graph.layers[i], self.holds[i]
            for again, moments in enumerate(times.forward):
                kept = np.maximum(moments.end, times.backward.end) if again == holds else moments.end
                rows.append(self._by_cell("kept for backward", i, part.copies, moments.begin, kept))
                rows.append(self._by_cell("kept for backward", i, part.extra, moments.first, kept))
                if "input" in layer.inputs:
                    until = np.where(np.isfinite(times.forward[1].end), times.forward[1].end, moments.end)
                    rows.append(self._data(i, times, moments.begin, np.maximum(until, moments.end), again))
                if (part.work["forward"] > 0).any():
                    rows.append(self._by_cell("workspace", i, part.work["forward"], moments.first, moments.second))
            for phase, moments in (("activation_gradient", times.activation), ("weight_gradient", times.weight)):
                if (part.work[phase] > 0).any():
                    rows.append(self._by_cell("workspace", i, part.work[phase], moments.second, moments.end))
            if layer.operation.statistics:
                size = self._channels(i) * (_STATISTICS_BYTES + graph.element_bytes) * BATCH_STATISTICS
                end = np.maximum(times.forward[0].end, times.backward.end)
                sizes = np.full(len(self.program.spaces[i].devices), size)
                rows.append(self._by_cell("statistics", i, sizes, times.forward[0].first, end))
        return rows

    def _data(self, i: int, times: UnitTimes, birth: Floats, forward_end: Floats, again: int) -> Buffers:
        """The region of the data that the parts of a layer read."""
        from planner.regions import needed

        program, part = self.program, self.parts[i]
        if again:
            return self._buffers("data", i, np.empty(0, dtype=np.int64), 0.0, 0.0, 0.0)
        behind = program.cut.of(i) > 1
        space = (program.sub_spaces if behind else program.spaces)[i]
        layer = program.graph.layers[i]
        size = np.zeros(len(space.devices))
        for slot, source in enumerate(layer.inputs):
            if source == "input":
                shape = layer.input_shapes[slot]
                whole = type(shape)(shape.dims, (space.output.sizes[0], *shape.sizes[1:]))
                boxes = needed(space, layer.operation.needs(slot, layer.input_shapes), whole)
                size += boxes.volume * program.graph.element_bytes
        cells = self.cells_of[i]
        keeps = np.repeat(part.keeps_inputs, len(cells) // len(space.devices))
        death = forward_end.copy()
        death[cells] = np.where(keeps, np.maximum(forward_end[cells], times.backward.end[cells]), forward_end[cells])
        return self._by_cell("data", i, size, birth, death)

    def _activations(self, times: UnitTimes) -> list[Buffers]:
        """Output parts where they are made, and inputs that are assembled of several of them."""
        death = [moments.end.copy() for moments in times.forward]
        rows = []
        for d in self.deliveries:
            rows += self._delivered(d, times, death)
        program = self.program
        sent = np.flatnonzero((program.kind == _TRANSFER) & ~program.backward)
        made = unit_of(program, program.layer[sent], program.device[sent], program.sub_batch[sent])
        leaves = self._leaves(times, sent)
        for again in (0, 1):
            here = program.again[sent] == bool(again)
            np.maximum.at(death[again], made[here], leaves[here])
        for i, part in enumerate(self.parts):
            holds = self.holds[i]
            for again, moments in enumerate(times.forward):
                end = np.maximum(death[again], times.backward.end) if part.keeps_output and again == holds \
                    else death[again]  # fmt: skip
                birth = moments.second if part.separate else moments.first
                rows.append(self._by_cell("activations", i, part.output, birth, end))
        return rows

    def _delivered(self, d: Delivery, times: UnitTimes, death: list[Floats]) -> list[Buffers]:
        """A tensor in one layout: assembled, or a view that keeps the output part alive."""
        rows, program, u = [], self.program, d.edge.producer
        size = np.asarray(d.elements, dtype=float) * program.graph.element_bytes
        here = d.source >= 0
        view = d.is_view & here
        for again in (0, 1):
            readers = [e for e in d.readers if not again or self._inside(u, e.consumer)]
            if not readers or not np.isfinite(times.forward[again].begin[d.reader(program, readers[0])]).any():
                continue
            birth: Floats = np.full(len(d.part), np.inf)
            until: Floats = np.full(len(d.part), -np.inf)
            first: Floats | None = None
            for e in readers:
                cells, v = d.reader(program, e), e.consumer
                moments = times.forward[again]
                birth = np.minimum(birth, moments.begin[cells])
                first = moments.first[cells] if first is None else np.minimum(first, moments.first[cells])
                until = np.maximum(until, moments.end[cells])
                holds = self.parts[v].keeps_inputs[d.part]
                backward = np.where(holds, times.backward.end[cells], -np.inf)
                if self.holds[v] and not again:
                    if not self._inside(u, v):
                        second = times.forward[1].end[cells]
                        until = np.maximum(until, np.maximum(np.where(np.isfinite(second), second, -np.inf), backward))
                else:
                    until = np.maximum(until, backward)
            assert first is not None
            np.maximum.at(death[again], d.source[view], until[view])
            parted = here & ~view
            np.maximum.at(death[again], d.source[parted], first[parted])
            whole = ~view & (d.elements > 0)
            rows.append(self._buffers("assembled inputs", u, d.device[whole], size[whole], birth[whole], until[whole]))
        return rows

    def _inside(self, u: int, v: int) -> bool:
        """Whether two layers are recomputed together."""
        return bool(self.segments[u] >= 0 and self.segments[u] == self.segments[v])

    def _gradients(self, times: UnitTimes) -> list[Buffers]:
        """Gradients of tensors as readers make them, summed for a part, and what a part turns them into."""
        program, rows, graph = self.program, self.rows, self.program.graph
        count = np.zeros(times.cells, dtype=np.int64)
        local = rows.own & (rows.source >= 0)
        np.add.at(count, rows.source[local], 1)
        covered = np.zeros(times.cells, dtype=np.int64)
        np.add.at(covered, rows.source[local & rows.covers], 1)
        back = np.flatnonzero((program.kind == _TRANSFER) & program.backward)
        arriving = unit_of(program, program.layer[back], program.peer[back], program.sub_batch[back])
        remote = np.bincount(arriving, minlength=times.cells)
        direct = (count == 1) & (covered == 1) & (remote == 0)
        found, b = [], times.backward
        birth, until = np.full(len(rows.number), np.inf), np.full(len(rows.number), -np.inf)
        factor = np.ones(len(rows.number))
        sent_until = self._sent_until(times, back)
        shares: dict[int, list[int]] = {}
        for k, d in enumerate(self.deliveries):
            u, place = d.edge.producer, slice(self.bounds[k], self.bounds[k + 1])
            readers = [e for e in d.readers if graph.has_phase(e.consumer, "activation_gradient")]
            if not graph.has_gradient(u) or not readers:
                continue
            for e in readers:
                cells, part = d.reader(program, e), self.parts[e.consumer]
                made = times.activation.end[cells] if part.passes_on else times.activation.second[cells]
                if e is not readers[-1]:  # added to those of later readers, in a tensor of its own
                    size = rows.size[place]
                    work = np.minimum(part.work["activation_gradient"][d.part], size)
                    found.append(
                        self._buffers("workspace", u, d.device, 2 * size - work, made, times.activation.end[cells])
                    )
                birth[place] = np.minimum(birth[place], made)
            if len(readers) == 1 and self.parts[readers[0].consumer].passes_on:
                shares.setdefault(readers[0].consumer, []).append(k)
            source = d.source
            transforms = self.parts[u].transforms
            taken = np.where(direct[source], b.second[source] if transforms else b.end[source], b.first[source])
            remote_only = sent_until[place]
            until[place] = np.where((source >= 0) & (d.own > 0), taken, remote_only)
        for consumer, group in shares.items():
            places = [slice(self.bounds[k], self.bounds[k + 1]) for k in group]
            last = np.maximum.reduce([until[place] for place in places])
            everyone = len(group) == sum(graph.has_gradient(e.producer) for e in graph.producers[consumer])
            adds = graph.layers[consumer].operation.kind == "add"
            for n, place in enumerate(places):
                until[place] = last
                factor[place] = (1.0 if everyone and n == 0 else 0.0) if adds else 1.0
        found.append(self._buffers("activation gradients", rows.layer, rows.device, rows.size * factor, birth, until))
        for i, part in enumerate(self.parts):
            if not graph.consumers[i] or not graph.has_gradient(i):
                continue
            cells, times_of = self.cells_of[i], len(self.cells_of[i]) // len(part.output)
            summed = np.where(direct[cells], 0.0, np.repeat(part.output, times_of))
            device = np.repeat(program.spaces[i].devices, times_of)
            until_i = (b.second if part.transforms else b.end)[cells]
            found.append(self._buffers("activation gradients", i, device, summed, b.begin[cells], until_i))
            if part.transforms:
                found.append(self._by_cell("activation gradients", i, part.output, b.first, b.end))
        return found

    def _leaves(self, times: UnitTimes, sends: Ints) -> Floats:
        """When what transfers send is no more needed: it has arrived, or its codes have been made."""
        program, end = self.program, times.end_s.copy()
        task = np.repeat(np.arange(program.size), np.diff(program.after_start))
        pairs = (program.kind[task] == _TRANSFER) & (program.kind[program.after] == _COMPRESS)
        end[task[pairs]] = times.end_s[program.after[pairs]]
        return np.asarray(end[sends])

    def _sent_until(self, times: UnitTimes, back: Ints) -> Floats:
        """For every row of the deliveries, when the last transfer of its gradient has left."""
        program, rows = self.program, self.rows
        until = np.full(len(rows.number), -np.inf)
        number = {(d.edge.producer, d.edge.consumer, d.edge.slot): k for k, d in enumerate(self.deliveries)}
        keys = zip(
            program.layer[back].tolist(), program.consumer[back].tolist(), program.slot[back].tolist(), strict=True
        )
        k_of = np.array([number[key] for key in keys], dtype=np.int64)
        leaves = self._leaves(times, back)
        for k in np.unique(k_of).tolist():
            d, mine = self.deliveries[k], k_of == k
            subs = int(d.sub_batch.max()) + 1
            table = np.full(self.devices * subs, -np.inf)
            np.maximum.at(table, program.device[back[mine]] * subs + program.sub_batch[back[mine]] % subs, leaves[mine])
            until[self.bounds[k] : self.bounds[k + 1]] = table[d.device * subs + d.sub_batch]
        return until

    def _messages(self, times: UnitTimes) -> list[Buffers]:
        """Copies of regions on their way: where they leave, and, without buffers of their own, where they arrive."""
        program = self.program
        moves = np.flatnonzero(program.kind == _TRANSFER)
        task = np.repeat(np.arange(program.size), np.diff(program.after_start))
        arrives = np.arange(program.size)
        decoding = (program.kind[task] == _DECOMPRESS) & (program.kind[program.after] == _TRANSFER)
        arrives[program.after[decoding]] = task[decoding]
        there, sizes = arrives[moves], program.region_bytes[moves]
        part_bytes = np.array([part.output.max(initial=0.0) for part in self.parts])
        holds = np.zeros((len(self.parts), self.devices), dtype=bool)
        for i, space in enumerate(program.spaces):
            holds[i, space.devices] = True
        # a whole part is sent as it is; of a gradient, where nothing of it stays
        stays = program.backward[moves] & holds[program.layer[moves], program.device[moves]]
        copied = ((sizes < part_bytes[program.layer[moves]]) | stays) & (there == moves)
        rows = [
            self._buffers("messages", program.layer[moves[copied]], program.device[moves[copied]], sizes[copied],
                          times.start_s[moves[copied]], self._forgotten(times, moves[copied]))
        ]  # fmt: skip
        if self.keeping.host:
            moves, there, sizes = moves[there != moves], there[there != moves], sizes[there != moves]
        forward = ~program.backward[moves]
        readers = unit_of(program, program.consumer[moves], program.peer[moves], program.sub_batch[moves])
        makers = unit_of(program, program.layer[moves], program.peer[moves], program.sub_batch[moves])
        read = np.where(program.again[moves], times.forward[1].first[readers], times.forward[0].first[readers])
        until = np.where(forward, read, times.backward.first[makers])
        until = np.maximum(until, times.end_s[there])
        rows.append(
            self._buffers("messages", program.layer[moves], program.peer[moves], sizes, times.start_s[there], until)
        )
        return rows

    def _forgotten(self, times: UnitTimes, sends: Ints) -> Floats:
        """When copies that were sent are freed: on processors, no sooner than the sender's next task has ended."""
        program, end = self.program, times.end_s[sends]
        if not self.keeping.host:
            return end
        tasks = np.flatnonzero(program.is_compute & ~program.is_coding)
        places = np.sort(program.device[tasks] * program.size + tasks)
        mine = program.device[sends] * program.size + sends
        following = places[np.minimum(np.searchsorted(places, mine), len(places) - 1)]
        same = following // program.size == program.device[sends]
        return np.where(same, np.maximum(end, times.end_s[following % program.size]), end)

    def _parameter_gradients(self, times: UnitTimes) -> list[Buffers]:
        """From a layer's weight gradient to its update or, where it is exchanged, to its buffer."""
        program, rows = self.program, []
        cut = program.cut
        update = np.full(times.cells, -np.inf)
        tasks = np.flatnonzero(program.kind == _UPDATE)
        np.maximum.at(update, times.unit[tasks], times.end_s[tasks])
        for i, devices in self.places.items():
            cells, subs = self.cells_of[i].reshape(len(devices), -1), cut.of(i)
            begin, end = times.weight.second[cells], times.weight.end[cells]
            if cut.update_each or subs == 1:
                until = end if self.exchanged[i] else np.maximum(update[cells], end)
                rows.append(
                    self._buffers("parameter gradients", i, np.repeat(devices, subs), self.held_bytes[i],
                                  begin.ravel(), until.ravel())
                )  # fmt: skip
                continue
            last = end.max(axis=1)
            until = last if self.exchanged[i] else np.maximum(update[cells].max(axis=1), last)
            rows.append(self._buffers("parameter gradients", i, devices, self.held_bytes[i], begin.min(axis=1), until))
            turn = begin.argsort(axis=1).argsort(axis=1)  # the second is added to the first in a tensor of their own
            size = np.choose(np.minimum(turn, 2), [0.0, 2.0, 1.0]).ravel() * self.held_bytes[i]
            rows.append(self._buffers("workspace", i, np.repeat(devices, subs), size, begin.ravel(), end.ravel()))
        return rows

    def _codes(self, times: UnitTimes) -> list[Buffers]:
        """Codes where they are made, and where they arrive."""
        program, start_s, end_s = self.program, times.start_s, times.end_s
        task = np.repeat(np.arange(program.size), np.diff(program.after_start))
        read_s, came_s = end_s.copy(), start_s.copy()
        np.maximum.at(read_s, program.after, end_s[task])
        moves = ~program.is_compute[program.after]
        np.minimum.at(came_s, task[moves], start_s[program.after[moves]])
        makes, takes = np.flatnonzero(program.made_bytes), np.flatnonzero(program.taken_bytes)
        return [
            self._buffers("codes", program.layer[rows], program.device[rows], size[rows], born[rows], dead[rows])
            for rows, size, born, dead in (
                (makes, program.made_bytes, start_s, read_s), (takes, program.taken_bytes, came_s, end_s),
            )
        ]  # fmt: skip
