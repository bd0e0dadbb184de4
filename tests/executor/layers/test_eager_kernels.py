"""Kernels of layers as PyTorch runs them one call at a time, against the calls that it dispatches."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from planner.derivatives.eager_kernels import eager_bytes, kernel_count
from planner.importing.graph_of import imported_graph
from planner.models.registry import load_model
from planner.operations.rearrangement import VIEWS
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

_FREE = (
    "view",
    "detach",
    "t",
    "transpose",
    "expand",
    "_unsafe_view",
    "reshape",
    "slice",
    "split",
    "unsqueeze",
    "alias",
)


class _Dispatched(TorchDispatchMode):
    """Bytes that each call reads and writes, views apart."""

    def __init__(self):
        super().__init__()
        self.moved = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.name.removeprefix("aten::") not in _FREE:
            tensors = [each for each in (*args, result) if isinstance(each, torch.Tensor) and each.ndim]
            self.moved.append(sum(each.numel() * each.element_size() for each in tensors))
        return result


class _Gelu(nn.Module):
    """GELU by its approximation, as GPT-2's published code computes it."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class _Gated(nn.Module):
    def forward(self, x, y):
        return torch.nn.functional.silu(x) * y


def _graph(module, count):
    """A network of a product for each input of a chain, the chain, and nothing else."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.products = nn.ModuleList(nn.Linear(32, 32) for _ in range(count))
            self.chain = module

        def forward(self, x):
            return self.chain(*(product(x) for product in self.products))

    return imported_graph(trace_of(Network(), input_specs(["2x8x32"])), name="chain", loss="none").graph


def _bytes(graph, layers, phase):
    """Kernels of layers in one phase, with those that add gradients of what several of them read."""
    rows = []
    for i in layers:
        layer = graph.layers[i]
        part = {d: np.array([float(s)]) for d, s in zip(layer.output.dims, layer.output.sizes, strict=True)}
        own = eager_bytes(layer, phase, part, 4)
        rows += [float(each[0]) for each in own]
    return rows


@pytest.mark.parametrize(("module", "count"), [(_Gelu, 1), (_Gated, 2)])
def test_bytes_of_activations_are_those_of_the_dispatched_calls(module, count):
    graph = _graph(module(), count)
    layers = [i for i, layer in enumerate(graph.layers) if layer.operation.kind == "elementwise"]
    sizes = graph.layers[layers[0]].output.sizes
    inputs = [torch.randn(sizes, requires_grad=True) for _ in range(count)]
    with _Dispatched() as forward:
        y = module()(*inputs)
    gradient = torch.randn(sizes)
    with _Dispatched() as backward:
        y.backward(gradient)
    ours = _bytes(graph, layers, "forward")
    assert sorted(ours) == sorted(forward.moved)
    element = 4 * y.numel()
    added = [3 * element] * (len(layers) - 1)  # both layers of GELU read the same tensor
    assert sum(_bytes(graph, layers, "activation_gradient") + added) == pytest.approx(sum(backward.moved), abs=element)
    counts = [kernel_count(graph.layers[i], "forward", fused=False) for i in layers]
    assert sum(counts) == len(forward.moved)
    assert [kernel_count(graph.layers[i], "forward", fused=True) for i in layers] == [1] * len(layers)


def test_loss_is_computed_in_float32():
    scores = torch.randn(64, 128, dtype=torch.bfloat16, requires_grad=True)
    words = torch.randint(128, (64,))
    with _Dispatched() as forward:
        loss = torch.nn.functional.cross_entropy(scores.float(), words)
    with _Dispatched() as backward:
        loss.backward()
    graph = load_model("gpt2:layers=1,hidden=64,heads=1,sequence=32,words=128", batch=2, element_bytes=2)
    layer = graph.layers[-1]
    part = {d: np.array([float(s)]) for d, s in zip(layer.output.dims, layer.output.sizes, strict=True)}
    for phase, dispatched in (("forward", forward), ("activation_gradient", backward)):
        small = 4 * len(words) * 8
        ours = sum(float(each[0]) for each in eager_bytes(layer, phase, part, 2))
        theirs = sum(moved for moved in dispatched.moved)
        assert ours == pytest.approx(theirs, abs=2 * 4 * scores.numel() + small), phase


@pytest.mark.parametrize("model", ["gpt2", "llama-1b", "bert-base"])
def test_views_launch_nothing_and_products_one_kernel(model):
    graph = load_model(model, batch=1)
    for layer in graph.layers:
        count = kernel_count(layer, "forward", fused=True)
        assert count == (0 if layer.operation.kind in VIEWS else 1), layer.name
