"""Times of parts of layers on this device, taken as a training step takes them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from executor.layers import TrainingStep, parameter_box, part_layer
from executor.layers.kernels import channels_last, laid_out
from executor.probe.measured_rows import ProbeRow, TimeSamples
from executor.probe.parts_to_measure import ProbePart, added_slots, rounds_of
from executor.runtime import ComputeDevice, Mark, OptimizerSpec, initial_parameters, make_optimizer
from hwprofiles import ConfigError
from planner.graph import LAYER_PHASES, ComputationGraph
from planner.operations import Loss

__all__ = ["LayerProbe"]

Timer = Callable[["_Case", str, Callable[[], Any]], Any]
"""Runs the work of a phase of a part and takes its time; returns what it returns."""
Watch = Callable[[int], None]
_CONVOLUTIONS = ("convolution", "partial convolution")
_STILL = OptimizerSpec(learning_rate=1e-12)
"""Same arithmetic, but parameters stay where they are however often a part is measured."""


def _unwatched(_part: int) -> None:
    pass


class LayerProbe:
    """Measures parts of a model's layers: forward, activation gradient, weight gradient and update, each by itself.

    Every ``sample`` runs each part once, so that samples can take turns with training iterations or with other
    ranks; the clock of a processor changes within seconds, and what is set side by side should share it.  The parts
    run as in a step, forward over all layers, back, then the updates, one part of each layer at a time: caches then
    hold what they hold in training, where the same code in another order takes up to three times as long.  What both
    gradients start from (the activation's mask, the normalisation) is charged to the one that runs first, and the sum
    of the gradients of a tensor's readers to the reader that adds, as in a step.  Inputs are random.

    Needs no process group.  To measure between iterations::

        probe = LayerProbe(graph, parts_of(graph, plans), device)
        probe.warm_up()
        for number in range(steps):
            worker.step(number)
            probe.sample()
        write_profile(probe.rows(), path, device=measure_device(device))

    Args:
        graph: The model with its batch.
        parts: What to measure, from ``parts_of``.
        device: Where.
        reduced: Whether batch normalisation takes its statistics over the whole batch; their sums are not timed.
        optimizer: Whose update is measured.
        watch: Called with the number of a part before its tensors are made.

    Raises:
        ConfigError: The model's numbers are not of 4 bytes, as those of profiles are.
    """

    def __init__(
        self,
        graph: ComputationGraph,
        parts: Sequence[ProbePart],
        device: ComputeDevice,
        *,
        reduced: bool = False,
        optimizer: OptimizerSpec = _STILL,
        watch: Watch = _unwatched,
    ) -> None:
        if graph.element_bytes != 4:
            raise ConfigError(f"element_bytes must be 4 to be probed, got {graph.element_bytes}")
        self._graph, self._device, self._seconds = graph, device, list[list[float]]()
        store: dict[object, tuple[dict[str, Tensor], Any]] = {}
        self._cases: list[_Case] = []
        for number, part in enumerate(parts):
            watch(number)
            self._cases.append(_Case(graph, part, device, reduced, optimizer, store))
        self._keys = [(case, phase) for case in self._cases for phase in case.phases]
        numbers = {part: number for number, part in enumerate(parts)}
        self._rounds = [[numbers[part] for part in row] for row in rounds_of(parts)]

    @torch.no_grad()
    def warm_up(self, watch: Watch = _unwatched) -> None:
        """Run everything once, unmeasured.

        Args:
            watch: As for ``sample``.
        """
        self._run(lambda _case, _phase, work: work(), watch)

    @torch.no_grad()
    def sample(self, watch: Watch = _unwatched) -> None:
        """Time every phase of every part once more.

        Args:
            watch: Called with the number of a part before each of its phases.
        """
        marks: dict[tuple[_Case, str], tuple[Mark, Mark]] = {}

        def timed(case: "_Case", phase: str, work: Callable[[], Any]) -> Any:
            begin = self._device.mark()
            result = work()
            marks[case, phase] = (begin, self._device.mark())
            return result

        self._device.synchronize()
        self._run(timed, watch)
        # At once: marks of a GPU are events, which hold memory, and only near their origin are their times exact.
        read = self._device.seconds
        self._seconds.append([max(read(marks[key][1]) - read(marks[key][0]), 1e-9) for key in self._keys])

    def _run(self, timer: Timer, watch: Watch) -> None:
        for numbers in self._rounds:
            for number in numbers:
                watch(number)
                self._cases[number].forward(timer)
            made: object = None
            for number in reversed(numbers):
                watch(number)
                made = self._cases[number].backward(timer)
            del made
            for number in reversed(numbers):
                watch(number)
                self._cases[number].update(timer)
        self._device.synchronize()

    @property
    def sums_s(self) -> TimeSamples:
        """Of each sample, the sum over all parts and phases."""
        return TimeSamples(tuple(map(sum, self._seconds)))

    def rows(self) -> list[ProbeRow]:
        """One row a part and phase, with a time for every sample so far; at least one."""
        return [
            ProbeRow(
                model=self._graph.name,
                layers=case.part.layers,
                sizes=case.part.sizes,
                phase=phase,
                flop=case.flop(phase),
                samples=TimeSamples(column),
            )
            for (case, phase), column in zip(self._keys, zip(*self._seconds, strict=True), strict=True)
        ]


class _Case:
    """One part with its tensors."""

    def __init__(
        self,
        graph: ComputationGraph,
        part: ProbePart,
        device: ComputeDevice,
        reduced: bool,
        optimizer: OptimizerSpec,
        store: dict[object, tuple[dict[str, Tensor], Any]],
    ) -> None:
        self.part, self._layer = part, graph.layers[part.index]
        make: Any = {"dtype": torch.float32, "device": device.torch_device}
        outputs, gradients = _layouts(graph)
        self._layer_part = part_layer(graph, part.index, part.space, part.part, reduced=reduced, **make)
        self._inputs = [
            _random(box.shape, make, outputs[source]).relu_()
            if _rectified(graph, source)
            else _random(box.shape, make, outputs[source])
            for source, box in zip(self._layer.inputs, self._layer_part.inputs, strict=True)
        ]
        self._adds = [
            _random(box.shape, make, gradients[source]) if adds else None
            for source, box, adds in zip(
                self._layer.inputs, self._layer_part.inputs, added_slots(graph, part.index), strict=True
            )
        ]
        held = self._layer_part.held
        self._step, self._gradient = TrainingStep(0, 0), None
        self._begun, self._gradients = False, dict[str, Tensor]()
        self._output: Tensor | None = None
        """Kept until the way back, as in a step, so that memory is given out as there."""
        if isinstance(self._layer.operation, Loss):
            self._step = TrainingStep(0, 0, _targets(self._layer.operation, self._inputs[0]))
        else:
            self._gradient = _random(held.shape, make, gradients[self._layer.name])
        boxes = {row.name: parameter_box(row, held, self._layer.output) for row in self._layer.parameters}
        shapes = (part.layers, *sorted((name, box.shape) for name, box in boxes.items()))
        if shapes not in store:  # parts that differ by samples or positions only share their parameters
            values = initial_parameters(graph, part.index, boxes, seed=0, **make)
            store[shapes] = values, make_optimizer(optimizer, list(values.values()))
        self._parameters, self._optimizer = store[shapes]
        self.phases = tuple(phase for phase in LAYER_PHASES if graph.has_phase(part.index, phase))

    def flop(self, phase: str) -> float:
        """FLOP of the part in a phase, where they are those of a matrix product."""
        sizes = zip(self._layer.output.dims, self.part.sizes, strict=True)
        work = self._layer.kernels(phase, {dim: np.array([float(size)]) for dim, size in sizes})
        return float(work.flop[0]) if work.matrix[0] else 0.0

    def forward(self, timer: Timer) -> None:
        """The forward pass; sums over ranks belong to no task of arithmetic, nor does what follows them."""
        part = self._layer_part
        self._output = timer(self, "forward", lambda: part.forward(self._inputs, self._parameters, self._step))
        if part.reduces:
            self._output = part.finish_forward()

    def backward(self, timer: Timer) -> object:
        """Both gradients, where there are any; returns what the layer before would read."""
        self._begun, made = False, None
        if "activation_gradient" in self.phases:
            made = timer(self, "activation_gradient", self._activation_gradient)
        if "weight_gradient" in self.phases:
            self._gradients = timer(self, "weight_gradient", self._weight_gradient)
        self._layer_part.release()
        self._output = None
        return made

    def update(self, timer: Timer) -> None:
        """The update, where there are parameters."""
        if "update" in self.phases:
            timer(self, "update", lambda: self._optimizer.step([self._gradients[name] for name in self._parameters]))
            self._gradients.clear()

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._layer_part.begin_backward(self._gradient)
            if self._layer_part.reduces:
                self._layer_part.finish_backward()

    def _activation_gradient(self) -> list[Tensor]:
        self._begin()
        rows = zip(self._layer_part.activation_gradient(), self._adds, strict=True)
        return [gradient if other is None else other + gradient for gradient, other in rows]

    def _weight_gradient(self) -> dict[str, Tensor]:
        self._begin()
        return self._layer_part.weight_gradient()


def _random(shape: Sequence[int], make: Mapping[str, Any], last: bool) -> Tensor:
    """Random numbers in the layout in which neighbouring layers hand such a tensor on."""
    return laid_out(torch.randn(tuple(shape), **make), last and len(shape) == 4)


@lru_cache(maxsize=64)
def _layouts(graph: ComputationGraph) -> tuple[dict[str, bool], dict[str, bool]]:
    """By layer, whether its output, and the output's gradient, come with the channels last."""
    outputs: dict[str, bool] = {"input": False}
    gradients: dict[str, bool] = {}
    for layer in graph.layers:
        kind, shape = layer.operation.kind, layer.input_shapes[0].sizes
        if kind in _CONVOLUTIONS:  # one channel is first and last at once, and makes an output with the channels first
            outputs[layer.name] = channels_last(shape) and shape[1] > 1
        else:
            outputs[layer.name] = kind != "linear" and outputs[layer.inputs[0]]
        for source in layer.inputs:
            gradients[source] = outputs[layer.name] if kind in _CONVOLUTIONS else kind != "linear" and outputs[source]
    return outputs, gradients


def _rectified(graph: ComputationGraph, source: str) -> bool:
    """Whether an input holds zeros for half its numbers: comparisons in pooling are then quicker."""
    return source != "input" and getattr(graph.layers[graph.index[source]].operation, "activation", None) == "relu"


def _targets(operation: Loss, inputs: Tensor) -> Tensor:
    if operation.function != "softmax":
        return torch.randn_like(inputs)
    return torch.randint(inputs[0].numel(), (len(inputs),), device=inputs.device)
