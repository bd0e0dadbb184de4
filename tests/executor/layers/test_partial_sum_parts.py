"""Parts of partial sums, put together without processes, against the undivided layer."""

import math

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from test_layer_parts import RELATIVE, close, cut, graph_of, numbers, summed
from undivided import Undivided, random_parameters

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.runtime.boxes import whole_box
from executor.runtime.parameter_init import initial_parameters
from planner.layouts.configurations import Configuration
from planner.operations.checks import ACTIVATIONS
from planner.operations.convolution import Convolution
from planner.operations.linear import Linear
from planner.parallel.input_channel_split import split_input_channels
from planner.parallel.strategies import spaces_of

small = st.integers(1, 3)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@st.composite
def layers(draw):
    """A convolution in 1 to 3 dimensions or a linear layer, sizes of its input, and a split of its input channels."""
    rank, r, c = draw(st.integers(0, 3)), draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from([1, 2]))
    channels, outputs = r * draw(small), r * c * draw(small)
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
    degrees = {"channel": c, "in_channel": r}
    for dim, size in zip(shape.dims, shape.sizes, strict=True):
        if dim != "channel":
            degrees[dim] = draw(st.sampled_from([d for d in (1, 2, 3) if size % d == 0]))
    order = ("sample", "channel", "in_channel", *shape.dims[2:])
    return graph, {dim: degrees[dim] for dim in order}


def parts_of(graph, index, space):
    form = {"reduced": True, "dtype": torch.float64, "device": "cpu"}
    return [part_layer(graph, index, space, part, **form) for part in range(space.parts[0])]


def held_by(part, parameters):
    """Slices of the model's parameters that a part holds, by name."""
    return {name: cut(parameters["0", name], box) for name, box in part.parameters.items()}


def put_together(parts, tensors):
    """A whole output; every element made once."""
    whole = torch.zeros(parts[0].layer.output.sizes, dtype=torch.float64)
    made = torch.zeros_like(whole)
    for part, tensor in zip(parts, tensors, strict=True):
        assert tensor.shape == part.held.shape
        place = part.held.within(whole_box(whole.shape))
        whole[place] = tensor
        made[place] += 1
    assert (made == 1).all()
    return whole


@settings(max_examples=80, deadline=None)
@given(layers(), st.integers(0, 2**32))
def test_partial_sums_make_the_undivided_layer(question, seed):
    """Forward, both gradients and the running statistics, whatever else is split."""
    graph, degrees = question
    split = split_input_channels(graph, {"0": degrees["in_channel"]})
    devices = tuple(range(math.prod(degrees.values())))
    spaces = spaces_of(split, {"0": Configuration(degrees, devices)}, len(devices))
    parameters = random_parameters(graph, seed=seed % 1000)
    data = numbers(graph.layers[0].input_shapes[0].sizes, seed)
    gradient = numbers(graph.layers[0].output.sizes, seed + 1)
    network = Undivided(graph, parameters)
    expected = network.run(data, number=3, seed=5, gradient=gradient)
    products, totals = (parts_of(split, index, spaces[index]) for index in (0, 1))

    def forward(parts, tensor):
        return [
            part.forward([cut(tensor, part.inputs[0])], held_by(part, parameters), TrainingStep(3, 5)) for part in parts
        ]

    partial = put_together(products, forward(products, data))
    made = forward(totals, partial)
    if totals[0].reduces:
        summed(totals)
        made = [part.finish_forward() for part in totals]
    close(put_together(totals, made), expected.outputs["0"], RELATIVE)

    found = {key: torch.zeros_like(value) for key, value in parameters.items()}
    backward = torch.zeros_like(partial)
    for part in totals:
        part.begin_backward(cut(gradient, part.held))
    if totals[0].reduces:
        summed(totals)
        for part in totals:
            part.finish_backward()
    for part in totals:
        (below,) = part.activation_gradient()
        backward[part.inputs[0].within(whole_box(backward.shape))] += below
    read = torch.zeros_like(data)
    for part in products:
        part.begin_backward(cut(backward, part.held))
        (below,) = part.activation_gradient()
        assert below.shape == part.inputs[0].shape
        read[part.inputs[0].within(whole_box(read.shape))] += below
    for part in (*products, *totals):
        weights = part.weight_gradient()
        boxes = part.parameters
        assert weights.keys() == boxes.keys()
        for name, value in weights.items():
            cut(found["0", name], boxes[name])[:] += value
        part.release()
    close(read, expected.output_gradients["input"], RELATIVE)
    for key, value in found.items():
        close(value, expected.gradients[key], RELATIVE)
    for part in totals:
        for name, buffer in part.buffers.items():
            channels = slice(part.held.low[1], part.held.high[1])
            close(buffer, network.buffers["0", name][channels].detach(), RELATIVE)


def test_slices_start_from_the_models_parameters():
    """Also behind another split layer, which shifts the layers' places in the graph."""
    operation = Linear(channels=8, activation="relu")
    graph = graph_of((2, 4), (operation, "input"), (Linear(channels=4), "0"))
    split = split_input_channels(graph, {"0": 2, "1": 4})
    strategy = {"0": Configuration({"in_channel": 2}, (0, 1)), "1": Configuration({"in_channel": 4}, (0, 1, 2, 3))}
    make = {"seed": 7, "dtype": torch.float64, "device": "cpu"}
    for index, (name, whole) in enumerate((("0", 0), ("0 sum", 0), ("1", 1), ("1 sum", 1))):
        layer = split.layers[index]
        assert (layer.name, split.origin[index]) == (name, whole)
        sizes = {row.name: whole_box(row.shape) for row in graph.layers[whole].parameters}
        expected = initial_parameters(graph, whole, sizes, **make)
        space, held = spaces_of(split, strategy, 4)[index], 0
        for part in parts_of(split, index, space):
            boxes = part.parameters
            for key, value in initial_parameters(split, index, boxes, **make).items():
                torch.testing.assert_close(value, cut(expected[key], boxes[key]), rtol=0, atol=0)
                held += value.numel()
        assert held == sum(row.elements for row in layer.parameters)
