"""One rank at work: runs its tasks of the program, iteration by iteration."""

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from executor.communication import GradientSync, ReceivedRegions, Reducer, Transport
from executor.data import Dataset
from executor.layers import NOWHERE, PartLayer, TrainingStep
from executor.processes import RankState, RankStatus
from executor.program import Chain, Consumers, LayerUnit, Measured, RankProgram, Recorder, chains_of
from executor.runtime import DTYPES, Box, ComputeDevice, Optimizer
from executor.training.activation_store import Activations
from executor.training.gradient_store import ActivationGradients
from executor.training.sender import Sender
from executor.training.stand_in import wake_in_time
from hwprofiles import ConfigError
from planner.lowering import KINDS
from planner.operations import Loss

if TYPE_CHECKING:
    from executor.communication import CompressedMessages

__all__ = ["StepResult", "Worker"]


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


def _codes(view: RankProgram, dtype: torch.dtype, *, stand_in: bool) -> "CompressedMessages | None":
    if not view.program.compressed.activations:
        return None
    from executor.communication import CompressedMessages

    return CompressedMessages(view, dtype=dtype, stand_in=stand_in)


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
        parts: Mapping[LayerUnit, PartLayer],
        parameters: Mapping[int, Mapping[str, Tensor]],
        optimizers: Mapping[int, Optimizer],
        data: Dataset,
        device: ComputeDevice,
        transport: Transport,
        gradient_sync: GradientSync,
        recorder: Recorder,
        status: RankStatus,
        seed: int,
        overlap: bool = True,
        stand_in: bool = False,
        stand_in_codes: bool = False,
    ) -> None:
        self._view, self._program, self._graph = view, view.program, view.program.graph
        self._parts, self._parameters, self._optimizers, self._data = parts, parameters, optimizers, data
        self._device, self._transport, self._exchange = device, transport, gradient_sync
        self._recorder, self._status = recorder, status
        self._seed, self._stand_in, self._stand_in_codes = seed, stand_in, stand_in_codes
        if stand_in and device.torch_device.type != "cpu":
            raise ConfigError(f"device must be cpu with stand_in: the host waits, got {device.torch_device.type}")
        self._data_boxes = _data_boxes(view)
        self._statistics = Reducer(view, recorder, statistics=True)
        self._chains: dict[tuple[LayerUnit, bool], Chain] = {
            (view.unit_of(chain.tasks[0]), bool(view.program.backward[chain.tasks[0]])): chain
            for chain in chains_of(view, statistics=True)
        }
        self._dtype = DTYPES[self._graph.element_bytes]
        self._connect(overlap=overlap)
        self._run: dict[str, Callable[[int, LayerUnit], None]] = {
            "forward": self._forward,
            "activation_gradient": self._activation_gradient,
            "weight_gradient": self._weight_gradient,
            "update": self._update,
            "decompress": self._decompress,
        }
        self._read_order()
        self._ready: dict[int, dict[str, Tensor]] = {}  # gradients that wait for their updates, but for what is summed
        self._due: set[int] = set()  # layers that wait for their updates
        self._clear()
        if stand_in:
            wake_in_time()

    def _connect(self, *, overlap: bool) -> None:
        """Make what keeps tensors, and what brings and sends them."""
        view, codes = self._view, _codes(self._view, self._dtype, stand_in=self._stand_in_codes)
        readers, dtype, device = Consumers(view), self._dtype, self._device.torch_device
        self._arrivals = ReceivedRegions(view, self._transport, self._status, codes)
        self._activations = Activations(view, readers, self._arrivals, self._parts, dtype=dtype, device=device)
        self._gradients = ActivationGradients(view, readers, self._arrivals, dtype=dtype, device=device)
        self._departures = Sender(
            view, self._transport, activations=self._activations, gradients=self._gradients, arrivals=self._arrivals,
            codes=codes, encode=self._coded, overlap=overlap,
        )  # fmt: skip

    def _read_order(self) -> None:
        """What a rank runs one after another."""
        view = self._view
        self._last_gradient: dict[LayerUnit, int] = {}
        for task in view.tasks:
            if KINDS[self._program.kind[task]] in ("activation_gradient", "weight_gradient"):
                self._last_gradient[view.unit_of(task)] = task
        self._order = [
            (task, int(self._program.group[task]), self._work_of(task), view.unit_of(task)) for task in view.tasks
        ]
        """Tasks, the groups before which they may send, how they are run, and of which units they are: looked up once,
        since between two pieces of arithmetic a look costs ten times what it costs in a loop of its own."""

    def _work_of(self, task: int) -> Callable[[int, LayerUnit], None] | None:
        """How a task is run; sums, with what they encode and decode, are made when something asks for them."""
        kind = KINDS[self._program.kind[task]]
        return None if kind == "decompress" and self._program.consumer[task] < 0 else self._run.get(kind)

    def _clear(self) -> None:
        for part in (self._arrivals, self._activations, self._gradients, self._departures):
            part.clear()
        self._added: dict[int, tuple[int, dict[str, Tensor]]] = {}  # by layer, of how many sub-batches
        self._begun: set[LayerUnit] = set()
        self._seen: list[tuple[int, weakref.ref[Tensor]]] = []

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
        self._number, flush = number, self._departures.flush
        for task, group, run, unit in self._order:
            flush(group)
            if run is not None:
                self._status.at(task, RankState.COMPUTING)
                run(task, unit)
        flush(None)
        self._status.at(-1, RankState.WAITING)
        self._transport.end_iteration()
        self._device.synchronize()
        losses = {unit: part.loss for unit, part in self._parts.items() if part.loss is not None}
        for (layer, _), value in losses.items():
            self._check(layer, value)
        loss = sum(map(float, losses.values()))
        self._clear()
        return StepResult(loss=loss, measured=self._recorder.finish())

    @torch.no_grad()
    def settle(self) -> None:
        """Do the updates that would come with the next step's forward pass, as where sums have an order."""
        for task, _, run, unit in self._order:
            if run == self._update:
                run(task, unit)
        self._status.at(-1, RankState.WAITING)

    def set_overlap(self, overlap: bool) -> None:
        """From the next step on send beside arithmetic, or wait for each message; the same on all ranks."""
        self._departures.overlap = self._exchange.overlap = overlap

    def gradient_buffers(self) -> list[Tensor]:
        """Where gradients are summed over replicas, always there."""
        return self._exchange.buffers

    def message_buffers(self) -> list[Tensor]:
        """Where messages arrive, always there; none on GPUs."""
        return self._transport.buffers

    def close(self) -> None:
        """Settle, and end what runs beside; all ranks must call it together."""
        self.settle()
        self._transport.close()
        self._exchange.close()
        self._statistics.close()

    def _decompress(self, task: int, unit: LayerUnit) -> None:
        """Put the numbers of what arrived in place of their codes."""
        transfers = self._view.before(task)
        self._arrivals.wait_for(transfers)
        self._coded(task, lambda: self._arrivals.decode(transfers))

    def _coded(self, task: int, work: Callable[[], None]) -> None:
        """Encode or decode; where that is stood in for, wait as long."""
        self._timed(task, work, stand_in=self._stand_in_codes)

    def _timed(self, task: int, work: Callable[[], None], *, stand_in: bool | None = None) -> None:
        """Run arithmetic and record it; where it, or the coding that it is, is stood in for, wait as long."""
        self._status.at(task, RankState.COMPUTING)
        waits = self._stand_in if stand_in is None else stand_in
        self._recorder.timed(task, work, least_s=float(self._program.work_s[task]) if waits else 0.0)

    # forward

    def _forward(self, task: int, unit: LayerUnit) -> None:
        layer, part, again = unit[0], self._parts[unit], bool(self._program.again[task])
        dropped = self._program.segments[layer] >= 0 and not again
        self._activations.wait(unit, again=again)
        output: list[Tensor] = []
        targets = self._targets(unit)
        given = self._activations.take_held(unit) if again else self._samples(unit)

        def work() -> None:
            inputs = self._activations.inputs(unit, given, again=again)
            if dropped:
                self._activations.hold(unit, inputs)
            output.append(part.forward(inputs, self._parameters.get(layer, {}), self._step_of(targets, again)))

        self._timed(task, work)
        if part.reduces and not again:
            self._reduce(unit, backward=False)
            output[0] = part.finish_forward()
        self._activations.have_read(unit, again=again)
        self._activations.keep(unit, output[0], again=again)
        self._seen.append((layer, weakref.ref(output[0])))
        if part.loss is not None and self._device.torch_device.type == "cpu":  # on a GPU the host would wait for it
            self._check(layer, part.loss)
        if dropped:
            part.drop()

    def _step_of(self, targets: Tensor | None, again: bool) -> TrainingStep:
        return TrainingStep(self._number, self._seed, targets, again)

    def _samples(self, unit: LayerUnit) -> dict[int, Tensor]:
        """By slot, the region of the data of those samples that a part takes."""
        samples, boxes = self._parts[unit].samples, self._data_boxes.get(unit[0], {})
        return {
            slot: _joined([self._data.inputs(self._number, piece) for piece in samples.boxes(box) or [box]])
            for slot, box in boxes.items()
        }

    def _targets(self, unit: LayerUnit) -> Tensor | None:
        if not isinstance(self._graph.layers[unit[0]].operation, Loss):
            return None
        box = self._view.held(unit[0])
        spans = self._parts[unit].samples.spans(box.low[0], box.high[0])
        return _joined([self._data.targets(self._number, *span) for span in spans])

    def _reduce(self, unit: LayerUnit, *, backward: bool) -> None:
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

    def _begin(self, unit: LayerUnit) -> None:
        """Bring a layer's gradient together, and go back to what both of its gradients start from."""
        if unit in self._begun:
            return
        self._begun.add(unit)
        part = self._parts[unit]
        part.begin_backward(None if not self._graph.consumers[unit[0]] else self._gradients.take(unit))
        if part.reduces:
            self._reduce(unit, backward=True)
            part.finish_backward()

    def _expect_gradients(self, unit: LayerUnit) -> None:
        if unit not in self._begun:
            self._gradients.wait(unit)

    def _activation_gradient(self, task: int, unit: LayerUnit) -> None:
        self._expect_gradients(unit)

        def work() -> None:
            self._begin(unit)
            for slot, gradient in enumerate(self._parts[unit].activation_gradient()):
                self._gradients.add(unit, slot, gradient)

        self._timed(task, work)
        self._end_backward(task, unit)

    def _weight_gradient(self, task: int, unit: LayerUnit) -> None:
        self._expect_gradients(unit)
        layer, micro_batching = unit[0], self._program.micro_batching
        count, gradients = self._added.pop(layer, (0, {}))
        places = self._exchange.places(layer)

        def work() -> None:
            self._begin(unit)
            for name, gradient in self._parts[unit].weight_gradient(NOWHERE if count else places).items():
                if count == 0:
                    gradients[name] = gradient
                elif count > 1 or gradients[name] is places.get(name):  # ours: nobody else holds it
                    gradients[name] += gradient
                else:
                    gradients[name] = gradients[name] + gradient

        self._timed(task, work)
        self._end_backward(task, unit)
        if not micro_batching.update_each and count + 1 < micro_batching.of(layer):
            self._added[layer] = count + 1, gradients
        else:
            self._due.add(layer)
            if not self._exchange.submit(layer, gradients):
                self._ready[layer] = gradients

    def _end_backward(self, task: int, unit: LayerUnit) -> None:
        if self._last_gradient[unit] == task:
            self._parts[unit].release()

    def _update(self, task: int, unit: LayerUnit) -> None:
        layer = unit[0]
        if layer not in self._due:  # the first step's gradients are still to come, or ``settle`` has been here
            return
        self._due.remove(layer)
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
        if not math.isfinite(loss):
            raise FloatingPointError(self._fault(layer))

    def _fault(self, layer: int) -> str:
        """Say where a loss that is not finite comes from, as far as this rank can see."""
        names = [row.name for row in self._graph.layers]
        for index, kept in self._seen:
            output = kept()
            if output is not None and not bool(torch.isfinite(output).all()):
                return f"loss is not finite at step {self._number}: {names[index]} is the first layer with such outputs"
        return f"loss is not finite at step {self._number}, in layer {names[layer]}"
