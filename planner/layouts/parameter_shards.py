"""Shards of parameters: how many parts a layer's configuration divides each of its parameters into."""

from collections.abc import Sequence

from planner.graph.parameters import Parameter
from planner.layouts.configurations import ConfigSpace
from planner.layouts.storage import Storage


def parameter_shards(parameter: Parameter, space: ConfigSpace) -> int:
    """Return the number of shards of a parameter under a space of one configuration."""
    if not parameter.split:
        return 1
    along = int(space.shards[0, 1])
    return along if parameter.summed is not None else along // int(space.sums[0])


def replicas_of(space: ConfigSpace) -> int:
    """Return how many parts hold the same shard of a layer's parameters, and sum their gradients."""
    before, _, behind, _ = space.in_all.shards[0].tolist()
    return int(before * behind)


def storage_shards(storage: Storage, space: ConfigSpace) -> int:
    """Return the shards of a layer's optimizer state over its replicas, under a space of one configuration."""
    replicas = replicas_of(space)
    return storage.shards(replicas) if storage.divides and replicas > 1 else 1


def shard_elements(parameters: Sequence[Parameter], space: ConfigSpace) -> float:
    """Return the elements that each part trains of some parameters, under a space of one configuration."""
    return float(sum(each.elements / parameter_shards(each, space) for each in parameters))
