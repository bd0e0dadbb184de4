"""Slices of parameters that parts hold."""

from executor.runtime.boxes import Box
from planner.graph.computation_graph import Layer
from planner.graph.parameters import parameter_maps
from planner.graph.shapes import Shape
from planner.layouts.configurations import ConfigSpace
from planner.layouts.regions import needed_regions


def parameter_boxes(layer: Layer, space: ConfigSpace, part: int) -> dict[str, Box]:
    """Return the slice of each parameter of a layer that a part holds, by name.

    Args:
        layer: The layer.
        space: The space that holds its one configuration.
        part: Index of the part.
    """
    boxes = {}
    for each in layer.parameters:
        maps, dims = parameter_maps(each, layer.output), tuple(map(str, range(len(each.shape))))
        box = Box.of(needed_regions(space, maps, Shape(dims, each.shape)), part) if dims else Box((), ())
        boxes[each.name] = box
    return boxes
