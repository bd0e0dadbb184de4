"""Boxes of parts: they tile the tensor, and layouts are equal where the boxes on all devices are."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import inception_module, small_graphs

from planner.layouts.configurations import all_configurations
from planner.layouts.regions import held_regions, layout_keys, needed_regions
from planner.models.builder import ModelBuilder

WAYS = 6


def boxes_by_configuration(space, boxes):
    """For each configuration the boxes of its parts, as tuples with their devices."""
    for first, last in zip(space.device_start[:-1], space.device_start[1:], strict=True):
        columns = (space.devices, boxes.low, boxes.high)
        devices, lows, highs = (column[first:last].tolist() for column in columns)
        yield [(d, tuple(low), tuple(high)) for d, low, high in zip(devices, lows, highs, strict=True)]


@settings(max_examples=12)
@given(small_graphs(), st.integers(1, WAYS))
def test_held_boxes_tile_the_output_in_equal_parts(graph, count):
    for layer in graph.layers:
        space = all_configurations(layer.output, layer.parallel_dims, count)
        for boxes in boxes_by_configuration(space, held_regions(space)):
            seen = np.zeros(layer.output.sizes, dtype=int)
            for _, low, high in boxes:
                seen[tuple(slice(*pair) for pair in zip(low, high, strict=True))] += 1
            assert np.all(seen == 1)
            assert len({tuple(np.subtract(high, low)) for _, low, high in boxes}) == 1


@settings(max_examples=12)
@given(small_graphs(), st.integers(1, WAYS))
def test_layouts_are_equal_where_the_boxes_are(graph, count):
    """The 64-bit hash tells apart what the set of (device, box) pairs tells apart, and no more."""
    for edge in graph.edges:
        layer, source = graph.layers[edge.consumer], graph.layers[edge.producer].output
        space = all_configurations(layer.output, layer.parallel_dims, count)
        interval_maps = layer.operation.interval_maps(edge.slot, layer.input_shapes)
        boxes = needed_regions(space, interval_maps, source)
        sets = [
            frozenset((device, low, high) for device, low, high in row if low[0] < high[0])
            for row in boxes_by_configuration(space, boxes)
        ]
        numbers = layout_keys(space, interval_maps, source).tolist()

        assert len(set(numbers)) == len(set(sets)) == len(set(zip(numbers, sets, strict=True)))


def test_boxes_that_nothing_needs_are_empty():
    """A part of a concatenation that lies in its other input."""
    net = ModelBuilder("joined", batch=2, image=(4, 4))
    one, two = net.conv(2, 1, name="one"), net.conv(2, 1, "input", name="two")
    net.concat([one, two], name="concat")
    graph = net.build()
    concat = graph.layers[2]
    space = all_configurations(concat.output, ("channel",), 2)
    boxes = needed_regions(space, concat.operation.interval_maps(0, concat.input_shapes), graph.layers[0].output)

    assert boxes.low.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert boxes.high.tolist() == [[2, 2, 4], [2, 2, 4], [0, 0, 0]]  # whole; first half; second half: nothing
    assert boxes.volume.tolist() == [16, 16, 0]


@pytest.mark.parametrize("name", ["one", "reduce"])
def test_consumers_alike_ask_for_the_same_layouts(name):
    graph = inception_module()
    layer, stem = graph.layers[graph.index[name]], graph.layers[0].output
    space = all_configurations(layer.output, layer.parallel_dims, 4)
    other = graph.layers[graph.index["three"]]
    numbers = layout_keys(space, layer.operation.interval_maps(0, layer.input_shapes), stem)
    windows = layout_keys(space, other.operation.interval_maps(0, (stem,)), stem)

    whole_rows = (space.degrees[:, 2:] == 1).all(axis=1)
    assert np.array_equal(numbers == windows, whole_rows)  # 3 x 3 windows differ where height or width are cut
