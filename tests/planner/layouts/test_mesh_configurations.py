"""Configurations on a mesh, against all ways to split indices by its axes."""

import itertools
import math

import pytest

from planner.graph.shapes import SUMMED
from planner.layouts.configurations import LETTERS, mesh_configurations
from planner.layouts.mesh import Mesh
from planner.models.builder import ModelBuilder


def layers():
    """A convolution with 6 channels of 4, batch normalisation, and a product with 10 channels of 6 x 12."""
    net = ModelBuilder("meshed", batch=12, image=(4, 4, 3))
    net.conv(6, 3, batch_norm=True)
    net.linear(10)
    net.loss()
    return net.build().layers


def equal(size, parts):
    return len({len(range(part, size, parts)) for part in range(parts)}) == 1


@pytest.mark.parametrize("sizes", [(4,), (2, 2), (2, 3), (3, 2), (2, 2, 2)])
@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_all_that_make_equal_parts_are_there(layer, sizes):
    """Of every index, and of the channels where parts that complete sums have shares of these; samples go first."""
    mesh = Mesh(tuple((f"axis {i}", size) for i, size in enumerate(sizes)), tuple(range(math.prod(sizes))))
    summed = layer.operation.summed_size(layer.input_shapes)
    whole = {dim: layer.output.size(dim) for dim in layer.mesh_dims} | ({SUMMED: summed} if summed else {})
    wanted = []
    for splits in itertools.combinations_with_replacement(
        [*(each for each in LETTERS if each in whole), None], len(sizes)
    ):
        degrees = {
            index: math.prod(size for size, split in zip(sizes, splits, strict=True) if split == index)
            for index in whole
        }
        shares = degrees.get("channel", 1) * (degrees.get(SUMMED, 1) if layer.operation.completes_sums else 1)
        if all(equal(whole[index], parts) for index, parts in degrees.items()) and equal(
            layer.output.size("channel"), shares
        ):
            wanted.append(splits)

    found = mesh_configurations(layer, mesh).on_meshes
    assert sorted([tuple(map(str, each.splits)) for each in found]) == sorted(tuple(map(str, each)) for each in wanted)
