"""Notes on what a strategy divides unequally, or not: devices that idle, products computed alike, unequal parts."""

import math
from collections.abc import Sequence

import numpy as np

from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Layer
from planner.graph.shapes import REPEATED, SUMMED
from planner.layouts.configurations import Configuration, Strategy
from planner.models.registry import with_words
from planner.operations.products import Attention
from planner.strategies.micro_batches import MicroBatching

_NAMED = 3
"""Layers that a note names."""


def mesh_notes(model: CostModel, strategy: Strategy) -> tuple[str, ...]:
    """Return notes on a strategy on meshes; none of strategies that have none.

    Args:
        model: Prices of a network on a cluster.
        strategy: Configuration of every layer.
    """
    if all(each.mesh is None for each in strategy.values()):
        return ()
    notes, count = list[str](), len(model.cluster.devices)
    if idle := count - len({device for each in strategy.values() for device in each.devices}):
        notes.append(f"{idle} of {count} devices idle: the degrees multiply to fewer")
    layers = model.graph.layers
    repeated = [layer for layer in layers if strategy[layer.name].degrees.get(REPEATED, 1) > 1 and _has_product(layer)]
    if repeated:
        notes.append(f"products that several devices compute alike: {_names(repeated)}")
    if masked := {layer: parts for layer in layers if (parts := _causal_parts(layer, strategy[layer.name])) > 1}:
        parts = max(masked.values())
        notes.append(
            f"causal attention over {parts} parts of the positions, of which the last has {2 - 1 / parts:.4g} times "
            f"the mean work and sets the time: {_names([*masked])}; zigzag beside context=N makes them equal, "
            "ulysses splits heads"
        )
    uneven = {layer: sizes for layer in layers if (sizes := _uneven_sizes(layer, strategy[layer.name]))}
    if uneven:
        pairs = {(size, size + -size % degree) for sizes in uneven.values() for size, degree in sizes}
        equal = [f"{padded:,} for {size:,}{_as_model(model.graph.name, size, padded)}" for size, padded in pairs]
        notes.append(
            f"layers in parts of unequal size, of which the largest sets the time: {_names([*uneven])}; equal with "
            f"{', '.join(sorted(equal)[:_NAMED])}"
        )
    return tuple(notes)


def stage_notes(model: CostModel, strategy: Strategy, micro_batching: MicroBatching) -> tuple[str, ...]:
    """Return a note on pipeline stages that could have more equal work.

    A greedy division leaves every stage at most the mean work and one layer: stages beyond that were not divided by
    their work alone.

    Args:
        model: Prices of a network on a cluster.
        strategy: Configuration of every layer.
        micro_batching: Stages of the pipeline; none: no notes.
    """
    starts = micro_batching.stages
    if len(starts) < 2:
        return ()
    costs = (model.node_costs(i, space) for i, space in enumerate(model.spaces_of(strategy)))
    layer_s = np.array([float(each.compute_s[0]) for each in costs])
    stage_s = np.add.reduceat(layer_s, starts)
    slowest, mean_s = int(stage_s.argmax()), stage_s.mean()
    if stage_s[slowest] <= mean_s + layer_s.max():
        return ()
    return (
        f"stages have unequal work: that of {model.graph.layers[starts[slowest]].name} has "
        f"{stage_s[slowest] / mean_s:.3g} times the mean and sets the pace, as memory, gradient synchronisation or "
        "transfers allow no more equal ones; recomputation and sharded storage save memory",
    )


def _as_model(name: str, size: int, padded: int) -> str:
    """Return how a model is named whose words are padded, as frameworks pad them, in brackets; else an empty text."""
    found = with_words(name, size, padded)
    return f" ({found} pads its words)" if found else ""


def _has_product(layer: Layer) -> bool:
    """Return whether a layer multiplies matrices, as products, convolutions and attention do."""
    whole = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    return bool(layer.kernels("forward", whole).rows[0] > 0)


def _causal_parts(layer: Layer, configuration: Configuration) -> int:
    """Return the parts into which queries that read no later keys are split; 1 of layers that have none.

    Attention of separate kernels computes the scores of later keys too.
    """
    causal = isinstance(layer.operation, Attention) and layer.operation.causal and layer.operation.fused
    parts = math.prod(configuration.degrees.get(dim, 1) for dim in layer.output.dims[2:]) if causal else 1
    return 1 if parts == layer.operation.zigzag else parts


def _uneven_sizes(layer: Layer, configuration: Configuration) -> list[tuple[int, int]]:
    """Return the sizes of a layer that a degree does not divide, with the degree."""
    sizes = dict(zip(layer.output.dims, layer.output.sizes, strict=True))
    sizes[SUMMED] = layer.summed_size
    degrees = configuration.degrees.items()
    return [(sizes[dim], degree) for dim, degree in degrees if dim in sizes and sizes[dim] % degree]


def _names(layers: Sequence[Layer]) -> str:
    """Return the names of the first layers, and how many more there are."""
    more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
    return ", ".join(layer.name for layer in layers[:_NAMED]) + more
