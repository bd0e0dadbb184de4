"""Gradients of weights as matrix products: those of torch's convolutions, made in their places."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.layers.kernels.products import product_of
from executor.measurement.memory_meter import MemoryMeter
from planner.layouts.configurations import ConfigSpace
from planner.memory.cpu_backend import GradientForm, KernelPositions, gradient_forms, scratch_elements
from planner.models.builder import ModelBuilder

CONVOLUTIONS = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
sizes_of = st.integers(1, 4)


def convolutions(draw):
    """Sizes of a convolution along its positions, and of its input."""
    rank = draw(st.integers(1, 3))
    kernel, stride, dilation = (tuple(draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(3))
    pad, positions = tuple(draw(st.integers(0, 2)) for _ in range(rank)), tuple(draw(sizes_of) + 2 for _ in range(rank))
    assume(all(d * (k - 1) < n + 2 * p for d, k, n, p in zip(dilation, kernel, positions, pad, strict=True)))
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(positions, pad, dilation, kernel, stride, strict=True)
    ]
    taps = KernelPositions(
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        outputs=np.array([counts]),
        inputs=np.array([positions]),
        pad=np.array([pad]),
    )
    return taps, pad, positions


@pytest.mark.parametrize("form", [GradientForm.WINDOWS, GradientForm.POSITIONS])
@given(data=st.data())
def test_a_product_is_the_gradient_of_torchs_convolution(form, data):
    draw = data.draw
    taps, pad, positions = convolutions(draw)
    samples, channels, filters = draw(sizes_of), draw(sizes_of), draw(sizes_of)
    random = torch.Generator().manual_seed(0)
    values = torch.randn(samples, channels, *positions, generator=random, dtype=torch.float64)
    weight = torch.zeros(filters, channels, *taps.kernel, dtype=torch.float64, requires_grad=True)
    output = CONVOLUTIONS[len(pad) - 1](values, weight, None, taps.stride, pad, taps.dilation)
    upstream = torch.randn(output.shape, generator=random, dtype=torch.float64)
    (expected,) = torch.autograd.grad(output, weight, upstream)
    place = torch.full_like(expected, torch.nan)
    assert product_of(taps, form).weight_gradient(upstream, values, place) is place
    torch.testing.assert_close(place, expected, rtol=0, atol=1e-12 * math.prod(upstream.shape))


@given(st.data())
def test_the_share_inside_is_what_windows_of_ones_hold(data):
    taps, pad, positions = convolutions(data.draw)
    ones = [torch.ones(1, 1, *sizes, dtype=torch.float64) for sizes in (positions, taps.kernel)]
    held = CONVOLUTIONS[len(pad) - 1](*ones, None, taps.stride, pad, taps.dilation)
    np.testing.assert_allclose(taps.share(), float(held.mean()) / taps.count, rtol=1e-12)


@pytest.mark.parametrize("form", [GradientForm.WINDOWS, GradientForm.POSITIONS])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_scratch_is_what_products_allocate(form, data):
    """By the allocator's own reports; several samples and channels, so that orders differ."""
    draw = data.draw
    taps, _, positions = convolutions(draw)
    samples, channels, filters = (draw(st.integers(2, 5)) for _ in range(3))
    assume(math.prod(positions) > 1)
    assume(taps.outputs.prod() > 1)
    values = torch.randn(samples, channels, *positions)
    gradient = torch.randn(samples, filters, *taps.outputs[0].tolist())
    place = torch.empty(filters, channels, *taps.kernel)
    product = product_of(taps, form)
    meter = MemoryMeter()
    meter.start()
    product.weight_gradient(gradient, values, place)
    held = meter.stop()
    expected = scratch_elements(
        taps,
        np.array([form]),
        channels=channels,
        output_channels=np.array([float(filters)]),
        samples=np.array([float(samples)]),
    )
    assert held.peak_bytes == 4 * expected[0]


def test_parts_with_many_weights_or_much_padding_take_products():
    """Many weights and few windows: one product; several windows that reach over the border: taps; else neither."""

    def form_of(size, samples, channels, groups=1):
        taps = KernelPositions(
            kernel=(3, 3),
            stride=(1, 1),
            dilation=(1, 1),
            outputs=np.array([[size, size]]),
            inputs=np.array([[size, size]]),
            pad=np.array([[1, 1]]),
        )
        filters = np.array([float(channels * channels)])
        return int(gradient_forms(taps, filters=filters, samples=np.array([float(samples)]), groups=groups)[0])

    assert form_of(2, 8, 512) == GradientForm.WINDOWS
    assert form_of(4, 16, 256) == GradientForm.POSITIONS
    assert form_of(4, 16, 256, groups=2) == GradientForm.LIBRARY
    assert form_of(8, 16, 256) == GradientForm.LIBRARY
    assert form_of(4, 16, 64) == GradientForm.LIBRARY


def weight_gradient_of(net, *, dtype):
    """Gradients of the last layer's only part, by its own tensors and in places; with those places."""
    graph = net.build()
    layer = graph.layers[-1]
    degrees, once = np.ones((1, len(layer.output.dims)), dtype=np.int64), np.ones(1, dtype=np.int64)
    space = ConfigSpace(layer.output, layer.parallel_dims, degrees, once, once[:0], once, once, once)
    part = part_layer(graph, len(graph.layers) - 1, space, 0, dtype=dtype, device="cpu")
    shapes = {parameter.name: parameter.shape for parameter in layer.parameters}
    part.forward(
        [torch.randn(layer.input_shapes[0].sizes, dtype=dtype)],
        {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()},
        TrainingStep(0, 0),
    )
    part.begin_backward(torch.randn(layer.output.sizes, dtype=dtype))
    places = {name: torch.full(shape, torch.nan, dtype=dtype) for name, shape in shapes.items()}
    return part.weight_gradient(), part.weight_gradient(places), places


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("channels", "samples", "size"), [(160, 2, 2), (96, 8, 4), (160, 2, 0)])
def test_products_are_written_where_they_are_summed(channels, samples, size, dtype):
    """Of all windows, by taps, and of a linear layer."""
    net = ModelBuilder("product", batch=samples, image=(channels, size or 2, size or 2))
    if size:
        net.conv(channels, 3, pad=1)
    else:
        net.linear(7)
    plain, placed, places = weight_gradient_of(net, dtype=dtype)
    assert placed.keys() == places.keys() == {"weight", "bias"}
    for name, place in places.items():
        assert placed[name] is place
        torch.testing.assert_close(place, plain[name], rtol=0, atol=0)


def test_few_weights_a_window_are_left_to_the_library():
    net = ModelBuilder("library", batch=2, image=(8, 8, 8))
    net.conv(8, 3, pad=1)
    _, placed, places = weight_gradient_of(net, dtype=torch.float64)
    assert placed["weight"] is not places["weight"]
