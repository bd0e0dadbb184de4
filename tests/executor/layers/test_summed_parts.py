"""Parts that complete sums together, put together without processes, against the undivided layer."""

import math

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from test_layer_parts import RELATIVE, close, cut, graph_of, numbers, summed
from undivided import Undivided, random_parameters

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.runtime.boxes import Box, whole_box
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration, completing_parts, space_of
from planner.operations.checks import ACTIVATIONS
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear

small = st.integers(1, 3)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@st.composite
def layers(draw):
    """A convolution in 1 to 3 dimensions or a linear layer, sizes of its input, and a split of what it sums over."""
    rank, r, c = draw(st.integers(0, 3)), draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from([1, 2]))
    channels, outputs = r + draw(st.integers(0, 4)), r * c + draw(st.integers(0, 4))
    activation = draw(st.sampled_from((None, *ACTIVATIONS)))
    bias = draw(st.booleans())
    if rank == 0 or draw(st.booleans()):
        operation = Linear(
            channels=outputs, bias=bias, activation=activation, dropout=draw(st.sampled_from([0.0, 0.5]))
        )
        sizes = tuple(draw(st.lists(small, min_size=rank, max_size=rank)))
    else:

        def each(low, high):
            return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

        operation = Convolution(
            channels=outputs,
            kernel=each(1, 3),
            stride=each(1, 3),
            pad=each(0, 2),
            dilation=each(1, 2),
            bias=bias,
            activation=activation,
            batch_norm=draw(st.booleans()),
        )
        windows = zip(operation.dilation, operation.kernel, strict=True)
        sizes = tuple(d * (k - 1) + 1 + draw(st.integers(0, 4)) for d, k in windows)
    graph = graph_of((draw(st.sampled_from([1, 2, 4])), channels, *sizes), (operation, "input"))
    shape = graph.layers[0].output
    # torch refuses to normalise over a single element
    assume(not getattr(operation, "batch_norm", False) or shape.elements > outputs)
    degrees = {"channel": c, SUMMED: r}
    for dim, size in zip(shape.dims, shape.sizes, strict=True):
        if dim != "channel":
            degrees[dim] = draw(st.sampled_from([d for d in (1, 2, 3) if size >= d]))
    return graph, degrees


def share_of(part, first):
    """The channels of a part's share in the product that its group computes."""
    low = first.held.low[1]
    product = part.product
    return cut_box(product, part.held.low[1] - low, part.held.high[1] - low)


def cut_box(product, low, high):
    sizes = list(product.shape)
    sizes[1] = high
    return Box((0, low, *(0 for _ in sizes[2:])), tuple(sizes))


@settings(max_examples=20, deadline=None)
@given(layers(), st.integers(0, 2**32))
def test_parts_complete_the_undivided_layer(question, seed):
    """Forward, both gradients and the running statistics, whatever else is split."""
    graph, degrees = question
    layer = graph.layers[0]
    count = math.prod(degrees.values())
    space = space_of(layer, Configuration.of(degrees, range(count)), count)
    parameters = random_parameters(graph, seed=seed % 1000)
    data, gradient = numbers(layer.input_shapes[0].sizes, seed), numbers(layer.output.sizes, seed + 1)
    network = Undivided(graph, parameters)
    expected = network.run(data, number=3, seed=5, gradient=gradient)
    form, step = {"reduced": True, "dtype": torch.float64, "device": "cpu"}, TrainingStep(3, 5)
    parts = [part_layer(graph, 0, space, number, **form) for number in range(count)]
    groups = completing_parts(space).tolist()
    held = [{name: cut(parameters["0", name], box) for name, box in part.parameters.items()} for part in parts]

    products = [part.forward([cut(data, part.inputs[0])], held[n], step) for n, part in enumerate(parts)]
    made = [None] * count
    for group in groups:
        total = sum(products[n] for n in group)
        for n in group:
            assert total.shape == parts[n].product.shape
            made[n] = parts[n].complete_forward(cut(total, share_of(parts[n], parts[group[0]])), held[n], step)
    if parts[0].reduces:
        summed(parts)
        made = [part.finish_forward() for part in parts]
    output, times = torch.zeros_like(gradient), torch.zeros_like(gradient)
    for part, tensor in zip(parts, made, strict=True):
        place = part.held.within(whole_box(output.shape))
        output[place] = tensor
        times[place] += 1
    assert (times == 1).all()
    close(output, expected.outputs["0"], RELATIVE)

    for part in parts:
        part.begin_backward(cut(gradient, part.held))
    if parts[0].reduces:
        summed(parts)
        for part in parts:
            part.finish_backward()
    for group in groups:
        whole = torch.cat([parts[n].share_gradient for n in group], 1)
        for n in group:
            parts[n].complete_backward(whole)
    found = {key: torch.zeros_like(value) for key, value in parameters.items()}
    read = torch.zeros_like(data)
    for part in parts:
        (below,) = part.activation_gradient()
        assert below.shape == part.inputs[0].shape
        read[part.inputs[0].within(whole_box(read.shape))] += below
        weights = part.weight_gradient()
        assert weights.keys() == part.parameters.keys()
        for name, value in weights.items():
            cut(found["0", name], part.parameters[name])[:] += value
        for name, buffer in part.buffers.items():
            channels = slice(part.held.low[1], part.held.high[1])
            close(buffer, network.buffers["0", name][channels].detach(), RELATIVE)
        part.release()
    close(read, expected.output_gradients["input"], RELATIVE)
    for key, value in found.items():
        close(value, expected.gradients[key], RELATIVE)
