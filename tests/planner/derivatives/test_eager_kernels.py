"""Kernels of layers as PyTorch runs them one call at a time, against the calls that it dispatches."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.fused_kernels import elementwise_kernels
from hwprofiles.compute.fused_times import fused_s
from planner.cost.compute_time import ComputeTimes
from planner.cost.software import software_of
from planner.derivatives.eager_kernels import (
    eager_bytes,
    gradient_accesses,
    gradients_added_in,
    kernel_count,
    launched_kernels,
)
from planner.importing.graph_of import imported_graph
from planner.layouts.configurations import Configuration, space_of
from planner.models.registry import load_model
from planner.operations.base import Part
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


_FEW = ("index", "index_put_", "_index_put_impl_")
"""Calls that read or write few elements of the tensors that they are given."""


class _Dispatched(TorchDispatchMode):
    """Bytes that each call reads and writes; views, and calls that touch few elements, apart."""

    def __init__(self):
        super().__init__()
        self.moved, self.names = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.append(func._schema.name.removeprefix("aten::"))
        if self.names[-1] not in (*_FREE, *_FEW):
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
        own = eager_bytes(layer, phase, part, 4, fused=False)
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
    layer = software_of("pytorch").graph_of(graph).layers[-1]
    part = {d: np.array([float(s)]) for d, s in zip(layer.output.dims, layer.output.sizes, strict=True)}
    for phase, dispatched in (("forward", forward), ("activation_gradient", backward)):
        small = 4 * len(words) * 8
        ours = sum(float(each[0]) for each in eager_bytes(layer, phase, part, 2, fused=False))
        theirs = sum(moved for moved in dispatched.moved)
        assert ours == pytest.approx(theirs, abs=2 * 4 * scores.numel() + small), phase


class _VocabularyParallel(torch.autograd.Function):
    """Cross-entropy of words that may be divided over devices, on one device, by the calls of Megatron-LM."""

    @staticmethod
    def forward(context, scores, words):
        scores = scores - scores.amax(-1, keepdim=True)
        rows = torch.arange(len(words))
        own = scores[rows, words]
        sums = scores.exp_().sum(-1)
        context.save_for_backward(scores.div_(sums.unsqueeze(-1)), words)
        return torch.log(sums) - own

    @staticmethod
    def backward(context, gradient):
        softmax, words = context.saved_tensors
        softmax.view(-1)[words + softmax.shape[1] * torch.arange(len(words))] -= 1.0
        return softmax.mul_(gradient.unsqueeze(-1)), None


@pytest.mark.parametrize("software", ["megatron-2021", "nanotron"])
def test_the_loss_of_a_divided_vocabulary_takes_the_passes_of_its_calls(software):
    scores = torch.randn(64, 128, dtype=torch.bfloat16, requires_grad=True)
    words = torch.randint(128, (64,))
    with _Dispatched() as forward:
        loss = _VocabularyParallel.apply(scores.float(), words)
    with _Dispatched() as backward:
        loss.backward(torch.ones(64))
    graph = load_model("gpt2:layers=1,hidden=64,heads=1,sequence=32,words=128", batch=2, element_bytes=2)
    layer = software_of(software).graph_of(graph).layers[-1]
    part = {d: np.array([float(s)]) for d, s in zip(layer.output.dims, layer.output.sizes, strict=True)}
    for phase, dispatched in (("forward", forward), ("activation_gradient", backward)):
        ours = [float(each[0]) for each in eager_bytes(layer, phase, part, 2, fused=True)]
        theirs = [moved for moved in dispatched.moved if moved >= 4 * scores.numel()]
        assert sorted(each for each in ours if each) == pytest.approx(sorted(theirs), rel=0.05), phase


@pytest.mark.parametrize(("words", "forward_ms", "both_ms"), [(32768, 5.317, 15.486), (131072, 20.726, 60.438)])
def test_a_loss_in_float32_takes_what_was_measured(words, forward_ms, both_ms):
    """Liger-Kernel's benchmark of PyTorch's cross-entropy, 16,384 positions, A100 of 80 GB, September 2024.

    Where it went back too, it added the gradient to the one before: three accesses, where forward has four.  Nothing is
    fitted to it.
    """
    graph, software = load_model(f"gpt2:layers=1,hidden=64,heads=1,sequence=2048,words={words}", batch=8), "pytorch"
    times = ComputeTimes(
        software_of(software).graph_of(graph), load_cluster("dgx-a100").take(1), software=software_of(software)
    )
    taken_s = times.part_s(len(graph.layers) - 1, space_of(graph.layers[-1], Configuration({}, (0,)), 1))
    assert 1e3 * taken_s["forward"][0] == pytest.approx(forward_ms, rel=0.05)
    both_s = taken_s["forward"][0] * (1 + 3 / 4) + taken_s["activation_gradient"][0]
    assert 1e3 * both_s == pytest.approx(both_ms, rel=0.05)


@pytest.mark.parametrize("model", ["gpt2", "llama-1b", "bert-base"])
def test_views_launch_nothing_and_products_one_kernel(model):
    graph = load_model(model, batch=1)
    for layer in graph.layers:
        count = kernel_count(layer, "forward", fused=True)
        assert count == (0 if layer.operation.kind in VIEWS else 1), layer.name


class _Residual(nn.Module):
    """A tensor that three layers read: its gradient is the sum of three."""

    def __init__(self):
        super().__init__()
        self.before, self.one, self.other = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x):
        y = self.before(x)
        return y + (self.one(y) + self.other(y))


def test_gradients_of_a_tensor_that_several_layers_read_are_added_as_often_as_pytorch_does():
    graph = imported_graph(trace_of(_Residual(), input_specs(["2x8x32"])), name="residual", loss="none").graph
    index = graph.index["before"]
    y = _Residual()(torch.randn(2, 8, 32))
    gradient = torch.randn(2, 8, 32)
    with _Dispatched() as backward:
        y.backward(gradient)
    added = [moved for moved in backward.moved if moved == 3 * 4 * 2 * 8 * 32]
    assert gradient_accesses(graph, index) == (3.0,) * len(added) == (3.0, 3.0)
    cluster = load_cluster("dgx-h100").take(1)
    eager, fused = (ComputeTimes(graph, cluster, software=software_of(text)) for text in ("pytorch", "ideal"))
    space = space_of(graph.layers[index], Configuration({}, (0,)), 1)
    phase = gradients_added_in(graph, index)
    more_s = eager.part_s(index, space)[phase] - fused.part_s(index, space)[phase]
    (profile,) = eager.profiles
    one_s = fused_s(profile, elementwise_kernels(elements=np.array([2.0 * 8 * 32]), accesses=3.0, element_bytes=4))
    assert more_s == pytest.approx(2 * one_s)
    counts = [launched_kernels(graph, index, phase, fused=fused) for fused in (False, True)]
    assert counts[0] - counts[1] == 2


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_largest_values_are_read_and_written_with_their_indices(form):
    """AlexNet's first pooling; its derivative sets a gradient to zero and reads the indices, as PyTorch's does."""
    graph = load_model("alexnet", batch=2, element_bytes=2)
    layer = graph.layers[graph.index["pool1"]]
    x = torch.randn(layer.input_shapes[0].sizes, dtype=torch.bfloat16).contiguous(memory_format=form)
    y, indices = torch.nn.functional.max_pool2d(x, 3, 2, return_indices=True)
    part = {d: np.array([float(s)]) for d, s in zip(layer.output.dims, layer.output.sizes, strict=True)}
    (forward,) = eager_bytes(layer, "forward", part, 2, fused=False)
    backward = eager_bytes(layer, "activation_gradient", part, 2, fused=False)
    assert y.shape == layer.output.sizes
    assert forward[0] == x.nbytes + y.nbytes + indices.nbytes
    assert [each[0] for each in backward] == [x.nbytes, x.nbytes + y.nbytes + indices.nbytes]
    assert eager_bytes(layer, "forward", part, 2, fused=True) is None


class _Chunks(nn.Module):
    """Three slices of a tensor, as queries, keys and values are."""

    def __init__(self):
        super().__init__()
        self.before = nn.Linear(32, 96)

    def forward(self, x):
        one, other, third = self.before(x).chunk(3, -1)
        return one * other + third


def test_gradients_of_slices_are_joined_as_pytorch_does():
    graph = imported_graph(trace_of(_Chunks(), input_specs(["2x8x32"])), name="chunks", loss="none").graph
    y = _Chunks()(torch.randn(2, 8, 32))
    with _Dispatched() as backward:
        y.backward(torch.randn(2, 8, 32))
    assert backward.names.count("cat") == 1
    assert gradient_accesses(graph, graph.index["before"]) == (2.0,)


def test_losses_in_half_precision_launch_the_conversions_to_float32():
    graphs = [
        software_of("pytorch").graph_of(
            load_model("gpt2:layers=1,hidden=64,heads=1,sequence=32,words=128", batch=2, element_bytes=each)
        )
        for each in (4, 2)
    ]
    for phase in ("forward", "activation_gradient"):
        whole, half = (launched_kernels(each, len(each.layers) - 1, phase, fused=False) for each in graphs)
        assert half == whole + 1


def test_keys_that_heads_share_are_copied_for_each_as_pytorch_does():
    """Grouped attention by PyTorch's own function: keys and values repeated, forward, and their gradients summed."""
    model = load_model("llama-1b:layers=1,sequence=16,heads=8,kv_heads=2", batch=3)
    index = next(i for i, layer in enumerate(model.layers) if layer.operation.kind == "attention")
    own, apart, grouped, joined = (
        software_of(text).graph_of(model).layers[index]
        for text in ("pytorch", "pytorch:flash=0", "pytorch:flash=2", "torch-compile")
    )
    size = own.operation.key_channels
    keys = torch.randn(3, 2, 16, size, requires_grad=True)
    with _Dispatched() as forward:
        repeated = keys.repeat_interleave(4, 1)
    gradient = torch.randn_like(repeated)
    with _Dispatched() as backward:
        repeated.backward(gradient)
    calls = [sum(name in ("clone", "sum") for name in each.names) for each in (forward, backward)]
    for phase, count in zip(("forward", "activation_gradient"), calls, strict=True):
        counts = [kernel_count(layer, phase, fused=False) for layer in (own, grouped, joined)]
        assert (counts[0] - counts[1], counts[1]) == (2 * count, counts[2])
    assert kernel_count(apart, "forward", fused=False) == 3 + 2 * calls[0]
    part = Part(
        own.input_shapes,
        own.output,
        dict(zip(own.output.dims, np.array(own.output.sizes, float)[:, None], strict=True)),
    )
    assert own.operation.repeated_elements(part) == keys.numel() + repeated.numel()
    assert grouped.operation.repeated_elements(part) == 0
    alike = software_of("pytorch").graph_of(load_model("llama-1b:layers=1,sequence=16,heads=8,kv_heads=8", batch=3))
    assert kernel_count(alike.layers[index], "forward", fused=False) == 1
