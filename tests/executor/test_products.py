"""Gradients of weights as matrix products: those of torch's convolutions, made in their places."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from executor.layers import Step, part_layer
from executor.layers.products import Product
from planner import keeping
from planner.configurations import ConfigSpace
from planner.models import ModelBuilder

CONVOLUTIONS = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)
sizes_of = st.integers(1, 4)


@given(st.data())
def test_a_product_is_the_gradient_of_torchs_convolution(data):
    draw = data.draw
    rank = draw(st.integers(1, 3))
    kernel, stride, dilation = (tuple(draw(st.integers(1, 3)) for _ in range(rank)) for _ in range(3))
    pad, positions = tuple(draw(st.integers(0, 2)) for _ in range(rank)), tuple(draw(sizes_of) + 2 for _ in range(rank))
    assume(all(d * (k - 1) < n + 2 * p for d, k, n, p in zip(dilation, kernel, positions, pad, strict=True)))
    samples, channels, filters = draw(sizes_of), draw(sizes_of), draw(sizes_of)
    random = torch.Generator().manual_seed(0)
    values = torch.randn(samples, channels, *positions, generator=random, dtype=torch.float64)
    weight = torch.zeros(filters, channels, *kernel, dtype=torch.float64, requires_grad=True)
    output = CONVOLUTIONS[rank - 1](values, weight, None, stride, pad, dilation)
    upstream = torch.randn(output.shape, generator=random, dtype=torch.float64)
    (expected,) = torch.autograd.grad(output, weight, upstream)
    place = torch.full_like(expected, torch.nan)
    assert Product(kernel, stride, pad, dilation).weight_gradient(upstream, values, place) is place
    torch.testing.assert_close(place, expected, rtol=0, atol=1e-12 * math.prod(upstream.shape))


def weight_gradient_of(net, *, dtype):
    """Gradients of the last layer's only part, by its own tensors and in places; with those places."""
    graph = net.build()
    layer = graph.layers[-1]
    space = ConfigSpace(layer.output, layer.parallel_dims, np.array([[1] * len(layer.output.dims)]), np.array([0, 1]),
                        np.array([0]))  # fmt: skip
    part = part_layer(graph, len(graph.layers) - 1, space, 0, dtype=dtype, device="cpu")
    shapes = {parameter.name: parameter.shape for parameter in layer.parameters}
    part.forward(
        [torch.randn(layer.input_shapes[0].sizes, dtype=dtype)],
        {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()},
        Step(0, 0),
    )
    part.begin_backward(torch.randn(layer.output.sizes, dtype=dtype))
    places = {name: torch.full(shape, torch.nan, dtype=dtype) for name, shape in shapes.items()}
    return part.weight_gradient(), part.weight_gradient(places), places


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["convolution", "linear"])
def test_products_are_written_where_they_are_summed(kind, dtype):
    net = ModelBuilder("product", batch=2, image=(160, 2, 2))
    if kind == "convolution":
        net.conv(160, 3, pad=1)
        assert keeping.as_product(net.build().layers[-1].operation, 160 * 160, 2 * 2 * 2)
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
    assert not keeping.as_product(net.build().layers[-1].operation, 8 * 8, 2 * 8 * 8)
    _, placed, places = weight_gradient_of(net, dtype=torch.float64)
    assert placed["weight"] is not places["weight"]
