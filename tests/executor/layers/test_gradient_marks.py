"""Gradients of imported networks that cut some of them off, against the module's own."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from undivided import wide

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from planner.importing.graph_of import imported_graph
from planner.parallel.configurations import Configuration, space_of
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


def gradients_of(graph, state, data, gradient):
    """The output of a network and the gradients of its parameters, layer by layer."""
    parts, outputs, sums, found = [], {"input": data}, {}, {}
    for index, layer in enumerate(graph.layers):
        space = space_of(layer, Configuration(dict.fromkeys(layer.output.dims, 1), (0,)), 64)
        part, keys = part_layer(graph, index, space, 0, dtype=TYPE, device="cpu"), dict(layer.keys)
        with torch.no_grad():
            outputs[layer.name] = part.forward(
                [outputs[source].clone() for source in layer.inputs],
                {each.name: state[keys[each.name]] for each in layer.parameters}, TrainingStep(0, 0),
            )  # fmt: skip
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


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_those_of_the_module(form):
    """What a module detaches, or computes without gradients, passes none on."""
    torch.manual_seed(1)
    module = Detached(form).double()
    graph = wide(imported_graph(trace_of(Detached(form), input_specs(["4x6"])), name="net", loss="none").graph)
    data, gradient = torch.randn(4, 6, dtype=TYPE), torch.randn(4, 6, dtype=TYPE)
    expected = module(data)
    expected.backward(gradient)

    output, found = gradients_of(graph, module.state_dict(), data, gradient)

    torch.testing.assert_close(output, expected)
    for key, parameter in module.named_parameters():
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(found.get(key, torch.zeros_like(parameter)), wanted, msg=f"{form}: {key}")
