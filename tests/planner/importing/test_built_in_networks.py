"""Built-in networks written in PyTorch are imported as the very layers that the catalogue has."""

import pytest
from torch import nn
from torch.nn import functional

from planner.importing.graph_of import imported_graph
from planner.models.registry import load_model
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import LocalResponseNorm
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
        case LocalResponseNorm(size=size, alpha=alpha, beta=beta, k=k):
            return nn.LocalResponseNorm(size, alpha, beta, k)
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
    "name",
    ["lenet5", "resnet-cifar:depth=14", "mnist-mlp", "conv1d", "cosmoflow:size=64", "caffenet", "vgg11-cifar"],
)
def test_layers_are_those_of_the_catalogue(name):
    graph = load_model(name, batch=4)
    sizes, loss = "x".join(map(str, graph.data["input"].sizes)), graph.layers[-1].operation.function
    found = imported_graph(trace_of(Network(graph), input_specs([sizes])), name=name, loss=loss).graph
    assert told(found) == told(graph)


class Quotient(nn.Module):
    """A convolution divided by a power that some function makes of it and of another convolution."""

    def __init__(self, divisor):
        super().__init__()
        self.one, self.other, self.divisor = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3), divisor

    def forward(self, x):
        return self.divisor(self.one(x), self.other(x))


def norms_of(module, sizes="2x3x6x6"):
    graph = imported_graph(trace_of(module, input_specs([sizes])), name="norms").graph
    return [each.operation for each in graph.layers if isinstance(each.operation, LocalResponseNorm)]


@pytest.mark.parametrize("sizes", ["2x8x9", "2x8x6x6", "2x8x4x4x4"])
def test_local_response_norms_of_any_rank_are_found(sizes):
    found = norms_of(nn.LocalResponseNorm(3, alpha=0.5, beta=0.25, k=2.0), sizes)
    assert found == [LocalResponseNorm(size=3, alpha=0.5, beta=0.25, k=2.0)]


def mean_of(x, size, at=(1, 1)):
    return functional.avg_pool3d(functional.pad(x.mul(x).unsqueeze(1), (0, 0, 0, 0, *at)), (size, 1, 1), 1).squeeze(1)


@pytest.mark.parametrize(
    ("divisor", "count"),
    [
        (lambda x, y: x.div(mean_of(x, 3).mul(0.1).add(1.0).pow(0.75)), 1),
        (lambda x, y: y.div(mean_of(x, 3).mul(0.1).add(1.0).pow(0.75)), 0),  # of other channels
        (lambda x, y: x.div(mean_of(x, 3, (2, 0)).mul(0.1).add(1.0).pow(0.75)), 0),  # of those before alone
        (lambda x, y: x.div(mean_of(x, 3).add(1.0).mul(0.1).pow(0.75)), 0),
        (lambda x, y: x.div(mean_of(x, 3).mul(0.1).add(y).pow(0.75)), 0),
        (
            lambda x, y: x.div(
                functional.avg_pool2d(functional.pad(x * x, (1, 1)), (1, 3), 1).mul(1.0).add(1.0).pow(2)
            ),
            0,
        ),
        (lambda x, y: functional.local_response_norm(x, 4), 0),
    ],
)
def test_only_local_response_norms_are_taken_for_them(divisor, count):
    assert len(norms_of(Quotient(divisor))) == count
