"""Accuracy of the trained network, undivided, on samples that it was not trained on."""

from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from executor.data.load import load_data
from executor.layers.base import PartLayer, TrainingStep
from executor.layers.factory import part_layer
from executor.runtime.boxes import Box, whole_box
from executor.training.session import Session
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.operations.dropout import Dropout
from planner.operations.linear import Linear
from planner.parallel.strategies import named_strategy, spaces_of

Parameters = dict[int, dict[str, Tensor]]


def whole_parameters(session: Session) -> Parameters | None:
    """Return the parameters by layer and name, put together from the shards of all ranks; all ranks call it together.

    Returns:
        The parameters on rank 0; elsewhere None.
    """
    mine = [(i, each.name, each.box, each.tensor.cpu()) for i in session.boxes for each in session.slices(i)]
    rows: list[list[tuple[int, str, Box, Tensor]]] | None = None
    if dist.get_rank() == 0:
        rows = [mine] * dist.get_world_size()
    dist.gather_object(mine, rows)
    if rows is None:
        return None
    whole: Parameters = {}
    for i, layer in enumerate(session.view.program.graph.layers):
        for parameter in layer.parameters:
            whole.setdefault(i, {})[parameter.name] = torch.empty(parameter.shape)
    for i, name, box, shard in (slice_ for row in rows for slice_ in row):
        whole[i][name][tuple(map(slice, box.low, box.high))] = shard
    for way, shared in session.view.program.graph.shared.items():
        whole[way.consumer][shared.borrowed] = whole[way.producer][shared.name]
    return whole


class HeldOut:
    """Samples held out, and the undivided network: the parts of a plan for one device, without dropout."""

    def __init__(self, graph: ComputationGraph, data: str) -> None:
        """Load the samples.

        Args:
            graph: The network, with all samples as its batch.
            data: File of the samples, as for ``load_data``.
        """
        layers = [_layer_without_dropout(layer) for layer in graph.layers]
        graph = ComputationGraph(graph.name, graph.batch, layers, element_bytes=graph.element_bytes)
        self._graph = graph
        spaces = spaces_of(graph, named_strategy("data", graph, 1), 1)
        self._parts: list[PartLayer] = [
            part_layer(graph, i, space, 0, dtype=torch.float32, device="cpu") for i, space in enumerate(spaces)
        ]
        source = load_data(data, graph, seed=0, dtype=torch.float32, device="cpu")
        self._inputs = {name: source.inputs(0, whole_box(shape.sizes), name) for name, shape in graph.data.items()}
        self._labels = source.targets(0, 0, graph.batch)

    @torch.no_grad()
    def accuracy(self, parameters: Parameters) -> float:
        """Return the share of the samples for whose class the network computes the highest probability."""
        step = TrainingStep(0, 0, self._labels)
        outputs = dict(self._inputs)
        for i, (layer, part) in enumerate(zip(self._graph.layers, self._parts, strict=True)):
            inputs = [outputs[source] for source in layer.inputs]
            outputs[layer.name] = part.forward(inputs, parameters.get(i, {}), step)
            part.release()
        classes = outputs[self._graph.layers[-1].name].flatten(1).argmax(1)
        return float((classes == self._labels).double().mean())


def _layer_without_dropout(layer: Layer) -> Layer:
    match layer.operation:
        case Linear() | Dropout() as operation if operation.dropout:
            return replace(layer, operation=replace(operation, dropout=0.0))
    return layer
