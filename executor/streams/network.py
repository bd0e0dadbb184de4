"""A whole network on one device as sub-tasks: the work of each task of a decomposed program.

The kernels are those of every other run (``executor.layers``).  Gradients of a tensor that several layers read are kept
apart and summed in the readers' order, so the result does not depend on which was computed first.
"""

from threading import Lock

import numpy as np
import torch
from torch import Tensor

from executor.data.dataset import Dataset
from executor.data.load import load_data
from executor.layers.base import PartLayer, TrainingStep
from executor.layers.factory import part_layer
from executor.runtime.boxes import whole_box
from executor.runtime.devices import torch_type
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.optimizers import Optimizer, make_optimizer
from executor.runtime.parameter_init import initial_parameters
from planner.graph.computation_graph import Edge
from planner.graph.data_sources import is_data
from planner.lowering.program import KINDS, Program
from planner.operations.loss import Loss


class SubTaskNetwork:
    """Parameters, parts and intermediate tensors of a network; ``run`` does one task of the program.

    Tasks may run in any order, and concurrently, as long as the program's dependencies are kept and a layer's update
    waits for its activation gradient.
    """

    def __init__(
        self,
        program: Program,
        *,
        seed: int = 0,
        optimizer: OptimizerSpec | None = None,
        device: torch.device | str = "cpu",
        keep: bool = False,
    ) -> None:
        """Make the parameters and the parts."""
        self._keep, self._kept = keep, list[Tensor]()
        self.program, self.graph, self._seed = program, program.graph, seed
        dtype = torch_type(program.types.activation)
        self._data: Dataset = load_data("generated", self.graph, seed=seed, dtype=dtype, device=device)
        self.parameters: list[dict[str, Tensor]] = []
        self.parts: list[PartLayer] = []
        self._optimizers: dict[int, Optimizer] = {}
        for i, layer in enumerate(self.graph.layers):
            boxes = {parameter.name: whole_box(parameter.shape) for parameter in layer.parameters}
            row = initial_parameters(self.graph, i, boxes, seed=seed, dtype=dtype, device=device)
            self.parameters.append(row)
            self.parts.append(part_layer(self.graph, i, program.spaces[i], 0, dtype=dtype, device=device))
            if optimizer is not None and row:
                self._optimizers[i] = make_optimizer(optimizer, list(row.values()))
        self._run = {
            "forward": self._forward,
            "epilogue_gradient": self._begin,
            "activation_gradient": self._activation,
            "weight_gradient": self._weight,
            "bias_gradient": lambda _: None,  # it is computed with that of the weights
            "update": self._update,
        }
        kinds = [KINDS.index(kind) for kind in ("activation_gradient", "weight_gradient")]
        layers = program.layer[np.isin(program.kind, kinds)]
        self._last = {
            int(layer): int(count) for layer, count in zip(*np.unique(layers, return_counts=True), strict=True)
        }
        self._locks = [Lock() for _ in self.graph.layers]
        self.gradients: dict[int, dict[str, Tensor]] = {}
        """Gradients of the last step, by layer and parameter."""
        self.begin(0)

    def begin(self, number: int) -> None:
        """Load the data of a step, and drop the tensors of the step before."""
        self._number = number
        self._inputs = {
            name: self._data.inputs(number, whole_box(shape.sizes), name) for name, shape in self.graph.data.items()
        }
        self._targets = self._data.targets(number, 0, self.graph.batch)
        self._outputs: dict[int, Tensor] = {}
        self._edge_gradients: dict[Edge, Tensor] = {}
        self._begun: set[int] = set()
        self._left = dict(self._last)
        self.gradients = {}
        self._kept.clear()
        if self._keep:
            for part in self.parts:
                part.release()

    @torch.no_grad()
    def run(self, task: int) -> None:
        """Do one task."""
        self._run[KINDS[self.program.kind[task]]](int(self.program.layer[task]))

    @property
    def number(self) -> int:
        """Number of the step that ``begin`` was called for."""
        return self._number

    @property
    def batch(self) -> tuple[Tensor, ...]:
        """All inputs of the step, and its targets."""
        return *self._inputs.values(), self._targets

    @property
    def loss(self) -> float:
        """Loss of the last step."""
        return sum(float(part.loss) for part in self.parts if part.loss is not None)

    def _forward(self, layer: int) -> None:
        row, part = self.graph.layers[layer], self.parts[layer]
        sources = (
            self._inputs[name] if is_data(name) else self._outputs[self.graph.index[name]] for name in row.inputs
        )
        targets = self._targets if isinstance(row.operation, Loss) else None
        output = part.forward(list(sources), self.parameters[layer], TrainingStep(self._number, self._seed, targets))
        self._outputs[layer] = output

    def _begin(self, layer: int) -> None:
        """Sum the gradients of the output's readers, and run back to where the layer's gradients start; once a step."""
        with self._locks[layer]:
            if layer in self._begun:
                return
            terms = [self._edge_gradients.pop(edge) for edge in self.graph.consumers[layer]]
            total: Tensor | None = terms[0] if terms else None
            for term in terms[1:]:
                total = term if total is None else total + term
            if self._keep:
                self._kept += terms
            self.parts[layer].begin_backward(total)
            self._begun.add(layer)

    def _activation(self, layer: int) -> None:
        self._begin(layer)
        gradients = self.parts[layer].activation_gradient()
        for edge in self.graph.producers[layer]:
            self._edge_gradients[edge] = gradients[edge.slot]
        self._ended(layer)

    def _weight(self, layer: int) -> None:
        self._begin(layer)
        self.gradients[layer] = self.parts[layer].weight_gradient()
        self._ended(layer)

    def _ended(self, layer: int) -> None:
        """Free the activations that the layer saved once both its gradients are computed."""
        with self._locks[layer]:
            self._left[layer] -= 1
            done = self._left[layer] == 0
        if done and not self._keep:
            self.parts[layer].release()
            self._outputs.pop(layer, None)

    def _update(self, layer: int) -> None:
        if layer in self._optimizers:
            gradients = self.gradients[layer]
            self._optimizers[layer].step([gradients[name] for name in self.parameters[layer]])
