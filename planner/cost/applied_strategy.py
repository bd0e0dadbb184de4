"""Application of a strategy to a network: the graph with its partial sums, and a configuration for every layer."""

from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import ConfigSpace, Strategy
from planner.parallel.input_channel_split import check_configuration, slices_of
from planner.parallel.micro_batches import WHOLE_BATCH, MicroBatching
from planner.parallel.strategies import spaces_of


class AppliedStrategy(NamedTuple):
    """A strategy in the form that costs, lowering and runs read."""

    model: CostModel
    """Costs of the network's graph, or of one in which layers are split into partial sums."""
    spaces: list[ConfigSpace]
    """Space of every layer of that graph, which holds its one configuration."""
    micro_batching: MicroBatching
    """Micro-batches, by the layers of that graph."""


def applied(model: CostModel, strategy: Strategy, micro_batching: MicroBatching = WHOLE_BATCH) -> AppliedStrategy:
    """Apply a strategy to a network.

    Layers whose input channels are split become layers of partial sums and one that adds them up; without such layers
    the graph is the network's own.

    Args:
        model: Costs of the network.
        strategy: A configuration for every layer of the network.
        micro_batching: Layers of the network that take the mini-batch in micro-batches.

    Raises:
        ConfigError: A layer has no configuration, or one that does not fit it.
    """
    graph, count = model.graph.undivided, len(model.cluster.devices)
    slices = slices_of(strategy)
    if not slices:
        return AppliedStrategy(model, spaces_of(graph, strategy, count), micro_batching)
    for layer in graph.layers:
        if layer.name in slices:
            check_configuration(layer, strategy[layer.name], count)
    model = model.with_slices({layer.name: slices[layer.name] for layer in graph.layers if layer.name in slices})
    # the new graph has more layers: find the ones that layers of the network begin with
    first, *stages = (
        bisect_left(model.graph.origin, layer) for layer in (micro_batching.first, *micro_batching.stages)
    )
    micro_batching = replace(micro_batching, first=first, stages=tuple(stages))
    return AppliedStrategy(model, spaces_of(model.graph, strategy, count), micro_batching)
