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
from planner.search.pipeline_stages import balanced
from planner.strategies.micro_batches import MicroBatching

_NAMED = 3
"""Layers that a note names."""
_EVEN = 1.1
"""Share of the mean up to which the work of stages counts as equal."""


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
    if cut := {layer: heads for layer in layers if (heads := _undivided_heads(layer, strategy[layer.name]))}:
        said = " and ".join(sorted({*cut.values()}))
        notes.append(
            f"{said}: {_names([*cut])}; products of these heads are repeated, or beside sequence split positions"
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
    """Return a note on pipeline stages of unequal work, and on what keeps them so.

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
    slowest, share = int(stage_s.argmax()), stage_s.max() / stage_s.mean()
    if share <= _EVEN:
        return ()
    least_s = np.add.reduceat(layer_s, balanced(layer_s, len(starts))[:-1]).max()
    why = "no runs of layers are more equal; other numbers of stages may be"
    if stage_s[slowest] > least_s * _EVEN:
        why = (
            "memory, gradient synchronisation or transfers allow no more equal ones; recomputation and sharded storage "
            "save memory"
        )
    return (
        f"stages have unequal work: that of {model.graph.layers[starts[slowest]].name} has {share:.3g} times the mean "
        f"and sets the pace, as {why}",
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


def _undivided_heads(layer: Layer, configuration: Configuration) -> str:
    """Return, in words, the heads of attention that an axis of tensor parallelism does not divide."""
    degree = dict(configuration.mesh.axes).get("tensor", 1) if configuration.mesh else 1
    if not isinstance(layer.operation, Attention):
        return ""
    heads, key_heads = layer.operation.head_counts(layer.input_shapes, layer.output)
    for count, of in ((heads, "heads"), (key_heads, "heads of keys")):
        if count % degree:
            return f"tensor={degree} does not divide {count} {of}"
    return ""


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
