"""Times of parts of layers on this device, measured in the order in which a training step runs them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from executor.data.requirements import words_of
from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.layers.kernels.layout import channels_last, laid_out
from executor.probe.measured_rows import ProbeRow, TimeSamples
from executor.probe.parts_to_measure import ProbePart, added_slots, rounds_of
from executor.runtime.devices import ComputeDevice, Mark
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.optimizers import make_optimizer
from executor.runtime.parameter_init import initial_parameters
from groundwork.errors import ConfigError
from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph
from planner.graph.data_sources import is_data
from planner.layouts.regions import part_sizes
from planner.operations.loss import Loss

Timer = Callable[["_Case", str, Callable[[], Any]], Any]
"""Function that runs the work of a phase of a part, measures its time, and returns the result of the work."""
Watch = Callable[[int], None]
"""Function that is called with the number of the part that is run next."""
_ParameterStore = dict[object, tuple[dict[str, Tensor], Any]]
"""Parameters and optimizer of parts that share them, by layers and shapes."""
_CONVOLUTIONS = ("convolution", "partial convolution")
_STILL = OptimizerSpec(learning_rate=1e-12)
"""Optimizer with the same arithmetic whose parameters stay as they are however often a part is measured."""


def _unwatched(_part: int) -> None:
    pass


class LayerProbe:
    """Times of parts of a model's layers: forward, activation gradient, weight gradient and update, each by itself.

    Every ``sample`` runs each part once, so that samples can take turns with training iterations or with other
    ranks; the clock of a processor changes within seconds, and times that are compared should share it.  The parts
    run as in a step, forward over all layers, back, then the updates, one part of each layer at a time: caches then
    hold what they hold in training, where the same code in another order takes up to three times as long.  The work
    that both gradients start from (the activation's mask, the normalisation) is part of the one that runs first, and
    the sum of the gradients of a tensor's readers is part of the reader that adds, as in a step.  Inputs are random.

    Needs no process group.  To measure between iterations::

        probe = LayerProbe(graph, parts_of(graph, plans), device)
        probe.warm_up()
        for number in range(steps):
            worker.step(number)
            probe.sample()
        write_profile(probe.rows(), path, device=measure_device(device))
    """

    def __init__(
        self,
        graph: ComputationGraph,
        parts: Sequence[ProbePart],
        device: ComputeDevice,
        *,
        optimizer: OptimizerSpec = _STILL,
        watch: Watch = _unwatched,
    ) -> None:
        """Make the tensors of all parts.

        Args:
            graph: Model with its batch.
            parts: Parts to measure, from ``parts_of``.
            device: Device of this rank.
            optimizer: Optimizer whose update is measured.
            watch: Called with the number of a part before its tensors are made.

        Raises:
            ConfigError: The model's elements are not of 4 bytes, as those of profiles are.
        """
        if graph.element_bytes != 4:
            raise ConfigError(f"element_bytes must be 4 to be probed, got {graph.element_bytes}")
        self._graph, self._device, self._seconds = graph, device, list[list[float]]()
        store: _ParameterStore = {}
        self._cases: list[_Case] = []
        for number, part in enumerate(parts):
            watch(number)
            self._cases.append(_Case(graph, part, device, optimizer, store))
        self._keys = [(case, phase) for case in self._cases for phase in case.phases]
        numbers = {part: number for number, part in enumerate(parts)}
        self._rounds = [[numbers[part] for part in row] for row in rounds_of(parts)]

    @torch.no_grad()
    def warm_up(self, watch: Watch = _unwatched) -> None:
        """Run everything once, unmeasured."""
        self._run(lambda _case, _phase, work: work(), watch)

    @torch.no_grad()
    def sample(self, watch: Watch = _unwatched) -> None:
        """Time every phase of every part once more."""
        marks: dict[tuple[_Case, str], tuple[Mark, Mark]] = {}

        def timed(case: "_Case", phase: str, work: Callable[[], Any]) -> Any:
            begin = self._device.mark()
            result = work()
            marks[case, phase] = (begin, self._device.mark())
            return result

        self._device.synchronize()
        self._run(timed, watch)
        # Read at once: marks of a GPU are events, which hold memory, and their times are exact only near their origin.
        read = self._device.seconds
        self._seconds.append([max(read(marks[key][1]) - read(marks[key][0]), 1e-9) for key in self._keys])

    def _run(self, timer: Timer, watch: Watch) -> None:
        """Run every part once, round by round, each round as a training step runs its layers."""
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
        """Sum over all parts and phases of each sample, in seconds."""
        return TimeSamples(tuple(map(sum, self._seconds)))

    def rows(self) -> list[ProbeRow]:
        """Return one row a part and phase, with a time for every sample so far; at least one."""
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
    """Part with its tensors."""

    def __init__(
        self,
        graph: ComputationGraph,
        part: ProbePart,
        device: ComputeDevice,
        optimizer: OptimizerSpec,
        store: _ParameterStore,
    ) -> None:
        self.part, self._layer = part, graph.layers[part.index]
        make: Any = {"dtype": torch.float32, "device": device.torch_device}
        outputs, gradients = _layouts(graph)
        self._layer_part = part_layer(graph, part.index, part.space, part.part, **make)
        self._inputs = [
            _input(graph, source, box.shape, make, outputs[source])
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
        """Output, kept until the backward pass as in a step, so that memory is allocated in the same pattern."""
        if isinstance(self._layer.operation, Loss):
            self._step = TrainingStep(0, 0, _targets(self._layer.operation, self._inputs[0]))
        else:
            self._gradient = _random(held.shape, make, gradients[self._layer.name])
        if self._layer_part.completes:
            self._product_gradient = _random(self._layer_part.product.shape, make, last=False)
        boxes = self._layer_part.parameters
        shapes = (part.layers, *sorted((name, box.shape) for name, box in boxes.items()))
        if shapes not in store:  # parts that differ by samples or positions only share their parameters
            values = initial_parameters(graph, part.index, boxes, seed=0, **make)
            store[shapes] = values, make_optimizer(optimizer, list(values.values()))
        self._parameters, self._optimizer = store[shapes]
        self.phases = tuple(phase for phase in LAYER_PHASES if graph.has_phase(part.index, phase))

    def flop(self, phase: str) -> float:
        """Return the operations of the part in a phase where it is a matrix product, else 0."""
        sizes = part_sizes(self.part.space).items()
        work = self._layer.kernels(phase, {dim: rows[[self.part.part]] for dim, rows in sizes})
        return float(work.flop[0]) if work.matrix[0] else 0.0

    def forward(self, timer: Timer) -> None:
        """Run the forward pass; reductions over ranks, and the work after them, are not timed."""
        part = self._layer_part
        self._output = timer(self, "forward", lambda: part.forward(self._inputs, self._parameters, self._step))
        if part.completes:
            share = self._output.new_zeros(part.held.shape)
            self._output = part.complete_forward(share, self._parameters, self._step)
        if part.reduces:
            self._output = part.finish_forward()

    def backward(self, timer: Timer) -> object:
        """Run both gradients, where there are any; return the gradients that the layer before would read."""
        self._begun, made = False, None
        if "activation_gradient" in self.phases:
            made = timer(self, "activation_gradient", self._activation_gradient)
        if "weight_gradient" in self.phases:
            self._gradients = timer(self, "weight_gradient", self._weight_gradient)
        self._layer_part.release()
        self._output = None
        return made

    def update(self, timer: Timer) -> None:
        """Run the update, where there are parameters."""
        if "update" in self.phases:
            timer(self, "update", lambda: self._optimizer.step([self._gradients[name] for name in self._parameters]))
            self._gradients.clear()

    def _begin(self) -> None:
        """Do the work that both gradients start from, once a step."""
        if not self._begun:
            self._begun = True
            self._layer_part.begin_backward(self._gradient)
            if self._layer_part.reduces:
                self._layer_part.finish_backward()
            if self._layer_part.completes:
                self._layer_part.complete_backward(self._product_gradient)

    def _activation_gradient(self) -> list[Tensor]:
        self._begin()
        rows = zip(self._layer_part.activation_gradient(), self._adds, strict=True)
        return [gradient if other is None else other + gradient for gradient, other in rows]

    def _weight_gradient(self) -> dict[str, Tensor]:
        self._begin()
        return self._layer_part.weight_gradient()


def _input(graph: ComputationGraph, source: str, shape: Sequence[int], make: Mapping[str, Any], last: bool) -> Tensor:
    """Return a random input: words where a layer looks them up, values that are not negative behind a rectifier."""
    if is_data(source) and (words := words_of(graph, source)):
        return torch.randint(words, tuple(shape), device=make["device"]).to(make["dtype"])
    values = _random(shape, make, last)
    # Behind a ReLU half of the elements are zeros, with which comparisons in pooling are quicker.
    producer = None if is_data(source) else graph.layers[graph.index[source]].operation
    return values.relu_() if getattr(producer, "activation", None) == "relu" else values


def _random(shape: Sequence[int], make: Mapping[str, Any], last: bool) -> Tensor:
    """Return a random tensor in the layout in which neighbouring layers pass it on."""
    return laid_out(torch.randn(tuple(shape), **make), last and len(shape) == 4)


@lru_cache(maxsize=64)
def _layouts(graph: ComputationGraph) -> tuple[dict[str, bool], dict[str, bool]]:
    """Return whether the output of each layer, and the output's gradient, have their channels last."""
    outputs = dict.fromkeys(graph.data, False)
    gradients: dict[str, bool] = {}
    for layer in graph.layers:
        kind, shape = layer.operation.kind, layer.input_shapes[0].sizes
        if kind in _CONVOLUTIONS:  # a single channel is first and last at once; its output has the channels first
            outputs[layer.name] = channels_last(shape) and shape[1] > 1
        else:
            outputs[layer.name] = kind != "linear" and outputs[layer.inputs[0]]
        for source in layer.inputs:
            gradients[source] = outputs[layer.name] if kind in _CONVOLUTIONS else kind != "linear" and outputs[source]
    return outputs, gradients


def _targets(operation: Loss, inputs: Tensor) -> Tensor:
    """Return random targets of a loss: classes of softmax, values otherwise."""
    if operation.function == "mean_squared_error":
        return torch.randn_like(inputs)
    if operation.function == "softmax_per_position":
        return torch.randint(inputs.shape[1], (len(inputs), *inputs.shape[2:]), device=inputs.device)
    return torch.randint(inputs[0].numel(), (len(inputs),), device=inputs.device)
