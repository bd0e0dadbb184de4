"""A whole network on one device as sub-tasks: what each task of a decomposed program does.

The kernels are those of every other run (``executor.layers``).  Gradients of a tensor that several layers read are kept
apart and summed in the readers' order, so the result does not depend on which was first.
"""

from threading import Lock

import numpy as np
import torch
from torch import Tensor

from executor.data import Dataset, load_data
from executor.layers import PartLayer, TrainingStep, part_layer
from executor.runtime import DTYPES, Optimizer, OptimizerSpec, initial_parameters, make_optimizer, whole_box
from planner.graph import Edge
from planner.lowering import KINDS, Program
from planner.operations import Loss

__all__ = ["SubTaskNetwork"]


class SubTaskNetwork:
    """Parameters, parts and what is in between; ``run`` does one task of the program.

    Tasks may run in any order, and side by side, that keeps the program's dependencies and lets a layer's update wait
    for its activation gradient.

    Args:
        program: Decomposed, of one device.
        seed: Of parameters and data.
        optimizer: None: parameters stay as they are.
        device: Of torch.
        data: As for ``load_data``.
        keep: Whether all that a step makes lives until the next begins, as work that a device still has to do needs.
    """

    def __init__(
        self,
        program: Program,
        *,
        seed: int = 0,
        optimizer: OptimizerSpec | None = None,
        device: torch.device | str = "cpu",
        data: str = "generated",
        keep: bool = False,
    ) -> None:
        self._keep, self._kept = keep, list[Tensor]()
        self.program, self.graph, self._seed = program, program.graph, seed
        dtype = DTYPES[self.graph.element_bytes]
        self._data: Dataset = load_data(data, self.graph, seed=seed, dtype=dtype, device=device)
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
            "forward": self._forward, "epilogue_gradient": self._epilogue, "activation_gradient": self._activation,
            "weight_gradient": self._weight, "bias_gradient": _nothing, "update": self._update,
        }  # fmt: skip
        self._last = _last_tasks(program)
        self._locks = [Lock() for _ in self.graph.layers]
        self.gradients: dict[int, dict[str, Tensor]] = {}
        """By layer and parameter, of the last step."""
        self.begin(0)

    def begin(self, number: int) -> None:
        """Make ready for a step: its data, and nothing left from the one before."""
        shape = self.graph.layers[0].input_shapes[0].sizes
        self._number = number
        self._inputs = self._data.inputs(number, whole_box(shape))
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
        """Of the step that ``begin`` made ready."""
        return self._number

    @property
    def batch(self) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the step."""
        return self._inputs, self._targets

    @property
    def loss(self) -> float:
        """Of the step that ran last."""
        return sum(float(part.loss) for part in self.parts if part.loss is not None)

    def _forward(self, layer: int) -> None:
        row, part = self.graph.layers[layer], self.parts[layer]
        sources = (self._inputs if name == "input" else self._outputs[self.graph.index[name]] for name in row.inputs)
        targets = self._targets if isinstance(row.operation, Loss) else None
        output = part.forward(list(sources), self.parameters[layer], TrainingStep(self._number, self._seed, targets))
        self._outputs[layer] = output

    def _begin(self, layer: int) -> None:
        """Sum what the readers say, and go back to what the layer's gradients start from; once a step."""
        with self._locks[layer]:
            if layer in self._begun:
                return
            pieces = [self._edge_gradients.pop(edge) for edge in self.graph.consumers[layer]]
            total: Tensor | None = pieces[0] if pieces else None
            for piece in pieces[1:]:
                total = piece if total is None else total + piece
            if self._keep:
                self._kept += pieces
            self.parts[layer].begin_backward(total)
            self._begun.add(layer)

    def _epilogue(self, layer: int) -> None:
        self._begin(layer)

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
        """Forget what the layer saved once both its gradients are there."""
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


def _nothing(layer: int) -> None:
    """A bias's gradient is made with that of the weights."""


def _last_tasks(program: Program) -> dict[int, int]:
    """Gradients of each layer that read what it saved."""
    kinds = [KINDS.index(kind) for kind in ("activation_gradient", "weight_gradient")]
    layers = program.layer[np.isin(program.kind, kinds)]
    return {int(layer): int(count) for layer, count in zip(*np.unique(layers, return_counts=True), strict=True)}
