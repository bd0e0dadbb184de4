"""The backward pass of a rank: gradients of activations and of weights."""

import torch
from torch import Tensor

from executor.layers.base import NO_BUFFERS
from executor.program.rank_parts import LayerUnit
from executor.runtime.devices import torch_type
from executor.training.parameter_updates import ParameterUpdates
from executor.training.rank_resources import RankLayers, RankResources, TaskTimer
from executor.training.rank_tensors import RankTensors
from executor.training.statistics_sync import StatisticsSync
from planner.lowering.program import KINDS

_GRADIENT_KINDS = ("activation_gradient", "weight_gradient")


class BackwardPass:
    """Runs the gradient tasks of a rank.

    A unit has up to two of them, in either order: the first of the two computes the gradient that both start from.
    """

    def __init__(
        self,
        resources: RankResources,
        layers: RankLayers,
        tensors: RankTensors,
        *,
        timer: TaskTimer,
        statistics: StatisticsSync,
        updates: ParameterUpdates,
    ) -> None:
        self._view, self._gradient_sync = resources.view, resources.gradient_sync
        self._redistributor = resources.redistributor
        self._layers, self._tensors = layers, tensors
        self._timer, self._statistics, self._updates = timer, statistics, updates
        program, types = resources.view.program, resources.view.program.types
        self._sum_type = torch.promote_types(torch_type(types.accumulation), torch_type(types.activation))
        """Type in which gradients of several micro-batches are added up."""
        self._last_gradient: dict[LayerUnit, int] = {
            resources.view.parts.unit_of(task): task
            for task in resources.view.tasks
            if KINDS[program.kind[task]] in _GRADIENT_KINDS
        }
        """The last gradient task of each unit, after which the unit's saved tensors are released."""
        behind_gathers = (program.backward & program.recomputed)[program.after]
        self._needs_inputs = set(program.waiting[behind_gathers].tolist())
        """Tasks that read inputs which are gathered again."""
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._begun: set[LayerUnit] = set()
        self._remembered: set[LayerUnit] = set()
        self._accumulated: dict[int, tuple[int, dict[str, Tensor]]] = {}
        """Gradients of the weights summed so far, with the number of their micro-batches, by layer."""

    def activation_gradient(self, task: int, unit: LayerUnit) -> None:
        """Compute the gradients of a unit's inputs."""
        self._wait(task, unit)

        def work() -> None:
            self._begin(unit)
            for slot, gradient in enumerate(self._layers.parts[unit].activation_gradient()):
                self._tensors.gradients.add(unit, slot, gradient)

        self._timer.arithmetic(task, work)
        self._end(task, unit)

    def weight_gradient(self, task: int, unit: LayerUnit) -> None:
        """Compute the gradients of a unit's weights, and hand them on: each time, or once those of all are added up."""
        self._wait(task, unit)
        layer, micro_batching = unit[0], self._view.program.micro_batching
        count, gradients = self._accumulated.pop(layer, (0, {}))
        buffers = self._gradient_sync.buffers_of(layer)

        def work() -> None:
            self._begin(unit)
            out = NO_BUFFERS if count else buffers
            for name, gradient in self._layers.parts[unit].weight_gradient(out).items():
                if count == 0:
                    gradients[name] = gradient
                elif count > 1 or gradients[name] is buffers.get(name):
                    gradients[name] += gradient  # a tensor of this class or a buffer: nothing else refers to it
                else:
                    gradients[name] = gradients[name].to(self._sum_type) + gradient

        self._timer.arithmetic(task, work)
        self._end(task, unit)
        if not self._sums_each(layer) and count + 1 < micro_batching.of(layer):
            self._accumulated[layer] = count + 1, gradients
        else:
            for complete, summed in self._tensors.borrowed.complete(layer, gradients):
                self._updates.submit(complete, summed)

    def _sums_each(self, layer: int) -> bool:
        """Return whether gradients of every micro-batch are handed on: the layer's, or those of what it borrows."""
        each = self._gradient_sync.sums_each
        owners = self._tensors.borrowed.owners(layer)
        return self._view.program.micro_batching.update_each or any(map(each, (layer, *owners)))

    def _wait(self, task: int, unit: LayerUnit) -> None:
        """Wait for what other ranks send of the output's gradient, and for inputs that the task needs again."""
        if unit not in self._begun:
            self._tensors.gradients.wait(unit)
        if task in self._needs_inputs and unit not in self._remembered:
            self._remembered.add(unit)
            self._layers.parts[unit].remember(self._tensors.activations.again(unit))

    def _begin(self, unit: LayerUnit) -> None:
        """Sum up the gradient of a unit's output, and compute from it what both gradients of the unit start from."""
        if unit in self._begun:
            return
        self._begun.add(unit)
        part, graph = self._layers.parts[unit], self._view.program.graph
        read = graph.consumers[unit[0]]
        part.begin_backward(self._tensors.gradients.take(unit, part.output_order) if read else None)
        if part.reduces:
            self._statistics.share(unit, part, backward=True)
            part.finish_backward()
        if part.completes:
            part.complete_backward(self._redistributor.complete(unit, part.share_gradient, backward=True))

    def _end(self, task: int, unit: LayerUnit) -> None:
        if self._last_gradient[unit] == task:
            self._layers.parts[unit].release()
