"""Flops, bytes and parameters of parts of layers, and what operations refuse."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from planner.graph.computation_graph import LAYER_PHASES
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape
from planner.operations.checks import position_dims
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling
from planner.operations.products import TensorProduct
from planner.operations.streaming import Elementwise, Embedding, FeatureNorm, TensorReduction, Unknown

IMAGE = (8, 16, 12, 24)


def shape(*sizes):
    return Shape(("sample", "channel", *position_dims(len(sizes) - 2)), sizes)


def convolution(**fields):
    window = {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1), "dilation": (1, 1)}
    return Convolution(**{"channels": 32, **window, **fields})


def product(**fields):
    whole = {"dims": ("channel",), "sizes": (4,), "reads": ((),), "depth": 1}
    return TensorProduct(kind="matrix_product", **{**whole, **fields})


TWO = {"dims": ("channel", "length"), "sizes": (4, 2)}
"""Of a product with two sections."""


def sections(shape, axis):
    return (Parameter("w", shape, (*[None] * axis, "channel"), sections=True),)


def pooling(**fields):
    return Pooling(**{"mode": "max", "kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), **fields})


CASES = {
    "convolution": (convolution(batch_norm=True, activation="relu"), 1),
    "strided": (convolution(stride=(2, 2)), 1),
    "grouped": (convolution(groups=4), 1),
    "linear": (Linear(channels=24), 1),
    "max pooling": (pooling(), 1),
    "average pooling": (pooling(mode="average"), 1),
    "global pooling": (GlobalPooling(), 1),
    "add": (Add(activation="relu"), 3),
    "concat": (Concat(), 2),
    "batch norm": (BatchNorm(activation="relu"), 1),
    "response norm": (LocalResponseNorm(), 1),
    "dropout": (Dropout(dropout=0.5), 1),
    "softmax": (Loss(), 1),
}
cases = pytest.mark.parametrize(("operation", "count"), CASES.values(), ids=CASES)


def work(operation, phase, inputs, degrees=None):
    """Kernels of one of equal parts."""
    output = operation.output(inputs)
    sizes = zip(output.dims, output.sizes, strict=True)
    part = {dim: np.array([size / (degrees or {}).get(dim, 1)]) for dim, size in sizes}
    return operation.kernels(phase, inputs, output, part)


@cases
@given(data=st.data())
def test_equal_parts_add_up_to_the_whole(operation, count, data):
    """flop is split exactly; bytes grow where parts share weights or halos, and never shrink."""
    inputs = [shape(*IMAGE)] * count
    output = operation.output(inputs)
    degrees = {
        dim: data.draw(st.sampled_from([d for d in (1, 2, 3, 4) if output.size(dim) % d == 0]))
        for dim in operation.parallel_dims(output)
    }
    for phase in LAYER_PHASES:
        # Only a split of the channels splits the parameters, and with them the update.
        parts = degrees.get("channel", 1) if phase == "update" else math.prod(degrees.values())
        whole, part = work(operation, phase, inputs), work(operation, phase, inputs, degrees)
        assert parts * part.flop[0] == pytest.approx(whole.flop[0], rel=1e-12)
        assert parts * part.memory_bytes[0] >= whole.memory_bytes[0] * (1 - 1e-12)


@cases
def test_matrix_products_do_the_flops_they_say(operation, count):
    for phase in LAYER_PHASES:
        kernels = work(operation, phase, [shape(*IMAGE)] * count)
        product = 2 * kernels.rows * kernels.columns * kernels.depth
        assert kernels.matrix[0] == (phase != "update" and operation.kind in ("convolution", "linear"))
        assert product[0] == (kernels.flop[0] if kernels.matrix[0] else 0)
        assert kernels.samples[0] == IMAGE[0]


@cases
def test_layers_without_parameters_have_nothing_to_update(operation, count):
    inputs = [shape(*IMAGE)] * count
    for phase in ("weight_gradient", "update"):
        kernels = work(operation, phase, inputs)
        assert (kernels.flop[0] > 0) == (kernels.memory_bytes[0] > 0) == bool(operation.parameters(inputs))


@pytest.mark.parametrize("name", ["convolution", "strided", "grouped", "linear"])
def test_gradients_take_the_flops_of_the_forward_pass(name):
    operation, _ = CASES[name]
    flops = {phase: work(operation, phase, [shape(*IMAGE)]).flop[0] for phase in LAYER_PHASES[:3]}
    assert len(set(flops.values())) == 1


@given(
    rank=st.integers(1, 3), groups=st.integers(1, 3), kernel=st.integers(1, 3), stride=st.integers(1, 2), data=st.data()
)
def test_convolution_flops_count_every_multiply_add(rank, groups, kernel, stride, data):
    """Against a count over output elements, input channels of the group and taps, padding included."""
    per_group = data.draw(st.integers(1, 3))
    operation = Convolution(
        channels=groups * 2,
        kernel=(kernel,) * rank,
        stride=(stride,) * rank,
        pad=(1,) * rank,
        dilation=(1,) * rank,
        groups=groups,
    )
    inputs = [shape(2, groups * per_group, *(5 for _ in range(rank)))]
    output = operation.output(inputs)
    multiply_adds = sum(1 for _ in np.ndindex(*output.sizes, per_group, *operation.kernel))

    kernels = work(operation, "forward", inputs)
    assert kernels.flop[0] == 2 * multiply_adds
    assert kernels.rows[0] == output.size("channel")
    assert kernels.columns[0] == 2 * math.prod(output.positions)


def test_convolution_bytes_by_hand():
    """Half the 12 rows with a halo of one above and below; batch normalisation passes over the outputs twice."""
    inputs = [shape(8, 16, 12, 24)]
    read, weights, written = 8 * 16 * 8 * 24, 32 * 16 * 9, 8 * 32 * 6 * 24
    operation = convolution(batch_norm=True)
    kernels = {phase: work(operation, phase, inputs, {"height": 2}) for phase in LAYER_PHASES}
    assert {phase: k.memory_bytes[0] / 4 for phase, k in kernels.items()} == {
        "forward": read + weights + written,
        "activation_gradient": read + weights + written,
        "weight_gradient": read + weights + written,
        "update": 5 * (weights + 32 + 32 + 32),
    }
    streamed = {phase: np.max(k.streamed_bytes) / 4 for phase, k in kernels.items()}
    assert streamed == {
        "forward": 3 * written,
        "activation_gradient": 0,
        "weight_gradient": 5 * written,
        "update": 0,
    }
    activated = work(convolution(activation="relu"), "weight_gradient", inputs, {"height": 2})
    assert np.max(activated.streamed_bytes) / 4 == 3 * written


@pytest.mark.parametrize("slices", [1, 2, 3])
def test_slices_of_the_summed_channels_share_what_follows_the_product(slices):
    """Each of the slices multiplies its channels of all outputs, and passes over its share of the outputs."""
    inputs, written = [shape(8, 12, 12, 24)], 8 * 32 * 12 * 24
    operation = convolution(batch_norm=True)
    sizes = {dim: np.array([float(size)]) for dim, size in zip(shape(*IMAGE).dims, (8, 32, 12, 24), strict=True)}
    parts = sizes | {SUMMED: np.array([float(slices)])}
    kernels = {phase: operation.kernels(phase, inputs, operation.output(inputs), parts) for phase in LAYER_PHASES[:3]}
    products = {phase: (k.rows[0], k.columns[0], k.depth[0]) for phase, k in kernels.items()}
    positions, read = 8 * 12 * 24, 12 // slices
    assert products == {
        "forward": (32, positions, read * 9),
        "activation_gradient": (read, positions, 32 * 9),
        "weight_gradient": (32, read * 9, positions),
    }
    streamed = {phase: np.max(k.streamed_bytes) / 4 for phase, k in kernels.items()}
    assert streamed == {
        "forward": 3 * written / slices,
        "activation_gradient": 0,
        "weight_gradient": 5 * written / slices,
    }


def mapped(kind, *weights, reads=1, **fields):
    """An operation that maps inputs of ``IMAGE`` one to one, with weights along their channels."""
    maps = tuple(IntervalMap(dim=dim) for dim in shape(*IMAGE).dims)
    dims, sizes = ("channel", "height", "width"), IMAGE[1:]
    return kind(dims=dims, sizes=sizes, reads=(maps,) * reads, weights=weights, **fields)


CHANNELS = IMAGE[1]
SCALE = Parameter("scale", (CHANNELS,))
PASSES = {
    # of inputs and outputs of one size, and of weights, read or written: forward, then both gradients
    "batch norm": (BatchNorm(), 1, (3, 3, 2), (0, 0, 0)),
    "response norm": (LocalResponseNorm(), 1, (2, 4, 0), (0, 0, 0)),
    "loss": (Loss(), 1, (2, 2, 0), (0, 0, 0)),
    "sum of three": (Add(), 3, (4, 0, 0), (0, 0, 0)),
    "sum of three, activated": (Add(activation="relu"), 3, (6, 3, 0), (0, 0, 0)),
    "chain": (mapped(Elementwise, steps=("exp", "add"), reads=2), 2, (3, 5, 0), (0, 0, 0)),
    "chain that saves its output": (mapped(Elementwise, steps=("tanh",), saves="output"), 1, (2, 3, 0), (0, 0, 0)),
    "chain that saves nothing": (mapped(Elementwise, steps=("neg",), saves="nothing"), 1, (2, 2, 0), (0, 0, 0)),
    "scaling": (mapped(Elementwise, SCALE, steps=("mul",)), 1, (2, 3, 2), (1, 0, 1)),
    "sum with a trained tensor": (
        mapped(Elementwise, SCALE, steps=("add",), saves="nothing"),
        1,
        (2, 2, 1),
        (1, 0, 1),
    ),
    "softmax": (mapped(TensorReduction, function="softmax", saves="output"), 1, (2, 3, 0), (0, 0, 0)),
    "maximum": (mapped(TensorReduction, function="cummax", saves="inputs"), 1, (2, 3, 0), (0, 0, 0)),
    "running sum": (mapped(TensorReduction, function="cumsum"), 1, (2, 2, 0), (0, 0, 0)),
    "layer norm": (mapped(FeatureNorm, SCALE, function="layer_norm"), 1, (3, 3, 2), (0, 0, 0)),
    "layer norm without weights": (mapped(FeatureNorm, function="layer_norm"), 1, (3, 3, 0), (0, 0, 0)),
    # of a table of one row a channel: the index, the row and its copy; index, row read, summed and written, and zeros
    "embedding": (mapped(Embedding, SCALE), 1, (3, 0, 4), (0, 0, 1)),
    "unknown": (mapped(Unknown, SCALE, function="fft"), 1, (2, 4, 2), (1, 2, 1)),
    "unknown without weights": (mapped(Unknown, function="fft"), 1, (2, 4, 0), (0, 0, 0)),
}


@pytest.mark.parametrize(("operation", "count", "passes", "weights"), PASSES.values(), ids=PASSES)
def test_each_phase_passes_over_what_it_reads_and_writes(operation, count, passes, weights):
    """By hand, after the traffic that each kind documents; half the samples take half of it, weights aside."""
    for phase, tensors, held in zip(LAYER_PHASES, passes, weights, strict=False):
        for degree in (1, 2):
            moved = work(operation, phase, [shape(*IMAGE)] * count, {"sample": degree}).memory_bytes[0] / 4
            assert moved == tensors * math.prod(IMAGE) / degree + held * CHANNELS


def test_operations_on_each_element_by_hand():
    """A response norm squares and adds a window, and raises to a power; a square root and four others normalise."""
    elements = math.prod(IMAGE)

    def flop(operation, count=1):
        return [work(operation, phase, [shape(*IMAGE)] * count).flop[0] / elements for phase in LAYER_PHASES[:3]]

    assert flop(LocalResponseNorm(size=5)) == [14, 28, 0]
    assert flop(BatchNorm()) == [5, 5, 5]
    assert flop(mapped(Elementwise, SCALE, steps=("mul", "add", "exp"))) == [3, 6, 2]
    assert flop(mapped(FeatureNorm, SCALE, function="layer_norm")) == [8, 8, 3]
    assert flop(mapped(TensorReduction, function="cumsum")) == [1, 1, 0]
    assert flop(mapped(Embedding, SCALE)) == [0, 0, 1]
    assert flop(Add(), 3) == [2, 0, 0]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_dropout_passes_over_what_it_drops_by_hand(share):
    """Twice forward, three times backward and one operation an element; nothing where nothing is dropped."""
    elements = math.prod(IMAGE) if share else 0
    for phase, accesses in (("forward", 2), ("activation_gradient", 3)):
        kernels = work(Dropout(dropout=share), phase, [shape(*IMAGE)])
        assert (kernels.flop[0], kernels.memory_bytes[0]) == (elements, 4 * accesses * elements)


def test_strides_beyond_the_window_pass_over_rows():
    """A 1 x 1 window of stride 2 reads every other row, though of these all bytes; its gradient writes all rows."""
    inputs = [shape(8, 16, 12, 24)]
    operation = convolution(kernel=(1, 1), stride=(2, 2), pad=(0, 0), bias=False)
    weights, written = 32 * 16, 8 * 32 * 6 * 12
    moved = {phase: work(operation, phase, inputs).memory_bytes[0] / 4 for phase in LAYER_PHASES[:3]}
    read = 8 * 16 * 11 * 23  # up to the last window
    assert moved["forward"] == moved["weight_gradient"] == read / 2 + weights + written
    assert moved["activation_gradient"] == read + weights + written


@pytest.mark.parametrize(
    ("fields", "winograd", "fourier"),
    [
        ({}, True, False),
        ({"stride": (2, 2)}, False, False),
        ({"kernel": (5, 5), "pad": (2, 2)}, False, True),
        ({"kernel": (5, 5), "pad": (2, 2), "stride": (2, 2)}, False, False),
        ({"kernel": (5, 5), "pad": (2, 2), "stride": (1, 2)}, False, False),
        ({"kernel": (5, 5), "pad": (2, 2), "dilation": (2, 2)}, False, False),
        ({"kernel": (5, 5), "pad": (2, 2), "groups": 2}, False, False),
        ({"kernel": (5, 7), "pad": (2, 3)}, False, False),
    ],
)
def test_fast_algorithms_are_for_plain_square_windows(fields, winograd, fourier):
    """3 x 3 by Winograd's algorithm, larger ones by Fourier transforms: stride 1, not dilated, one group."""
    window = convolution(**fields).window
    assert (window.winograd, window.fourier) == (winograd, fourier)


def test_linear_flattens_positions():
    operation = Linear(channels=24)
    kernels = work(operation, "forward", [shape(8, 16, 3, 5)], {"channel": 4})
    assert (kernels.rows[0], kernels.columns[0], kernels.depth[0]) == (6, 8, 240)
    assert kernels.memory_bytes[0] == 4 * (8 * 240 + 6 * 240 + 6 + 8 * 6)
    assert operation.output([shape(8, 16, 3, 5)]) == shape(8, 24)


def test_the_gradient_of_a_bias_reads_that_of_the_outputs_once_more():
    """Eight samples of five positions from 3 to 24 channels; half the channels have half the pass."""
    sample, length = (IntervalMap(dim=dim) for dim in ("sample", "length"))
    weight, bias = Parameter("weight", (24, 3)), Parameter("bias", (24,))

    def streamed(phase, *weights):
        product = TensorProduct(
            kind="matrix_product",
            dims=("channel", "length"),
            sizes=(24, 5),
            depth=3.0,
            weights=weights,
            reads=((sample, IntervalMap(dim=None), length),),
        )
        return np.max(work(product, phase, [shape(8, 3, 5)], {"channel": 2}).streamed_bytes)

    assert [streamed(phase, weight, bias) / 4 for phase in LAYER_PHASES] == [0, 0, 8 * 12 * 5, 0]
    assert streamed("weight_gradient", weight) == 0
    assert streamed("weight_gradient", weight, Parameter("bias", (24,), frozen=True)) == 0


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("degrees", [{}, {"sample": 4}, {"channel": 8}, {"sample": 2, "channel": 2, SUMMED: 4}])
def test_a_product_has_one_price(bias, degrees):
    """Of 256 x 4096 x 4096, of flattened samples and of the positions of sequences."""
    weights = [Parameter("weight", (4096, 4096)), *([Parameter("bias", (4096,))] if bias else [])]
    sample, length = (IntervalMap(dim=dim) for dim in ("sample", "length"))
    positions = TensorProduct(
        kind="matrix_product",
        dims=("channel", "length"),
        sizes=(4096, 16),
        depth=4096.0,
        weights=tuple(weights),
        reads=((sample, IntervalMap(dim=None), length),),
    )
    flat, inputs = Linear(channels=4096, bias=bias), ([shape(256, 4096)], [shape(16, 4096, 16)])
    slices = degrees.get(SUMMED, 1)
    for phase in LAYER_PHASES if slices == 1 else LAYER_PHASES[:3]:  # whole sums are shared out before their bias
        one, other = (sized(each, phase, rows, degrees) for each, rows in zip((flat, positions), inputs, strict=True))
        for name in ("flop", "memory_bytes", "rows", "columns", "depth"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-12), (phase, name)
        assert one.streamed_bytes * slices == pytest.approx(other.streamed_bytes, rel=1e-12)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "groups"),
    [
        ((3, 3), (1, 1), (1, 1), 1),
        ((3, 3), (2, 2), (1, 1), 1),
        ((1, 1), (2, 2), (1, 1), 1),
        ((5, 5), (1, 1), (2, 2), 4),
    ],
)
@pytest.mark.parametrize("degrees", [{}, {"sample": 4}, {"channel": 4}, {"height": 2, "width": 2}])
def test_a_convolution_has_one_price(kernel, stride, dilation, groups, degrees):
    """That of a layer of its own, and of one whose weights another layer has or that are computed from others."""
    geometry = list(zip(("height", "width"), kernel, stride, dilation, strict=True))
    pad = tuple(d * (k - 1) // 2 for _, k, _, d in geometry)
    own = convolution(kernel=kernel, stride=stride, pad=pad, dilation=dilation, groups=groups, bias=False)
    inputs = [shape(8, 16, 16, 16)]
    channel = IntervalMap(dim=None)
    if groups > 1:
        channel = IntervalMap(dim="channel", group_out=32 // groups, group_in=16 // groups)
    windows = [
        IntervalMap(dim=dim, kernel=k, stride=s, pad=p, dilation=d)
        for (dim, k, s, d), p in zip(geometry, pad, strict=True)
    ]
    shared = TensorProduct(
        kind="convolution_of_any_kind",
        dims=("channel", "height", "width"),
        sizes=own.output(inputs).sizes[1:],
        depth=float(16 // groups * math.prod(kernel)),
        weights=(Parameter("weight", (32, 16 // groups, *kernel)),),
        reads=((IntervalMap(dim="sample"), channel, *windows),),
    )
    for phase in LAYER_PHASES:
        one, other = (work(each, phase, inputs, degrees) for each in (own, shared))
        assert one.window == other.window, phase
        for name in ("flop", "memory_bytes", "rows", "columns", "depth", "streamed_bytes"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-12), (phase, name)
        biased = replace(shared, weights=(*shared.weights, Parameter("bias", (32,))))
        assert work(biased, phase, inputs, degrees).streamed_bytes == one.streamed_bytes  # software says its passes


def sized(operation, phase, inputs, degrees):
    """As ``work``, also of slices of a sum."""
    output = operation.output(inputs)
    part = {dim: np.array([size / degrees.get(dim, 1)]) for dim, size in zip(output.dims, output.sizes, strict=True)}
    return operation.kernels(phase, inputs, output, part | {SUMMED: np.array([float(degrees.get(SUMMED, 1))])})


def test_max_pooling_reads_its_inputs_again_backward():
    inputs, moved = [shape(2, 4, 8)], 2 * 4 * (8 + 4) * 4
    for mode, accesses in (("max", 2), ("average", 1)):
        operation = Pooling(mode=mode, kernel=(2,), stride=(2,), pad=(0,))
        assert work(operation, "forward", inputs).memory_bytes[0] == moved
        assert work(operation, "activation_gradient", inputs).memory_bytes[0] == accesses * moved


def test_a_sum_without_activation_passes_its_gradient_on():
    inputs = [shape(2, 4, 8)] * 2
    assert work(Add(), "activation_gradient", inputs).memory_bytes[0] == 0
    assert work(Add(activation="relu"), "activation_gradient", inputs).memory_bytes[0] == 3 * 64 * 4


@cases
def test_many_parts_at_once_equal_one_by_one(operation, count):
    inputs = [shape(*IMAGE)] * count
    output = operation.output(inputs)
    sizes = dict(zip(output.dims, output.sizes, strict=True))
    both = {dim: np.array([float(size), size / 2 if dim == "sample" else float(size)]) for dim, size in sizes.items()}
    for phase in LAYER_PHASES:
        bulk = operation.kernels(phase, inputs, output, both)
        alone = [work(operation, phase, inputs), work(operation, phase, inputs, {"sample": 2})]
        for field in ("flop", "memory_bytes", "rows", "columns", "depth", "samples"):
            assert getattr(bulk, field).tolist() == [getattr(kernels, field)[0] for kernels in alone]


@pytest.mark.parametrize(
    ("operation", "sizes", "expected"),
    [
        (Convolution(channels=4, kernel=(5,), stride=(2,), pad=(2,), dilation=(1,)), (2, 3, 16), (2, 4, 8)),
        (convolution(kernel=(3, 3), dilation=(2, 2), pad=(0, 0)), (2, 3, 9, 5), (2, 32, 5, 1)),
        (pooling(pad=(0, 0), ceil_mode=True), (2, 3, 6, 7), (2, 3, 3, 3)),
        (pooling(pad=(0, 0)), (2, 3, 6, 7), (2, 3, 2, 3)),
        (pooling(kernel=(2, 2), ceil_mode=True), (2, 3, 5, 6), (2, 3, 3, 4)),
        (GlobalPooling(), (2, 3, 6, 7, 8), (2, 3, 1, 1, 1)),
        (Loss(), (2, 10), (2, 10)),
    ],
)
def test_output_shapes(operation, sizes, expected):
    assert operation.output([shape(*sizes)]) == shape(*expected)


def test_concat_adds_the_channels():
    assert Concat().output([shape(2, 3, 5), shape(2, 4, 5)]) == shape(2, 7, 5)


def test_only_samples_of_a_loss_are_split():
    """Table 1 of the layer-wise paper, and all dimensions of a convolution or pooling."""
    assert Loss().parallel_dims(shape(8, 10)) == ("sample",)
    assert Loss().parallel_dims(shape(8, 10, 6)) == ("sample",)
    assert Loss(function="softmax_per_position").parallel_dims(shape(8, 10, 6)) == ("sample", "length")
    assert Linear(channels=10).parallel_dims(shape(8, 10)) == ("sample", "channel")
    assert convolution().parallel_dims(shape(*IMAGE)) == ("sample", "channel", "height", "width")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: convolution(channels=0), r"convolution\.channels must be an integer >= 1, got 0"),
        (lambda: convolution(channels=True), r"convolution\.channels must be an integer >= 1, got True"),
        (lambda: convolution(groups=5), r"convolution\.groups must divide its 32 channels, got 5"),
        (lambda: convolution(kernel=(3,)), r"convolution\.stride must have 1 sizes as kernel has, got \(1, 1\)"),
        (lambda: convolution(kernel=()), r"convolution\.kernel must have 1 to 3 sizes, got \(\)"),
        (lambda: convolution(pad=(-1, 0)), r"convolution\.pad must be an integer >= 0, got -1"),
        (lambda: convolution(stride=(1.5, 1)), r"convolution\.stride must be an integer >= 1, got 1\.5"),
        (lambda: convolution(activation="gelo"), r"convolution\.activation must be None or one of relu.*got 'gelo'"),
        (lambda: Linear(channels=3, dropout=1.0), r"linear\.dropout must be >= 0 and < 1, got 1\.0"),
        (lambda: Dropout(dropout=-0.1), r"dropout\.dropout must be >= 0 and < 1, got -0\.1"),
        (lambda: pooling(mode="min"), r"pooling\.mode must be one of max, average, got 'min'"),
        (lambda: pooling(pad=(2, 2)), r"pooling\.pad must be at most half the kernel 3, got 2"),
        (lambda: LocalResponseNorm(size=4), r"local_response_norm\.size must be odd, got 4"),
        (lambda: product(dims=("length", "channel"), sizes=(3, 4)), r"dims must be channel and up to three positions"),
        (lambda: product(dims=("channel", "length"), sizes=(4,)), r"dims must .*, with as many sizes, got .* \[4\]"),
        (lambda: product(dims=("channel", "time"), sizes=(4, 3)), r"dims must .*, got \['channel', 'time'\]"),
        (lambda: product(weights=sections((4, 4), 1)), r"parameter w must be behind one of its sections"),
        (lambda: product(weights=sections((3, 4), 1), **TWO), r"w must .*, of which the last dimension has 2, got 1"),
        (lambda: Loss(function="hinge"), r"loss\.function must be one of softmax, .* got 'hinge'"),
    ],
)
def test_bad_fields_are_named(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("operation", "inputs", "message"),
    [
        (convolution(), [shape(2, 3, 5)], "needs 2 position dimensions, got 2 x 3 x 5"),
        (convolution(), [shape(*IMAGE)] * 2, "convolution needs 1 input, got 2"),
        (convolution(groups=4), [shape(2, 6, 5, 5)], r"groups must divide the channels of 2 x 6 x 5 x 5, got 4"),
        (convolution(pad=(0, 0)), [shape(2, 3, 5, 2)], "kernel spans 3, must be at most the padded input's 2"),
        (GlobalPooling(), [shape(2, 3)], "needs positions to pool over, got 2 x 3"),
        (Add(), [shape(2, 3), shape(2, 4)], "add needs 2 or more inputs of one shape, got 2 x 3, 2 x 4"),
        (Concat(), [shape(2, 3, 5), shape(2, 3, 6)], "inputs that differ in channels only, got 2 x 3 x 5, 2 x 3 x 6"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(operation, inputs, message):
    with pytest.raises(ConfigError, match=message):
        operation.output(inputs)


def test_unknown_phases_are_refused():
    with pytest.raises(ConfigError, match=r"phase must be one of forward, .*, got 'backward'"):
        work(Loss(), "backward", [shape(2, 3)])
