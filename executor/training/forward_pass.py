"""The forward pass of a rank: layers computed from received inputs, in the forward pass and when recomputed."""

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from executor.layers.base import TrainingStep
from executor.program.rank_parts import LayerUnit
from executor.program.rank_program import RankProgram
from executor.runtime.boxes import Box
from executor.runtime.samples import in_order
from executor.training.rank_resources import RankLayers, RankResources, TaskTimer
from executor.training.rank_tensors import RankTensors
from executor.training.statistics_sync import StatisticsSync
from planner.graph.data_sources import is_data
from planner.operations.loss import Loss


class LossCheck:
    """Checks the losses of a training step."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.begin(0)

    def begin(self, step: int) -> None:
        """Begin a training step."""
        self._step = step
        self._outputs: list[tuple[int, weakref.ref[Tensor]]] = []

    def watch(self, layer: int, output: Tensor) -> None:
        """Add the output of a layer to those searched for the cause, without keeping it in memory."""
        self._outputs.append((layer, weakref.ref(output)))

    def check(self, layer: int, loss: Tensor) -> None:
        """Check the loss that a layer computes.

        Raises:
            FloatingPointError: The loss is not finite; the message names the first layer seen to be at fault.
        """
        if not math.isfinite(loss):
            raise FloatingPointError(self._cause(layer))

    def _cause(self, layer: int) -> str:
        """Return a message with the origin of a loss that is not finite, as far as this rank can see."""
        for index, watched in self._outputs:
            output = watched()
            if output is not None and not bool(torch.isfinite(output).all()):
                name = self._names[index]
                return f"loss is not finite at step {self._step}: {name} is the first layer with such outputs"
        return f"loss is not finite at step {self._step}, in layer {self._names[layer]}"


class ForwardPass:
    """Runs the forward tasks of a rank."""

    def __init__(
        self,
        resources: RankResources,
        layers: RankLayers,
        tensors: RankTensors,
        *,
        timer: TaskTimer,
        statistics: StatisticsSync,
        loss_check: LossCheck,
        seed: int,
    ) -> None:
        self._view, self._device = resources.view, resources.device
        self._layers, self._tensors = layers, tensors
        self._timer, self._statistics, self._loss_check = timer, statistics, loss_check
        self._redistributor = resources.redistributor
        self._data_boxes = _data_boxes(resources.view)
        self._seed, self._step = seed, 0
        graph = resources.view.program.graph
        self._goes_back = {
            i
            for i in range(len(graph.layers))
            if any(graph.has_phase(i, phase) for phase in ("activation_gradient", "weight_gradient"))
        }
        """Layers with a backward pass; the others need nothing that they saved."""
        for unit, part in layers.parts.items():
            part.forgets = bool(tensors.consumers.gathered_again[unit])

    def begin(self, step: int) -> None:
        """Begin a training step."""
        self._step = step

    def run(self, task: int, unit: LayerUnit) -> None:
        """Compute the output of a unit, for the first time or again."""
        layer, part, program = unit[0], self._layers.parts[unit], self._view.program
        activations, again = self._tensors.activations, bool(program.recomputed[task])
        recomputed_later = program.segments[layer] >= 0 and not again
        activations.wait(unit, again=again)
        parameters = self._tensors.borrowed.parameters(layer)
        outputs: list[Tensor] = []
        step = TrainingStep(self._step, self._seed, self._targets(unit), again)
        given = activations.take_held(unit) if again else self._samples(unit)

        def work() -> None:
            inputs = activations.inputs(unit, given, again=again)
            if recomputed_later:
                activations.hold(unit, inputs)
            outputs.append(part.forward(inputs, parameters, step))
            if part.forgets:
                part.forget({slot: inputs[slot] for slot in self._tensors.consumers.gathered_again[unit]})

        self._timer.arithmetic(task, work)
        if part.completes:
            sums = self._redistributor.complete(unit, outputs[0], backward=False, again=again)
            outputs[0] = part.complete_forward(sums, parameters, step)
        if part.reduces and not again:
            self._statistics.share(unit, part, backward=False)
            outputs[0] = part.finish_forward()
        activations.have_read(unit, again=again)
        activations.keep(unit, outputs[0], again=again)
        self._loss_check.watch(layer, outputs[0])
        if part.loss is not None and not self._device.runs_ahead:  # where it does, it would wait
            self._loss_check.check(layer, part.loss)
        if recomputed_later:
            part.drop()
        elif layer not in self._goes_back:
            part.release()

    def _samples(self, unit: LayerUnit) -> dict[int, Tensor]:
        """Return the regions of the training data that a unit reads, by slot."""
        part, boxes = self._layers.parts[unit], self._data_boxes.get(unit[0], {})
        sources, data = self._view.program.graph.layers[unit[0]].inputs, self._layers.data
        order = part.order and replace(part.order, dim=2)  # data has no other positions
        return {
            slot: _concatenated(
                [
                    in_order(
                        partial(data.inputs, self._step, name=sources[slot]), region, order if box.low[2:] else None
                    )
                    for region in part.samples.boxes(box) or [box]
                ]
            )
            for slot, box in boxes.items()
        }

    def _targets(self, unit: LayerUnit) -> Tensor | None:
        """Return the targets of the samples, and positions, of a loss layer's part; None for other layers."""
        operation = self._view.program.graph.layers[unit[0]].operation
        if not isinstance(operation, Loss):
            return None
        box = self._view.parts.held(unit[0])
        spans = self._layers.parts[unit].samples.spans(box.low[0], box.high[0])
        targets = _concatenated([self._layers.data.targets(self._step, *span) for span in spans])
        order = self._layers.parts[unit].order
        if order is not None:
            return targets[:, order.places[box.low[order.dim] : box.high[order.dim]]]
        if operation.function == "softmax_per_position":
            return targets[(slice(None), *map(slice, box.low[2:], box.high[2:]))]
        return targets


def _data_boxes(view: RankProgram) -> dict[int, dict[int, Box]]:
    """Return the region of the mini-batch, or of each micro-batch, that the rank's parts read, by layer and slot."""
    boxes: dict[int, dict[int, Box]] = {}
    for i, layer in enumerate(view.program.graph.layers):
        for slot, source in enumerate(layer.inputs):
            if is_data(source) and view.parts.index[i] >= 0:
                boxes.setdefault(i, {})[slot] = view.parts.needed(i, slot)
    return boxes


def _concatenated(regions: list[Tensor]) -> Tensor:
    return torch.cat(regions) if len(regions) > 1 else regions[0]
