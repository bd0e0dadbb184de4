"""Shards of parameters: how many parts a layer's configuration divides each of its parameters into."""

from collections.abc import Sequence
from functools import lru_cache

from planner.graph.computation_graph import Layer
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import ConfigSpace
from planner.layouts.storage import Storage


def parameter_shards(parameter: Parameter, space: ConfigSpace) -> int:
    """Return the number of shards of a parameter under a space of one configuration."""
    shards = int(space.shards(parameter.split)[0])
    return shards if SUMMED in parameter.indices else shards // int(space.sums[0])


def replicas_of(layer: Layer, space: ConfigSpace) -> int:
    """Return how many parts hold the same shard of a layer's parameters, and sum their gradients."""
    return _replicas(space.in_all, layer.split)


@lru_cache(maxsize=4096)
def _replicas(space: ConfigSpace, split: tuple[str, ...]) -> int:
    """Return how many parts hold the same shard of a parameter that some dimensions of the output split."""
    return int(space.replica_grid(split)[0, ::2].prod())


def storage_shards(storage: Storage, layer: Layer, space: ConfigSpace) -> int:
    """Return the shards of a layer's optimizer state over its replicas, under a space of one configuration."""
    replicas = replicas_of(layer, space)
    return storage.shards(replicas) if storage.divides and replicas > 1 else 1


def shard_elements(parameters: Sequence[Parameter], space: ConfigSpace) -> float:
    """Return the elements that each part trains of some parameters, under a space of one configuration."""
    return float(sum(each.elements / parameter_shards(each, space) for each in parameters))
