"""Built-in networks written in PyTorch are imported as the very layers that the catalogue has."""

import pytest
from torch import nn

from planner.importing.graph_of import imported_graph
from planner.models.registry import load_model
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.pooling import GlobalPooling, Pooling
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

CONVOLUTIONS, NORMS = (nn.Conv1d, nn.Conv2d, nn.Conv3d), (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
POOLINGS = {
    "max": (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    "average": (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
}
MEANS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
ACTIVATIONS = {"relu": nn.ReLU, "leaky_relu": nn.LeakyReLU}


class Sum(nn.Module):
    """A sum of two tensors, and what is behind it."""

    def __init__(self, *behind):
        super().__init__()
        self.behind = nn.Sequential(*behind)

    def forward(self, one, other):
        return self.behind(one + other)


def module_of(layer):
    """A layer as the modules of which users write it."""
    operation, shape = layer.operation, layer.input_shapes[0]
    channels, rank = shape.size("channel"), len(shape.positions) - 1
    activation = getattr(operation, "activation", None)
    behind = [ACTIVATIONS[activation]()] if activation else []
    match operation:
        case Convolution(kernel=kernel, stride=stride, pad=pad, dilation=dilation, groups=groups, bias=bias):
            form = (kernel, stride, pad, dilation, groups, bias)
            norm = [NORMS[rank](operation.channels)] if operation.batch_norm else []
            return nn.Sequential(CONVOLUTIONS[rank](channels, operation.channels, *form), *norm, *behind)
        case Pooling(kernel=kernel, stride=stride, pad=pad, ceil_mode=up):
            return POOLINGS[operation.mode][rank](kernel, stride, pad, ceil_mode=up)
        case GlobalPooling():
            return MEANS[rank](1)
        case Linear():
            drop = [nn.Dropout(operation.dropout)] if operation.dropout else []
            features = shape.elements // shape.size("sample")
            return nn.Sequential(nn.Flatten(), nn.Linear(features, operation.channels), *behind, *drop)
        case Dropout():
            return nn.Dropout(operation.dropout)
        case Add():
            return Sum(*behind)
    raise TypeError(operation)


class Network(nn.Module):
    """A whole network up to its loss."""

    def __init__(self, graph):
        super().__init__()
        self.rows = [layer for layer in graph.layers if not isinstance(layer.operation, Loss)]
        self.parts = nn.ModuleList(map(module_of, self.rows))

    def forward(self, x):
        tensors = {"input": x}
        for layer, part in zip(self.rows, self.parts, strict=True):
            tensors[layer.name] = part(*(tensors[source] for source in layer.inputs))
        return tensors[self.rows[-1].name]


def told(graph):
    """All that prices, memory, tasks and runs of a network follow from, with layers by their numbers."""
    return [
        (each.operation, each.input_shapes, each.output, each.parameters, [graph.index.get(i) for i in each.inputs])
        for each in graph.layers
    ]


@pytest.mark.parametrize(
    "name", ["lenet5", "vgg16", "resnet-cifar:depth=14", "mnist-mlp", "conv1d", "cosmoflow:size=64"]
)
def test_layers_are_those_of_the_catalogue(name):
    graph = load_model(name, batch=4)
    sizes, loss = "x".join(map(str, graph.data["input"].sizes)), graph.layers[-1].operation.function
    found = imported_graph(trace_of(Network(graph), input_specs([sizes])), name=name, loss=loss).graph
    assert told(found) == told(graph)
