"""One rank at work: runs its tasks of the program, iteration by iteration."""

import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from executor.arrivals import Arrivals
from executor.boxes import Box
from executor.data import Dataset
from executor.devices import DTYPES, Device
from executor.layers import PartLayer, Step
from executor.layers.layout import memory_format
from executor.optimizers import Optimizer
from executor.rank_program import Delivered, Input, Message, RankProgram, Unit
from executor.recorder import Measured, Recorder
from executor.reduction import Chain, GradientExchange, Reducer, chains_of
from executor.stand_in import wake_in_time
from executor.status import RankState, RankStatus
from executor.transport import Transport
from hwprofiles.errors import ConfigError
from planner.operations import Loss
from planner.program import KINDS

if TYPE_CHECKING:
    from executor.coded_messages import MessageCodes

__all__ = ["StepResult", "Worker"]


_Made = tuple[Unit, bool]
"""What makes an output, the first time or again."""


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What one rank knows of one training step."""

    loss: float
    """The rank's share of the loss: its samples' part of the mean over the batch."""
    measured: Measured


def _data_boxes(view: RankProgram) -> dict[int, dict[int, Box]]:
    """By layer and slot, the region of the data, or of those of each sub-batch, that the rank's parts read."""
    boxes: dict[int, dict[int, Box]] = {}
    for i, layer in enumerate(view.program.graph.layers):
        for slot, source in enumerate(layer.inputs):
            if source == "input" and view.part[i] >= 0:
                boxes.setdefault(i, {})[slot] = view.needed(i, slot)
    return boxes


def _codes(view: RankProgram, dtype: torch.dtype, *, stand_in: bool) -> "MessageCodes | None":
    if not view.program.compressed.activations:
        return None
    from executor.coded_messages import MessageCodes  # its compiled kernels take a second to load

    return MessageCodes(view, dtype=dtype, stand_in=stand_in)


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(pieces)) if len(pieces) > 1 else pieces[0]


class Worker:
    """Runs a rank's tasks of a program.

    Args:
        view: The rank's tasks and messages.
        parts: By layer and sub-batch, the part that the rank holds.
        parameters: By layer and name, the slices that the rank holds; updated in place.
        optimizers: By layer, what updates them; takes gradients in the order of the layer's parameters.
        data: Inputs and targets.
        device, transport, exchange, recorder, status: What the rank works with.
        seed: Keys dropout's masks.
        stand_in: Let every task of arithmetic last as long as the program says, by waiting.
        stand_in_codes: Encode nothing, and let that last as long as the program says.

    Raises:
        ConfigError: Arithmetic on a GPU is to be stood in for.
    """

    def __init__(
        self,
        view: RankProgram,
        *,
        parts: Mapping[Unit, PartLayer],
        parameters: Mapping[int, Mapping[str, Tensor]],
        optimizers: Mapping[int, Optimizer],
        data: Dataset,
        device: Device,
        transport: Transport,
        exchange: GradientExchange,
        recorder: Recorder,
        status: RankStatus,
        seed: int,
        overlap: bool = True,
        stand_in: bool = False,
        stand_in_codes: bool = False,
    ) -> None:
        self._view, self._program, self._graph = view, view.program, view.program.graph
        self._parts, self._parameters, self._optimizers, self._data = parts, parameters, optimizers, data
        self._device, self._transport, self._exchange = device, transport, exchange
        self._recorder, self._status = recorder, status
        self._seed, self._overlap, self._stand_in, self._stand_in_codes = seed, overlap, stand_in, stand_in_codes
        if stand_in and device.torch_device.type != "cpu":
            raise ConfigError(f"device must be cpu with stand_in: the host waits, got {device.torch_device.type}")
        self._data_boxes = _data_boxes(view)
        self._statistics = Reducer(view, recorder, statistics=True)
        self._chains: dict[tuple[Unit, bool], Chain] = {
            (view.unit_of(chain.tasks[0]), bool(view.program.backward[chain.tasks[0]])): chain
            for chain in chains_of(view, statistics=True)
        }
        self._dtype = DTYPES[self._graph.element_bytes]
        self._run: dict[str, Callable[[int, Unit], None]] = {
            "forward": self._forward,
            "activation_gradient": self._activation_gradient,
            "weight_gradient": self._weight_gradient,
            "update": self._update,
            "decompress": self._decompress,
        }
        self._codes = _codes(view, self._dtype, stand_in=stand_in_codes)
        self._arrivals = Arrivals(view, transport, status, self._codes)
        self._read_order()
        self._clear()
        if stand_in:
            wake_in_time()

    def _read_order(self) -> None:
        """Who reads what last, so that nothing is kept longer."""
        view, graph = self._view, self._graph
        self._input_of: dict[tuple[Unit, int], Input] = {}
        self._taken_by: dict[Unit, list[Input]] = defaultdict(list)  # by producer, tensors that need its own part
        for row in view.inputs.values():
            for edge in row.readers:
                self._input_of[(edge.consumer, row.sub_batch), edge.slot] = row
            self._taken_by[row.source].append(row)
        self._phases = sorted(set(view.outgoing) | set(view.incoming))
        self._gradients_in: dict[Unit, list[Message]] = defaultdict(list)
        self._arriving: dict[tuple[Delivered, bool], list[tuple[Message, int]]] = defaultdict(list)
        for phase in self._phases:
            for message in view.incoming.get(phase, ()):
                for place, task in enumerate(message.tasks):
                    if self._program.backward[task]:
                        self._gradients_in[view.unit_of(task)].append(message)
                        break
                    self._arriving[view.edge_of[task], bool(self._program.again[task])].append((message, place))
        self._forward_sends: dict[_Made, int] = defaultdict(int)
        for phase in self._phases:
            for message in view.outgoing.get(phase, ()):
                if not self._program.backward[message.tasks[0]]:
                    self._forward_sends[self._made_by(message)] += 1
        self._last_gradient: dict[Unit, int] = {}
        for task in view.tasks:
            if KINDS[self._program.kind[task]] in ("activation_gradient", "weight_gradient"):
                self._last_gradient[view.unit_of(task)] = task
        self._trained = [graph.has_gradient(i) for i in range(len(graph.layers))]
        self._order = [
            (task, int(self._program.group[task]), self._work_of(task), view.unit_of(task)) for task in view.tasks
        ]
        """Tasks, the groups before which they may send, how they are run, and of which units they are: looked up once,
        since between two pieces of arithmetic a look costs ten times what it costs in a loop of its own."""

    def _work_of(self, task: int) -> Callable[[int, Unit], None] | None:
        """How a task is run; sums, with what they encode and decode, are made when something asks for them."""
        kind = KINDS[self._program.kind[task]]
        return None if kind == "decompress" and self._program.consumer[task] < 0 else self._run.get(kind)

    def _clear(self) -> None:
        self._outputs: dict[_Made, Tensor] = {}
        self._uses: dict[_Made, int] = {}
        self._held: dict[tuple[Unit, int], Tensor] = {}  # inputs that segments keep until they are computed again
        self._assembled: dict[tuple[Delivered, bool], Tensor] = {}
        self._edge_gradients: dict[Delivered, Tensor] = {}
        self._reads: dict[tuple[Delivered, bool], int] = {}
        self._added: dict[int, tuple[int, dict[str, Tensor]]] = {}  # by layer, of how many sub-batches
        self._ready: dict[int, dict[str, Tensor]] = {}
        self._begun: set[Unit] = set()
        self._arrivals.clear()
        self._seen: list[tuple[int, weakref.ref[Tensor]]] = []
        self._next_phase = 0

    @torch.no_grad()
    def step(self, number: int) -> StepResult:
        """Run one training step.

        Args:
            number: Of the step; with the seed it says which data are read and what dropout drops.

        Raises:
            FloatingPointError: The loss is not finite; the message names the first layer seen to be at fault.
            TimeoutError: Another rank keeps this one waiting too long.
            RuntimeError: A connection broke, or memory ran out.
        """
        self._number = number
        for task, group, run, unit in self._order:
            self._flush(group)
            if run is not None:
                self._status.at(task, RankState.COMPUTING)
                run(task, unit)
        self._flush(None)
        self._status.at(-1, RankState.WAITING)
        self._transport.end_iteration()
        self._device.synchronize()
        losses = {unit: part.loss for unit, part in self._parts.items() if part.loss is not None}
        for (layer, _), value in losses.items():
            self._check(layer, value)
        loss = sum(map(float, losses.values()))
        self._clear()
        return StepResult(loss=loss, measured=self._recorder.finish())

    def set_overlap(self, overlap: bool) -> None:
        """From the next step on send beside arithmetic, or wait for each message; the same on all ranks."""
        self._overlap = self._exchange.overlap = overlap

    def gradient_buffers(self) -> list[Tensor]:
        """Where gradients are summed over replicas, always there."""
        return self._exchange.buffers

    def message_buffers(self) -> list[Tensor]:
        """Where messages arrive, always there; none on GPUs."""
        return self._transport.buffers

    def close(self) -> None:
        """End what runs beside; all ranks must call it together."""
        self._transport.close()
        self._exchange.close()
        self._statistics.close()

    def _flush(self, group: int | None) -> None:
        """Send and expect what belongs to phases before a group of tasks; None for all that are left."""
        view = self._view
        while self._next_phase < len(self._phases):
            phase = self._phases[self._next_phase]
            if group is not None and phase >= group:
                return
            self._next_phase += 1
            outgoing = view.outgoing.get(phase, [])
            incoming = view.incoming.get(phase, [])
            if self._codes is not None:
                for task, work in self._codes.encodings(outgoing, self._region_of):
                    self._timed(task, work, stand_in=self._stand_in_codes)
            self._transport.exchange([(message, self._content(message)) for message in outgoing], incoming)
            self._sent(outgoing)
            if not self._overlap:
                for message in incoming:
                    self._arrivals.wait(message)

    def _content(self, message: Message) -> Tensor:
        """The regions of a message, or their codes, one after another, contiguous."""
        if message.kind is not None:
            assert self._codes is not None
            return self._codes.content(message)
        pieces = [
            self._region_of(task, box).reshape(-1) for task, box in zip(message.tasks, message.boxes, strict=True)
        ]
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0].contiguous()

    def _region_of(self, task: int, box: Box) -> Tensor:
        """What a transfer sends."""
        view = self._view
        key = view.edge_of[task]
        if self._program.backward[task]:
            return self._edge_gradients[key][box.within(view.inputs[key].box)]
        return self._outputs[view.unit_of(task), bool(self._program.again[task])][box.within(view.frame(key))]

    def _made_by(self, message: Message) -> _Made:
        """What a message of the forward pass sends from."""
        return self._view.unit_of(message.tasks[0]), bool(self._program.again[message.tasks[0]])

    def _inside(self, unit: Unit, row: Input) -> bool:
        """Whether a layer is recomputed together with what it reads."""
        segments = self._program.segments
        return segments[unit[0]] >= 0 and segments[unit[0]] == segments[row.edge.producer]

    def _sent(self, messages: Sequence[Message]) -> None:
        """Forget tensors of which all has been sent."""
        view = self._view
        for message in messages:
            if not self._program.backward[message.tasks[0]]:
                self._used(self._made_by(message))
                continue
            for key in (view.edge_of[task] for task in message.tasks):
                if not view.inputs[key].own.elements:
                    self._edge_gradients.pop(key, None)

    def _used(self, made: _Made) -> None:
        """An output was sent or read once more; the last time it is forgotten."""
        self._uses[made] -= 1
        if self._uses[made] == 0:
            del self._outputs[made]

    def _decompress(self, task: int, unit: Unit) -> None:
        """Put the numbers of what arrived in place of their codes."""
        transfers = self._view.before(task)
        self._arrivals.wait_for(transfers)
        self._timed(task, lambda: self._arrivals.decode(transfers), stand_in=self._stand_in_codes)

    def _timed(self, task: int, work: Callable[[], None], *, stand_in: bool | None = None) -> None:
        """Run arithmetic and record it; where it, or the coding that it is, is stood in for, wait as long."""
        self._status.at(task, RankState.COMPUTING)
        waits = self._stand_in if stand_in is None else stand_in
        self._recorder.timed(task, work, least_s=float(self._program.work_s[task]) if waits else 0.0)

    # forward

    def _forward(self, task: int, unit: Unit) -> None:
        layer, part, again = unit[0], self._parts[unit], bool(self._program.again[task])
        rows = [self._input_of.get((unit, slot)) for slot in range(len(self._graph.layers[layer].inputs))]
        for row in rows:
            if row is not None and (not again or self._inside(unit, row)):
                for message, _ in self._arriving[row.key, again]:
                    self._arrivals.wait(message)
        output: list[Tensor] = []
        targets = self._targets(unit)
        held = {slot: self._held.pop((unit, slot)) for slot in range(len(rows)) if again and (unit, slot) in self._held}
        if not again:
            held = {slot: self._samples(part, box) for slot, box in self._data_boxes.get(layer, {}).items()}

        def work() -> None:
            inputs = [held[slot] if slot in held else self._input(unit, slot, again) for slot in range(len(rows))]
            if self._program.segments[layer] >= 0 and not again:
                self._hold(unit, rows, inputs)
            output.append(part.forward(inputs, self._parameters.get(layer, {}), self._step_of(targets, again)))

        self._timed(task, work)
        if part.reduces and not again:
            self._reduce(unit, backward=False)
            output[0] = part.finish_forward()
        self._forget_inputs(unit, again)
        self._keep(unit, output[0], again)
        if part.loss is not None and self._device.torch_device.type == "cpu":  # on a GPU the host would wait for it
            self._check(layer, part.loss)
        if self._program.segments[layer] >= 0 and not again:
            part.drop()

    def _step_of(self, targets: Tensor | None, again: bool) -> Step:
        return Step(self._number, self._seed, targets, again)

    def _hold(self, unit: Unit, rows: Sequence[Input | None], inputs: Sequence[Tensor]) -> None:
        """Keep what a segment reads from outside until it is computed again."""
        for slot, (row, values) in enumerate(zip(rows, inputs, strict=True)):
            if row is None or not self._inside(unit, row):
                self._held[unit, slot] = values

    def _samples(self, part: PartLayer, box: Box) -> Tensor:
        """A region of the data of those samples that a part takes."""
        return _joined([self._data.inputs(self._number, piece) for piece in part.samples.boxes(box) or [box]])

    def _targets(self, unit: Unit) -> Tensor | None:
        if not isinstance(self._graph.layers[unit[0]].operation, Loss):
            return None
        box = self._view.held(unit[0])
        spans = self._parts[unit].samples.spans(box.low[0], box.high[0])
        return _joined([self._data.targets(self._number, *span) for span in spans])

    def _keep(self, unit: Unit, output: Tensor, again: bool) -> None:
        """Hold an output for those who read or send it."""
        self._seen.append((unit[0], weakref.ref(output)))
        readers = [row for row in self._taken_by[unit] if self._readers(row, again)]
        uses = self._forward_sends[unit, again] + len(readers)
        if uses:
            self._outputs[unit, again], self._uses[unit, again] = output, uses

    def _readers(self, row: Input, again: bool) -> int:
        """How many read a tensor the first time, or when its segment is computed again."""
        return sum(not again or self._inside((edge.consumer, 0), row) for edge in row.readers)

    def _input(self, unit: Unit, slot: int, again: bool) -> Tensor:
        """A tensor in the layout that the rank's part reads, assembled for its first reader."""
        row = self._input_of[unit, slot]
        key = row.key, again
        if key not in self._assembled:
            self._assembled[key] = self._assemble(row, again)
            self._reads[key] = self._readers(row, again)
            if self._view.part[row.edge.producer] >= 0:
                self._used((row.source, again))
        return self._assembled[key]

    def _assemble(self, row: Input, again: bool) -> Tensor:
        if row.own == row.box and row.box.elements:
            output = self._outputs[row.source, again]
            return output if row.box == row.frame else output[row.box.within(row.frame)]
        last = any(self._parts[edge.consumer, row.sub_batch].reads_last for edge in row.readers)
        layout = memory_format(last, self._dtype, self._device.torch_device)
        whole = torch.empty(row.box.shape, dtype=self._dtype, device=self._device.torch_device, memory_format=layout)
        if row.own.elements:
            whole[row.own.within(row.box)] = self._outputs[row.source, again][row.own.within(row.frame)]
        for message, place in self._arriving[row.key, again]:
            task, box = message.tasks[place], message.boxes[place]
            whole[box.within(row.box)] = self._arrivals.region(task)
            self._arrivals.consumed(task)
        return whole

    def _forget_inputs(self, unit: Unit, again: bool) -> None:
        for slot in range(len(self._graph.layers[unit[0]].inputs)):
            row = self._input_of.get((unit, slot))
            if row is not None and (not again or self._inside(unit, row)):
                self._reads[row.key, again] -= 1
                if self._reads[row.key, again] == 0:
                    del self._assembled[row.key, again]

    def _reduce(self, unit: Unit, *, backward: bool) -> None:
        """Sum the statistics of a normalisation over its replicas."""
        chain, part = self._chains.get((unit, backward)), self._parts[unit]
        if chain is None:
            return
        assert part.statistics is not None
        self._status.at(chain.tasks[0], RankState.WAITING)
        content = part.statistics.to(self._dtype).reshape(-1)
        if chain.native:
            self._recorder.start(chain.tasks[0])
        self._statistics.sum(chain, content)
        if chain.native:
            self._recorder.end(chain.tasks[0])
        part.statistics.copy_(content.view_as(part.statistics))

    # backward

    def _begin(self, unit: Unit) -> None:
        """Bring a layer's gradient together, and go back to what both of its gradients start from."""
        if unit in self._begun:
            return
        self._begun.add(unit)
        part = self._parts[unit]
        part.begin_backward(None if not self._graph.consumers[unit[0]] else self._gradient(unit))
        if part.reduces:
            self._reduce(unit, backward=True)
            part.finish_backward()

    def _expect_gradients(self, unit: Unit) -> None:
        if unit not in self._begun:
            for message in self._gradients_in[unit]:
                self._arrivals.wait(message)

    def _gradient(self, unit: Unit) -> Tensor:
        """Gradient of the rank's part of an output: what all its readers here and elsewhere say of it, summed."""
        held, messages = self._view.held(unit[0]), self._gradients_in[unit]
        local = sorted((row for row in self._taken_by[unit] if row.own.elements), key=lambda row: row.own != row.frame)
        gradients = [self._edge_gradients.pop(row.key) for row in local]
        pieces = [
            gradient if row.own == row.box else gradient[row.own.within(row.box)]
            for row, gradient in zip(local, gradients, strict=True)
        ]
        covering = sum(row.own == row.frame for row in local)
        if covering == 1 and len(local) == 1 and not messages:
            return pieces[0]
        if covering > 1:
            whole, added = pieces[0] + pieces[1], 2
        elif covering:
            whole, added = pieces[0].clone(), 1
        else:
            whole, added = torch.zeros(held.shape, dtype=self._dtype, device=self._device.torch_device), 0
        for row, piece in zip(local[added:], pieces[added:], strict=True):
            whole[row.own.within(row.frame)] += piece
        for message in messages:
            for task, box in zip(message.tasks, message.boxes, strict=True):
                whole[box.within(self._view.frame(self._view.edge_of[task]))] += self._arrivals.region(task)
                self._arrivals.consumed(task)
        return whole

    def _activation_gradient(self, task: int, unit: Unit) -> None:
        self._expect_gradients(unit)

        def work() -> None:
            self._begin(unit)
            for slot, gradient in enumerate(self._parts[unit].activation_gradient()):
                row = self._input_of.get((unit, slot))
                if row is not None and self._trained[row.edge.producer]:
                    before = self._edge_gradients.get(row.key)
                    self._edge_gradients[row.key] = gradient if before is None else before + gradient

        self._timed(task, work)
        self._end_backward(task, unit)

    def _weight_gradient(self, task: int, unit: Unit) -> None:
        self._expect_gradients(unit)
        layer, cut = unit[0], self._program.cut
        count, gradients = self._added.pop(layer, (0, {}))

        def work() -> None:
            self._begin(unit)
            for name, gradient in self._parts[unit].weight_gradient().items():
                if count > 1:  # the sum of two is ours: nobody else holds it
                    gradients[name] += gradient
                else:
                    gradients[name] = gradients[name] + gradient if count else gradient

        self._timed(task, work)
        self._end_backward(task, unit)
        if not cut.update_each and count + 1 < cut.of(layer):
            self._added[layer] = count + 1, gradients
        elif not self._exchange.submit(layer, gradients):
            self._ready[layer] = gradients

    def _end_backward(self, task: int, unit: Unit) -> None:
        if self._last_gradient[unit] == task:
            self._parts[unit].release()

    def _update(self, task: int, unit: Unit) -> None:
        layer = unit[0]
        gradients = self._ready.pop(layer, None)
        if gradients is None:
            self._status.at(task, RankState.WAITING)
            gradients = self._exchange.wait(layer)
        parameters = self._parameters[layer]

        def work() -> None:
            if not self._stand_in:
                self._optimizers[layer].step([gradients[name] for name in parameters])

        self._timed(task, work)

    def _check(self, layer: int, loss: Tensor) -> None:
        if not bool(torch.isfinite(loss)):
            raise FloatingPointError(self._fault(layer))

    def _fault(self, layer: int) -> str:
        """Say where a loss that is not finite comes from, as far as this rank can see."""
        names = [row.name for row in self._graph.layers]
        for index, kept in self._seen:
            output = kept()
            if output is not None and not bool(torch.isfinite(output).all()):
                return f"loss is not finite at step {self._number}: {names[index]} is the first layer with such outputs"
        return f"loss is not finite at step {self._number}, in layer {names[layer]}"
