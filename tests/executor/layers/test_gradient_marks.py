"""Gradients of imported networks that cut some of them off, against the module's own."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from undivided import wide

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.layers.parameters import parameter_boxes
from planner.importing.graph_of import imported_graph
from planner.layouts.configurations import Configuration, space_of
from planner.operations.normalisation import BatchNorm
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

TYPE = torch.float64


class Detached(nn.Module):
    """A module whose result is read with and without its gradients, in some form."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.one, self.two = form, nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        if self.form == "detach":
            return self.two(y.detach()) + y
        if self.form == "product":
            return self.two(y * y.detach())
        if self.form == "in a chain":
            return self.two(y) * torch.tanh((y + 1).detach() * 2)
        if self.form == "weight":
            return functional.linear(y, self.two.weight.detach(), self.two.bias)
        if self.form == "computed weight":
            return functional.linear(y, self.two.weight * 0.5, self.two.bias)
        with torch.no_grad():
            z = torch.sigmoid(self.two(y))
        return y * z


FORMS = ["detach", "product", "in a chain", "weight", "computed weight", "no_grad"]


class Frozen(nn.Module):
    """A normalisation by fixed statistics between one by those of the batch and a widening convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.up = nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 6, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        self.two.eval()
        return self.up(self.two(self.one(x)))


def gradients_of(graph, state, data, gradient):
    """The output of a network and the gradients of its parameters, layer by layer."""
    parts, outputs, sums, found = [], {"input": data}, {}, {}
    for index, layer in enumerate(graph.layers):
        space = space_of(layer, Configuration(dict.fromkeys(layer.output.dims, 1), (0,)), 64)
        part, keys = part_layer(graph, index, space, 0, dtype=TYPE, device="cpu"), dict(layer.keys)
        part.constants = {key: each for key, each in state.items() if "running" in key}
        with torch.no_grad():
            outputs[layer.name] = part.forward(
                [outputs[source].clone() for source in layer.inputs],
                {each.name: state[keys[each.name]] for each in layer.parameters},
                TrainingStep(0, 0),
            )
        parts.append(part)
    sums[graph.layers[-1].name] = gradient
    for layer, part in zip(reversed(graph.layers), reversed(parts), strict=True):
        with torch.no_grad():
            part.begin_backward(sums[layer.name])
            for source, each in zip(layer.inputs, part.activation_gradient(), strict=True):
                sums[source] = sums.get(source, 0) + each
            for name, each in part.weight_gradient().items():
                key = dict(layer.keys)[name]
                found[key] = found.get(key, 0) + each
    return outputs[graph.layers[-1].name], found


def check_gradients(make, sizes):
    """Compare outputs and gradients of a network with those of its module."""
    torch.manual_seed(1)
    module, shape = make().double(), [int(size) for size in sizes.split("x")]
    for key, each in module.state_dict().items():
        if "running" in key:
            each.copy_(0.5 + torch.rand_like(each))
    graph = wide(imported_graph(trace_of(make(), input_specs([sizes])), name="net", loss="none").graph)
    data = torch.randn(shape, dtype=TYPE)
    state = {key: each.clone() for key, each in module.state_dict().items()}
    expected = module(data)
    gradient = torch.randn_like(expected)
    expected.backward(gradient)

    output, found = gradients_of(graph, state, data, gradient)

    torch.testing.assert_close(output, expected)
    for key, parameter in module.named_parameters():
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found.get(key, torch.zeros_like(parameter)), wanted)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_module(form):
    """What a module detaches, or computes without gradients, passes none on."""
    check_gradients(lambda: Detached(form), "4x6")


def test_fixed_statistics_are_used():
    """A normalisation that the module evaluates while it trains takes its statistics from the buffers."""
    check_gradients(Frozen, "4x4x5x5")


def test_programs_for_evaluation_keep_their_normalisations():
    """Where nothing is trained, normalisations are those of the module in training."""
    trace = replace(trace_of(nn.Sequential(nn.BatchNorm2d(4)).eval(), input_specs(["4x4x5x5"])), training=False)
    nodes = [replace(n, arguments={**n.arguments, "training": False}) for n in trace.nodes]
    graph = imported_graph(replace(trace, nodes=tuple(nodes)), name="net").graph

    assert isinstance(graph.layers[0].operation, BatchNorm)


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 4), (4, 2)])
def test_transposed_convolutions_hold_channels_of_their_second_axis(inputs, outputs):
    """Weights of a transposed convolution are split by the channels of its output."""
    module = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
    layer = imported_graph(trace_of(module, input_specs([f"2x{inputs}x4x4"])), name="net").graph.layers[0]
    space = space_of(layer, Configuration({"channel": 2}, (0, 1)), 2)

    assert parameter_boxes(layer, space, 1)["weight"].shape == (inputs, outputs // 2, 2, 2)


class Product(nn.Module):
    """A product of a tensor with a transposed view of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x)
        return y @ y.transpose(1, 2)


def test_products_of_a_tensor_with_itself_have_gradients_of_both():
    """Both views of the tensor pass their gradients on, for each of the samples that are computed apart."""
    torch.manual_seed(1)
    module, trace = Product().double(), trace_of(Product(), input_specs(["2x8x4"]))
    graph = wide(imported_graph(trace, name="net", loss="none").graph)
    data, gradient = torch.randn(2, 8, 4, dtype=TYPE), torch.randn(2, 8, 8, dtype=TYPE)
    (module(data) * gradient).sum().backward()
    given = gradient.reshape(graph.layers[1].output.sizes)

    _, found = gradients_of(graph, module.state_dict(), data.movedim(-1, 1), given)

    torch.testing.assert_close(found["one.weight"], module.one.weight.grad)


def test_views_of_one_tensor_are_read_by_their_own_slots():
    """Each operand of a product reads the slot whose map is that of its view."""
    layer = imported_graph(trace_of(Product(), input_specs(["2x8x4"])), name="net", loss="none").graph.layers[1]

    assert [each.input for each in layer.operation.computes[0].operands] == [0, 1]
