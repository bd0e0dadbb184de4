"""Shards of parameters: how many parts a layer's configuration divides each of its parameters into."""

from collections.abc import Sequence

from planner.graph.parameters import Parameter
from planner.layouts.configurations import ConfigSpace


def parameter_shards(parameter: Parameter, space: ConfigSpace) -> int:
    """Return the number of shards of a parameter under a space of one configuration."""
    if not parameter.split:
        return 1
    along = int(space.shards[0, 1])
    return along if parameter.summed is not None else along // int(space.sums[0])


def shard_elements(parameters: Sequence[Parameter], space: ConfigSpace) -> float:
    """Return the elements that each part trains of some parameters, under a space of one configuration."""
    return float(sum(each.elements / parameter_shards(each, space) for each in parameters))
