"""What a part needs of each input, against the index sets that the definition of the operation reads."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

from planner.graph.shapes import Shape
from planner.operations.checks import position_dims
from planner.operations.convolution import Convolution
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling


def shape(*sizes):
    return Shape(("sample", "channel", *position_dims(len(sizes) - 2)), sizes)


def hull(indices):
    return (min(indices), max(indices) + 1) if indices else (0, 0)


def asked(operation, slot, inputs, axis, low, high):
    """Bounds that the operation states for one input dimension, the other output dimensions whole."""
    interval_map = operation.interval_maps(slot, inputs)[axis]
    start, stop = interval_map.interval(np.array([low]), np.array([high]), inputs[slot].sizes[axis])
    return int(start[0]), int(stop[0])


@st.composite
def intervals(draw, size):
    low = draw(st.integers(0, size - 1))
    return low, draw(st.integers(low + 1, size))


@st.composite
def windows(draw, *, pooling):
    """A window operation in 1 to 3 dimensions, and an input that it fits."""
    rank = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    stride = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    pad = tuple(draw(st.integers(0, size // 2 if pooling else 3)) for size in kernel)
    if pooling:
        operation = Pooling(mode="max", kernel=kernel, stride=stride, pad=pad, ceil_mode=draw(st.booleans()))
        dilation, channels = (1,) * rank, draw(st.integers(1, 4))
    else:
        dilation = tuple(draw(st.integers(1, 3)) for _ in range(rank))
        groups = draw(st.integers(1, 3))
        operation = Convolution(
            channels=groups * draw(st.integers(1, 3)),
            kernel=kernel,
            stride=stride,
            pad=pad,
            dilation=dilation,
            groups=groups,
        )
        channels = groups * draw(st.integers(1, 3))
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = [draw(st.integers(max(1, span - 2 * p), span + 9)) for span, p in zip(spans, pad, strict=True)]
    return operation, shape(draw(st.integers(1, 4)), channels, *sizes), dilation


def check_windows(operation, given_shape, dilation, data):
    """Bounds equal those of the padded windows, cut; they are tight where the windows leave no gaps."""
    output = operation.output([given_shape])
    for axis in range(2, len(output.sizes)):
        kernel, stride, pad = (values[axis - 2] for values in (operation.kernel, operation.stride, operation.pad))
        step, size = dilation[axis - 2], given_shape.sizes[axis]
        low, high = data.draw(intervals(output.sizes[axis]))
        padded = {o * stride - pad + step * tap for o in range(low, high) for tap in range(kernel)}
        read = {i for i in padded if 0 <= i < size}
        start, stop = asked(operation, 0, [given_shape], axis, low, high)

        cut = set(range(*hull(padded))) & set(range(size))
        assert (start, stop) == hull(cut)
        assert read <= set(range(start, stop))
        if step == 1 and kernel >= stride:
            assert (start, stop) == hull(read)


@given(case=windows(pooling=False), data=st.data())
def test_convolution_needs_the_windows_of_its_part(case, data):
    check_windows(*case, data)


@given(case=windows(pooling=True), data=st.data())
def test_pooling_needs_the_windows_of_its_part(case, data):
    operation, given_shape, dilation = case
    check_windows(operation, given_shape, dilation, data)
    low, high = data.draw(intervals(given_shape.size("channel")))
    assert asked(operation, 0, [given_shape], 1, low, high) == (low, high)


@given(case=windows(pooling=True))
def test_every_window_of_a_pooling_meets_the_input(case):
    """Ceil mode adds a window that sticks out, never one that lies in the padding; none is left out."""
    operation, given_shape, _ = case
    for axis, count in enumerate(operation.output([given_shape]).positions):
        kernel, stride, pad = (values[axis] for values in (operation.kernel, operation.stride, operation.pad))
        size = given_shape.positions[axis]
        last, following = (count - 1) * stride - pad, count * stride - pad
        assert last < size
        if operation.ceil_mode:
            assert following >= size or last + kernel >= size + pad
        else:
            assert last + kernel <= size + pad < following + kernel


@given(case=windows(pooling=False), data=st.data())
def test_convolution_needs_the_input_channels_of_its_groups(case, data):
    operation, given_shape, _ = case
    channels = given_shape.size("channel")
    per_group_out, per_group_in = operation.channels // operation.groups, channels // operation.groups
    low, high = data.draw(intervals(operation.channels))
    groups = {o // per_group_out for o in range(low, high)}
    read = {i for i in range(channels) if i // per_group_in in groups}

    assert asked(operation, 0, [given_shape], 1, low, high) == hull(read)


@given(size=st.sampled_from([1, 3, 5, 7]), channels=st.integers(1, 12), data=st.data())
def test_response_normalisation_has_a_halo_in_the_channels(size, channels, data):
    low, high = data.draw(intervals(channels))
    read = {i for i in range(channels) if any(abs(i - o) <= size // 2 for o in range(low, high))}

    assert asked(LocalResponseNorm(size=size), 0, [shape(2, channels, 3)], 1, low, high) == hull(read)


@given(channels=st.lists(st.integers(1, 5), min_size=2, max_size=5), data=st.data())
def test_concat_reads_each_channel_from_the_input_that_holds_it(channels, data):
    inputs = [shape(2, count, 4) for count in channels]
    low, high = data.draw(intervals(sum(channels)))
    starts = np.concatenate([[0], np.cumsum(channels)])
    for slot, (first, last) in enumerate(pairwise(starts)):
        read = {o - int(first) for o in range(low, high) if first <= o < last}
        assert asked(Concat(), slot, inputs, 1, low, high) == hull(read)
        assert asked(Concat(), slot, inputs, 2, 1, 3) == (1, 3)


@pytest.mark.parametrize("operation", [Linear(channels=6), Loss(), Loss(function="mean_squared_error")])
def test_sums_over_a_sample_need_all_of_it(operation):
    inputs = [shape(8, 6, 5, 4)]
    assert asked(operation, 0, inputs, 0, 2, 4) == (2, 4)
    assert [asked(operation, 0, inputs, axis, 0, 1) for axis in (1, 2, 3)] == [(0, 6), (0, 5), (0, 4)]


def test_global_pooling_needs_all_positions_of_its_channels():
    inputs = [shape(8, 6, 5, 4)]
    bounds = [asked(GlobalPooling(), 0, inputs, axis, 0, 1) for axis in range(4)]
    assert bounds == [(0, 1), (0, 1), (0, 5), (0, 4)]


@pytest.mark.parametrize("operation", [Add(), BatchNorm()])
def test_pointwise_operations_need_the_same_part(operation):
    inputs = [shape(8, 6, 5, 4)] * 2
    assert [asked(operation, 0, inputs, axis, 1, 3) for axis in range(4)] == [(1, 3)] * 4
