"""A strategy applied to a model: the graph that it asks for, with a configuration for every layer of that graph."""

from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

from planner.cost.cost_model import CostModel
from planner.parallel import (
    WHOLE_BATCH,
    ConfigSpace,
    MicroBatching,
    Strategy,
    check_configuration,
    slices_of,
    spaces_of,
)

__all__ = ["Applied", "applied"]


class Applied(NamedTuple):
    """A strategy as what prices, lowering and runs read."""

    model: CostModel
    """Of the model's graph, or of one in which layers are partial sums."""
    spaces: list[ConfigSpace]
    """For every layer of that graph the space that holds its one configuration."""
    micro_batching: MicroBatching
    """By the layers of that graph."""


def applied(model: CostModel, strategy: Strategy, micro_batching: MicroBatching = WHOLE_BATCH) -> Applied:
    """Turn a strategy into the graph that it asks for, with a configuration for every layer of it.

    Where no input channels are split, that is the model's own graph.

    Args:
        model: Prices of the model.
        strategy: A configuration for every layer of the model.
        micro_batching: Layers of the model that take the mini-batch in micro-batches.

    Raises:
        ConfigError: A layer has no configuration, or one that does not fit it.
    """
    graph, count = model.graph.undivided, len(model.cluster.devices)
    slices = slices_of(strategy)
    if not slices:
        return Applied(model, spaces_of(graph, strategy, count), micro_batching)
    for layer in graph.layers:
        if layer.name in slices:
            check_configuration(layer, strategy[layer.name], count)
    model = model.with_slices({layer.name: slices[layer.name] for layer in graph.layers if layer.name in slices})
    first, *stages = (
        bisect_left(model.graph.origin, layer) for layer in (micro_batching.first, *micro_batching.stages)
    )
    micro_batching = replace(micro_batching, first=first, stages=tuple(stages))
    return Applied(model, spaces_of(model.graph, strategy, count), micro_batching)
