"""Configurations offered: against enumeration; configurations given: every rule."""

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, strategies as st
from plans import inception_module

from groundwork.errors import ConfigError
from planner.graph.shapes import Shape
from planner.layouts.configurations import Configuration, all_configurations, part_bounds, space_of, strides_of
from planner.models.registry import load_model

DIMS = ("sample", "channel", "height", "width")
shapes = st.tuples(*[st.integers(1, 12)] * 4).map(lambda sizes: Shape(DIMS, sizes))
some_dims = st.sets(st.sampled_from(DIMS)).map(lambda chosen: tuple(dim for dim in DIMS if dim in chosen))


def strided(parts, count, node_size):
    """All places of so many parts, at distances of powers of two of devices or nodes."""
    distances = {unit << k for unit in (1, node_size) for k in range(5)}
    return {tuple(range(0, parts * each, each)) for each in distances if parts * each <= count or parts == each == 1}


@given(shapes, some_dims, st.integers(1, 9), st.integers(1, 4))
def test_offers_every_degree_that_divides_in_every_placement(shape, dims, count, node_size):
    """Brute force over all degrees; no configuration twice."""
    space = all_configurations(shape, dims, count, node_size)
    found = [(tuple(space.degrees[c].tolist()), space.configuration(c).devices) for c in range(space.size)]
    expected = set()
    for degrees in product(range(1, count + 1), repeat=4):
        allowed = all(degree == 1 or dim in dims for dim, degree in zip(DIMS, degrees, strict=True))
        divides = all(size % degree == 0 for size, degree in zip(shape.sizes, degrees, strict=True))
        if allowed and divides and prod(degrees) <= count:
            expected |= {(degrees, devices) for devices in strided(prod(degrees), count, node_size)}

    assert len(found) == len(set(found))
    assert set(found) == expected


@given(shapes, st.integers(1, 9), st.data())
def test_a_space_can_be_cut_and_made_of_one(shape, count, data):
    space = all_configurations(shape, DIMS, count)
    keep = data.draw(st.lists(st.integers(0, space.size - 1), min_size=1, max_size=5))
    cut = space.only(np.array(keep))

    assert [cut.configuration(i) for i in range(cut.size)] == [space.configuration(c) for c in keep]
    assert cut.parts.tolist() == [space.configuration(c).parts for c in keep]
    sizes = [[cut.largest_part()[dim][i] for dim in DIMS] for i in range(cut.size)]
    assert sizes == [[s / d for s, d in zip(shape.sizes, space.degrees[c], strict=True)] for c in keep]


@pytest.mark.parametrize("count", [1, 4, 6])
def test_every_offered_configuration_fits_its_layer(count):
    for layer in load_model("lenet5", batch=12).layers:
        space = all_configurations(layer.output, layer.parallel_dims, count)
        for c in range(space.size):
            one = space_of(layer, space.configuration(c), count)
            assert one.degrees[0].tolist() == space.degrees[c].tolist()
            assert tuple(one.devices) == space.configuration(c).devices


@given(st.integers(1, 100), st.integers(1, 20))
def test_parts_cover_a_dimension_in_order(size, degree):
    bounds = part_bounds(size, degree).tolist()
    lengths = [high - low for low, high in pairwise(bounds)]

    assert (bounds[0], bounds[-1], len(lengths)) == (0, size, degree)
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 16))
def test_what_fits_on_some_devices_fits_on_one_more(parts, count, node_size):
    """Also while the first node grows; neighbouring parts on neighbouring devices come first."""
    parts = min(parts, count)
    fewer, more = (set(strides_of(parts, n, min(n, node_size))) for n in (count, count + 1))
    assert fewer <= more
    assert strides_of(parts, count, node_size)[0] == 1
    assert parts * max(fewer) <= count


def test_prints_as_the_papers_do():
    configuration = Configuration({"sample": 4, "channel": 1, "height": 2, "width": 2}, tuple(range(16)))

    assert configuration.parts == 16
    assert configuration.describe() == "n=4 c=1 h=2 w=2"


@pytest.mark.parametrize(
    ("degrees", "devices", "message"),
    [
        ({"depth": 2}, (0, 1), "depth is not one of its parallelizable dimensions"),
        ({"sample": 3}, (0, 1, 2), "degree of sample must divide 8, got 3"),
        ({"sample": 0}, (), "degree of sample must divide 8, got 0"),
        ({"sample": -2}, (0, 1), "degree of sample must divide 8, got -2"),
        ({"sample": 8}, tuple(range(8)), "degrees multiply to 8 parts, the cluster has 4 devices"),
        ({"sample": 2, "channel": 4}, tuple(range(8)), "degrees multiply to 8 parts, the cluster has 4 devices"),
        ({"sample": 2}, (0, 1, 2), "devices must be 2 different ones, got 3"),
        ({"sample": 2}, (1, 1), "devices must be 2 different ones, got 2"),
        ({"sample": 2}, (0, 4), r"devices must be in 0..3, got 0..4"),
        ({"sample": 2}, (-1, 0), r"devices must be in 0..3, got -1..0"),
    ],
)
def test_refuses_what_does_not_fit(degrees, devices, message):
    layer = inception_module().layers[0]
    with pytest.raises(ConfigError, match=f"configuration of stem: .*{message}"):
        space_of(layer, Configuration(degrees, devices), 4)
