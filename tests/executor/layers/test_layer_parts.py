"""Parts of layers, put together, against the undivided layer: every kind, every split, uneven parts too."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from undivided import Undivided, graph_of, random_parameters

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.runtime.boxes import whole_box
from groundwork.errors import ConfigError
from planner.layouts.configurations import ConfigSpace, Configuration, space_of
from planner.memory import cpu_backend as weight_gradients
from planner.operations.checks import ACTIVATIONS
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling

NEVER = 10**9
PRODUCTS = (
    {"WEIGHTS_A_WINDOW": weight_gradients.WEIGHTS_A_WINDOW},
    {"WEIGHTS_A_WINDOW": 0, "POSITION_WINDOWS": NEVER},
    {"POSITION_WEIGHTS_A_WINDOW": 0, "POSITION_WINDOWS": 0, "POSITION_SHARE": 1.0, "MOST_POSITIONS": NEVER},
)
"""Gradients of weights as the rule says, always by products with all windows, and always by taps."""

RELATIVE = 1e-10
activations = st.sampled_from((None, *ACTIVATIONS))
small = st.integers(1, 3)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Threads make tiny tensors slower, the more so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pointwise(rank, channels):
    """A 1 x 1 convolution."""
    ones = (1,) * rank
    return Convolution(channels=channels, kernel=ones, stride=ones, pad=(0,) * rank, dilation=ones)


def space_with(layer, degrees):
    """One configuration, whose parts need not be equal."""
    devices = np.arange(math.prod(degrees))
    none, once = np.empty(0, dtype=np.int64), np.ones(1, dtype=np.int64)
    return ConfigSpace(layer.output, layer.parallel_dims, np.array([degrees]), none, devices, once, once, once)


def numbers(sizes, seed, *, dtype=torch.float64):
    """Standard normal numbers."""
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def cut(whole, box):
    """A box of a whole tensor, a view."""
    return whole[box.within(whole_box(whole.shape))]


def summed(parts):
    """Sum the statistics over the parts of the same channels, as the runtime does."""
    replicas = {}
    for part in parts:
        replicas.setdefault((part.held.low[1], part.held.high[1]), []).append(part)
    for rows in replicas.values():
        total = torch.stack([part.statistics for part in rows]).sum(0)
        for part in rows:
            part.statistics.copy_(total)


def close(found, expected, relative):
    """Equal to within the largest number expected."""
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=0, atol=relative * scale)


def forward(parts, tensors, parameters, targets):
    """Outputs of all parts, from whole inputs and parameters."""
    outputs = []
    for part in parts:
        layer = part.layer
        inputs = [cut(tensors[name], box) for name, box in zip(layer.inputs, part.inputs, strict=True)]
        boxes = part.parameters
        held = {name: cut(parameters[layer.name, name], box) for name, box in boxes.items()}
        aimed = None if targets is None else targets[part.held.low[0] : part.held.high[0]]
        outputs.append(part.forward(inputs, held, TrainingStep(3, 5, aimed)))
    if not parts[0].reduces:
        return outputs
    summed(parts)
    return [part.finish_forward() for part in parts]


def backward(parts, tensors, upstream, *, weights_first):
    """Gradients of whole inputs and parameters: the sums of those of all parts."""
    layer = parts[0].layer
    into = {name: torch.zeros_like(tensors[name]) for name in layer.inputs}
    dtype = tensors[layer.inputs[0]].dtype
    trained = {parameter.name: torch.zeros(parameter.shape, dtype=dtype) for parameter in layer.parameters}
    for part in parts:
        part.begin_backward(None if upstream is None else cut(upstream, part.held))
    if parts[0].reduces:
        summed(parts)
        for part in parts:
            part.finish_backward()
    for part in parts:
        boxes = part.parameters
        places = {name: torch.full(box.shape, torch.nan, dtype=dtype) for name, box in boxes.items()}
        gradients = part.weight_gradient(places) if weights_first else None
        for name, box, gradient in zip(layer.inputs, part.inputs, part.activation_gradient(), strict=True):
            assert gradient.shape == box.shape
            cut(into[name], box).add_(gradient)
        gradients = gradients or part.weight_gradient()
        assert gradients.keys() == trained.keys()
        for parameter in layer.parameters:
            cut(trained[parameter.name], boxes[parameter.name]).add_(gradients[parameter.name])
        part.release()
    return into, trained


@torch.no_grad()
def check(graph, degrees, data, *, targets=None, weights_first=True, relative=RELATIVE):
    """Run all parts of the last layer and compare with the undivided network, which is returned with the parts."""
    index, dtype = len(graph.layers) - 1, data.dtype
    layer = graph.layers[index]
    parameters = random_parameters(graph, dtype=dtype)
    upstream = None if targets is not None else numbers(layer.output.sizes, 1, dtype=dtype)
    oracle = Undivided(graph, parameters)
    with torch.enable_grad():
        whole = oracle.run(data, targets, number=3, seed=5, gradient=upstream)
    tensors = {name: whole.outputs[name].clone() for name in layer.inputs}
    given_upstream = None if upstream is None else upstream.clone()

    space = space_with(layer, degrees)
    make = {"reduced": True, "dtype": dtype, "device": "cpu"}
    parts = [part_layer(graph, index, space, part, **make) for part in range(math.prod(degrees))]
    outputs = forward(parts, tensors, parameters, targets)
    for part, output in zip(parts, outputs, strict=True):
        close(output, cut(whole.outputs[layer.name], part.held), relative)
    into, trained = backward(parts, tensors, given_upstream, weights_first=weights_first)
    for name, gradient in into.items():
        close(gradient, whole.output_gradients[name], relative)
    for name, gradient in trained.items():
        close(gradient, whole.gradients[layer.name, name], relative)

    for name, values in tensors.items():
        assert torch.equal(values, whole.outputs[name]), "inputs are not written"
    assert upstream is None or torch.equal(upstream, given_upstream), "nor are gradients"
    for (_, name), expected in oracle.buffers.items():
        for part in parts:
            close(part.buffers[name], expected[part.held.low[1] : part.held.high[1]], relative)
    return whole, parts


def degrees_of(draw, layer, most=12):
    """Degrees that the layer may have, parts uneven where they do not divide, in at most ``most`` parts."""
    degrees = []
    for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True):
        limit = min(size, 4, most // math.prod(degrees)) if dim in layer.parallel_dims else 1
        degrees.append(draw(st.integers(1, limit)))
    return tuple(degrees)


def data_sizes(draw, rank, low=1, channels=None):
    """Samples, channels and positions, fewer the more dimensions."""
    longest = max((10, 8, 5)[rank - 1], low) if rank else low
    positions = (draw(st.integers(low, longest)) for _ in range(rank))
    return (draw(st.integers(1, 4)), channels or draw(st.integers(1, 5)), *positions)


def windows(draw, rank):
    """Kernel, stride: one a dimension."""
    return tuple(tuple(draw(st.integers(1, most)) for _ in range(rank)) for most in (4, 3))


@settings(max_examples=25)
@given(st.data())
def test_convolution(data):
    draw = data.draw
    rank = draw(st.integers(1, 3))
    kernel, stride = windows(draw, rank)
    pad = tuple(draw(st.integers(0, 4)) for _ in range(rank))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    groups, group_in, group_out = draw(st.integers(1, 5)), draw(small), draw(st.integers(1, 4))
    sizes = data_sizes(draw, rank, channels=groups * group_in)
    spans = (d * (k - 1) + 1 <= size + 2 * p for d, k, p, size in zip(dilation, kernel, pad, sizes[2:], strict=True))
    assume(all(spans))
    operation = Convolution(
        channels=groups * group_out,
        kernel=kernel,
        stride=stride,
        pad=pad,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        batch_norm=draw(st.booleans()),
        activation=draw(activations),
    )
    graph = graph_of(sizes, (operation, "input"))
    layer = graph.layers[0]
    assume(not operation.batch_norm or layer.output.elements > layer.output.size("channel"))
    with patch.multiple(weight_gradients, **draw(st.sampled_from(PRODUCTS))):
        check(graph, degrees_of(draw, layer), numbers(sizes, 0), weights_first=draw(st.booleans()))


@settings(max_examples=25)
@given(st.data())
def test_pooling(data):
    draw = data.draw
    rank = draw(st.integers(1, 3))
    kernel, stride = windows(draw, rank)
    pad = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    mode, ceil_mode = draw(st.sampled_from(("max", "average"))), draw(st.booleans())
    room = kernel if mode == "average" else [k - 2 * p for k, p in zip(kernel, pad, strict=True)]
    sizes = data_sizes(draw, rank, low=max(1, *room))  # torch's 3-D mean takes none below the kernel, padded or not
    operation = Pooling(mode=mode, kernel=kernel, stride=stride, pad=pad, ceil_mode=ceil_mode)
    graph = graph_of(sizes, (operation, "input"))
    values = numbers(sizes, 0)
    values = values.relu() if draw(st.booleans()) else values  # many equal maxima
    check(graph, degrees_of(draw, graph.layers[0]), values)


@settings(max_examples=40)
@given(st.data())
def test_layers_without_windows(data):
    """Pooling over all positions, batch and local response normalisation, linear layers."""
    draw = data.draw
    rank = draw(st.integers(0, 3))
    sizes = data_sizes(draw, rank)
    kinds = {
        "linear": lambda: Linear(
            channels=draw(st.integers(1, 7)),
            bias=draw(st.booleans()),
            activation=draw(activations),
            dropout=draw(st.sampled_from((0.0, 0.3, 0.8))),
        ),
        "norm": lambda: BatchNorm(activation=draw(activations)),
        "response": lambda: LocalResponseNorm(size=draw(st.sampled_from((1, 3, 5, 7))), alpha=0.5, beta=0.75, k=1.5),
        "dropout": lambda: Dropout(dropout=draw(st.sampled_from((0.0, 0.3, 0.8)))),
        "pool": lambda: GlobalPooling(mode=draw(st.sampled_from(("max", "average")))),
    }
    kind = draw(st.sampled_from(tuple(kinds)))
    assume(kind != "pool" or rank)
    assume(kind != "norm" or math.prod(sizes) > sizes[1])
    graph = graph_of(sizes, (kinds[kind](), "input"))
    check(graph, degrees_of(draw, graph.layers[0]), numbers(sizes, 0), weights_first=draw(st.booleans()))


@given(st.data())
def test_joining(data):
    """Sums of several layers, some of them the same, and concatenations of which a part may need one slot only."""
    draw = data.draw
    rank = draw(st.integers(1, 3))
    sizes = data_sizes(draw, rank)
    concatenated = draw(st.booleans())
    channels = [draw(small) if concatenated else 4 for _ in range(3)]
    sources = draw(st.lists(st.sampled_from("012"), min_size=2, max_size=4))
    operation = Concat() if concatenated else Add(activation=draw(activations))
    before = [(pointwise(rank, count), "input") for count in channels]
    graph = graph_of(sizes, *before, (operation, *sources))
    check(graph, degrees_of(draw, graph.layers[3]), numbers(sizes, 0))


@given(st.data())
def test_loss(data):
    """The parts' losses add up to the mean over the batch, and their gradients need no more scaling."""
    draw = data.draw
    sizes = data_sizes(draw, draw(st.integers(0, 2)))
    operation = Loss(function=draw(st.sampled_from(("softmax", "mean_squared_error"))))
    if operation.function == "softmax":
        targets = torch.arange(sizes[0]) * 7 % math.prod(sizes[1:])
    else:
        targets = numbers(sizes, 2)
    graph = graph_of(sizes, (operation, "input"))
    degrees = (draw(st.integers(1, sizes[0])), *(1 for _ in sizes[1:]))
    whole, parts = check(graph, degrees, numbers(sizes, 0), targets=targets)
    close(sum(part.loss for part in parts), whole.loss, RELATIVE)


def test_loss_without_targets_is_refused():
    graph = graph_of((2, 3), (Loss(), "input"))
    space = space_of(graph.layers[0], Configuration({}, (0,)), 1)
    part = part_layer(graph, 0, space, 0, dtype=torch.float32, device="cpu")
    with pytest.raises(ConfigError, match=r"^targets of loss layer '0' must be given, got None$"):
        part.forward([torch.zeros(2, 3)], {}, TrainingStep(0, 0))


@pytest.mark.parametrize("fused", [False, True])
def test_batch_norm_of_each_part_alone(fused):
    """Without reduction every part is normalised as torch normalises its slice."""
    operation = BatchNorm(activation="tanh")
    if fused:
        ones = (1, 1)
        operation = Convolution(
            channels=6, kernel=ones, stride=ones, pad=(0, 0), dilation=ones, batch_norm=True, activation="tanh"
        )
    graph = graph_of((4, 6, 5, 3), (operation, "input"))
    layer, parameters = graph.layers[0], random_parameters(graph)
    data, upstream = numbers((4, 6, 5, 3), 0), numbers((4, 6, 5, 3), 1)
    space = space_with(layer, (2, 2, 2, 1))
    for number in range(8):
        part = part_layer(graph, 0, space, number, dtype=torch.float64, device="cpu")
        own = part.parameters
        held = {name: cut(parameters["0", name], box).clone().requires_grad_() for name, box in own.items()}
        values = cut(data, part.inputs[0]).clone().requires_grad_()
        gradient = cut(upstream, part.held)
        mean, variance = torch.zeros_like(held["bias"]), torch.ones_like(held["bias"])
        product = torch.conv2d(values, held["weight"], held["bias"]) if fused else values
        scale, shift = (held["norm_" * fused + name] for name in ("weight", "bias"))
        expected = torch.nn.functional.batch_norm(product, mean, variance, scale, shift, training=True).tanh()
        wanted = torch.autograd.grad(expected, [values, *held.values()], gradient)
        with torch.no_grad():
            close(part.forward([values], held, TrainingStep(0, 0)), expected, RELATIVE)
            part.begin_backward(gradient)
            found = [*part.activation_gradient(), *(part.weight_gradient()[name] for name in held)]
        assert part.statistics is None
        for one, other in zip(found, wanted, strict=True):
            close(one, other, RELATIVE)
        close(part.buffers["running_mean"], mean, RELATIVE)
        close(part.buffers["running_var"], variance, RELATIVE)


@torch.no_grad()
def test_reduced_statistics_keep_their_digits_in_float32():
    """A mean 1,000 times the deviation, in halves that differ: the variance is right to 4 digits all the same."""
    graph = graph_of((8, 2, 64), (BatchNorm(), "input"))
    exact = numbers((8, 2, 64), 0) + 1000
    exact[4:] += 1
    parts = [
        part_layer(
            graph, 0, space_with(graph.layers[0], (2, 1, 1)), part, reduced=True, dtype=torch.float32, device="cpu"
        )
        for part in range(2)
    ]
    parameters = {"weight": torch.ones(2), "bias": torch.zeros(2)}
    for part, values in zip(parts, exact.float().chunk(2), strict=True):
        part.forward([values], parameters, TrainingStep(0, 0))
    summed(parts)
    for part in parts:
        part.finish_forward()
        deviation = (part.buffers["running_var"].double() - 0.9) / 0.1
        torch.testing.assert_close(deviation, exact.var((0, 2)), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "operation",
    [
        Convolution(channels=6, kernel=(3, 3), stride=(2, 2), pad=(1, 1), dilation=(1, 1), batch_norm=True),
        Linear(channels=9, activation="relu", dropout=0.5),
        Pooling(mode="average", kernel=(3, 3), stride=(2, 2), pad=(0, 0), ceil_mode=True),
        LocalResponseNorm(),
    ],
    ids=lambda operation: operation.kind,
)
def test_float32(operation):
    graph = graph_of((4, 5, 8, 8), (operation, "input"))
    degrees = [2, 2, *(2 for _ in graph.layers[0].output.sizes[2:])]
    check(graph, degrees, numbers((4, 5, 8, 8), 0, dtype=torch.float32), relative=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("degrees", [(1, 1), (4, 1), (1, 5), (3, 2)])
def test_the_mask_of_dropout_does_not_depend_on_the_split(degrees):
    """A linear layer of constant output shows its mask: bit for bit the whole tensor's, of the stated share."""
    graph = graph_of((40, 3), (Linear(channels=50, dropout=0.25), "input"))

    def masks(degrees, number):
        space = space_with(graph.layers[0], degrees)
        mask = torch.zeros(40, 50)
        for index in range(math.prod(degrees)):
            part = part_layer(graph, 0, space, index, dtype=torch.float32, device="cpu")
            samples, channels = part.held.shape
            held = {"weight": torch.zeros(channels, 3), "bias": torch.ones(channels)}
            output = part.forward([torch.zeros(samples, 3)], held, TrainingStep(number, 1))
            cut(mask, part.held).copy_(output)
        return mask

    mask = masks(degrees, 7)
    assert torch.equal(mask, masks((1, 1), 7))
    assert not torch.equal(mask, masks(degrees, 8))
    assert mask.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((mask == 0).float().mean()) == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 2000) ** 0.5)
