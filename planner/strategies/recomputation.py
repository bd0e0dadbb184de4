"""Recomputation (activation checkpointing): activations inside segments are dropped, and computed again for backward.

The layers of a segment drop their activations after the forward pass, and their forward pass is repeated just before
the segment's backward pass.  A segment keeps only the tensors that it reads from other layers, in the layout in which
its devices read them, so only transfers between its own layers are repeated.  Other layers that read its tensors keep
their own copies.  The layers behind the last segment keep all their activations.

An input that a collective gathers, such as that of columns under ``sequence``, need not be kept whole either: each
device keeps its part, and gathers the whole again for the backward pass.

Source:
    Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174, 2016, Sec. 4: about sqrt(n)
    segments of n layers hold O(sqrt(n)) activations for one more forward pass.
    Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, Sec. 4.2.2: an
    extra all-gather in the backward pass.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.storage_units import block_of
from planner.operations.base import Part
from planner.operations.products import PRODUCTS
from planner.strategies.micro_batches import MicroBatching

SEGMENTS = "segments"
"""Request for segments of about equal size; see ``recompute_of``."""
FULL = "full"
"""Request for a segment for each block of the network."""
SELECTIVE = "selective"
"""Request for a segment for the scores of each attention."""
GATHERS = "gathers"
"""Request to gather again what collectives gathered."""


@dataclass(frozen=True, slots=True)
class Recompute:
    """Segments of layers whose activations are computed again for the backward pass, and what is gathered again."""

    ends: tuple[str, ...] = ()
    """Last layer of every segment, in order."""
    begins: tuple[str, ...] = ()
    """First layer of every segment, which holds what lies on ways from it to the last; none: each segment begins behind
    the one before, and holds all between."""
    gathers: bool = False
    """True if inputs that collectives gather are gathered again for the backward pass."""

    def __bool__(self) -> bool:
        return bool(self.ends) or self.gathers


KEEP_ACTIVATIONS = Recompute()
"""No recomputation: all activations are kept."""


def recompute_of(graph: ComputationGraph, spec: str, micro_batching: MicroBatching) -> Recompute:
    """Return the segments that the option ``--recompute`` requests.

    Args:
        graph: The network.
        spec: ``none``; ``full`` for a segment for each block, whose layers agree in their names up to a number;
            ``selective`` for segments of attention alone, from the product of queries and keys to that with values;
            ``segments`` for about sqrt(n) segments that keep equally much and end at single tensors; or the last layers
            of the segments, separated by commas.  ``gathers``, alone or behind any of these, gathers again
            what collectives gathered.
        micro_batching: Micro-batches, whose stages begin segments of their own.

    Raises:
        ConfigError: No such layer, layers out of order, or a network without blocks, or attention.

    Source:
        Chen et al., "Training deep nets with sublinear memory cost", 2016, Sec. 4, for ``segments``.
        Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", MLSys 2023, Sec. 5, for
        ``full`` and ``selective``.
    """
    segments, _, last_word = spec.rpartition(",")
    if last_word == GATHERS:
        return replace(recompute_of(graph, segments, micro_batching), gathers=True)
    if spec in ("", "none"):
        return KEEP_ACTIVATIONS
    if spec == SEGMENTS:
        return _default(graph, micro_batching)
    if spec == FULL:
        last = {block_of(layer.name): layer.name for layer in graph.layers}
        last.pop("", None)
        if not last:
            raise ConfigError(
                f"recompute=full must have blocks of layers whose names begin alike up to a number, {graph.name} has "
                f"none: {SEGMENTS} divides any network"
            )
        return Recompute(tuple(sorted(last.values(), key=lambda name: graph.index[name])))
    if spec == SELECTIVE:
        found = [(i, end) for i in range(len(graph.layers)) if (end := _attention_from(graph, i)) is not None]
        if not found:
            raise ConfigError(f"recompute={SELECTIVE} must have attention, {graph.name} has none")
        begins, ends = (tuple(graph.layers[i].name for i in each) for each in zip(*found, strict=True))
        return Recompute(ends, begins)
    chosen = Recompute(tuple(name.strip() for name in spec.split(",")))
    segments_of(graph, chosen, micro_batching)
    return chosen


def drops_most(spec: str) -> bool:
    """Return whether the option drops more than attention's scores and gathered inputs, the least of a stage."""
    return spec.removesuffix(f",{GATHERS}") not in ("", "none", SELECTIVE, GATHERS)


def segments_of(graph: ComputationGraph, recompute: Recompute, micro_batching: MicroBatching) -> tuple[int, ...]:
    """Return the segment of every layer; -1 for layers that keep their activations.

    Args:
        graph: The network.
        recompute: Last layers of the segments.
        micro_batching: Micro-batches, whose stages begin segments of their own.

    Raises:
        ConfigError: No such layer, or layers out of order.
    """
    for name in (*recompute.begins, *recompute.ends):
        if name not in graph.index:
            words = f"none, {FULL}, {SELECTIVE}, {SEGMENTS} or {GATHERS}"
            raise ConfigError(f"recompute must name layers of {graph.name}, {words}, got {name!r}")
    ends = [graph.index[name] for name in recompute.ends]
    behind = [0, *(end + 1 for end in ends)]
    begins = [graph.index[name] for name in recompute.begins] or behind[:-1]
    if any(not least <= begin <= end for least, begin, end in zip(behind[:-1], begins, ends, strict=True)):
        raise ConfigError(f"recompute must name layers in order, each once, got {','.join(recompute.ends)}")
    segment_of = np.full(len(graph.layers), -1)
    for begin, end in zip(begins, ends, strict=True):
        segment_of[_between(graph, begin, end) if recompute.begins else slice(begin, end + 1)] = begin
    if micro_batching.parts > 1:
        for start in micro_batching.starts:  # a stage begins a segment
            cut = segment_of[start:]
            cut[(cut == segment_of[start]) & (cut >= 0)] = start
    return tuple(each if graph.has_gradient(i) else -1 for i, each in enumerate(segment_of.tolist()))


def _between(graph: ComputationGraph, first: int, last: int) -> list[int]:
    """Return the layers on ways from one layer to another, with both."""
    reached = {first}
    for i in range(first + 1, last + 1):
        if any(edge.producer in reached for edge in graph.producers[i]):
            reached.add(i)
    needed = {last}
    for i in range(last - 1, first - 1, -1):
        if any(edge.consumer in needed for edge in graph.consumers[i]):
            needed.add(i)
    return sorted(reached & needed)


def frontiers(graph: ComputationGraph) -> list[int]:
    """Return the layers whose output is the only tensor that crosses from the layers up to them to those behind.

    The last layer is left out.
    """
    crossings, reach = [], 0
    for i in range(len(graph.layers) - 1):
        if reach <= i:  # nothing before i is read behind it
            crossings.append(i)
        reach = max([reach, *(edge.consumer for edge in graph.consumers[i])])
    return crossings


def _attention_from(graph: ComputationGraph, first: int) -> int | None:
    """Return the last layer of the attention that a layer begins; None where it begins none.

    Apart, attention is a product of two tensors, what works on its scores, and a product that reads these.
    """
    kinds = [layer.operation.kind for layer in graph.layers]
    if kinds[first] != "batched_product":
        return first if kinds[first] == "attention" else None
    at = first
    while len(graph.consumers[at]) == 1:
        at = graph.consumers[at][0].consumer
        if kinds[at] in PRODUCTS:
            return at if kinds[at] == "batched_product" else None
    return None


def _default(graph: ComputationGraph, micro_batching: MicroBatching) -> Recompute:
    """Return about sqrt(n) segments that keep equally many bytes; the layers behind the last keep their activations."""
    saved = [_saved_bytes(graph, i) for i in range(len(graph.layers))]
    count = max(round(math.sqrt(len(saved))), 2)
    names, total, begun, done = list[str](), sum(saved), 0.0, 0.0
    borders = set(frontiers(graph))
    for i, size in enumerate(saved):
        begun, done = begun + size, done + size
        if i in borders and begun >= total / count and done < total * (1 - 0.5 / count):
            names.append(graph.layers[i].name)
            begun = 0.0
    return Recompute(tuple(names))


def _saved_bytes(graph: ComputationGraph, i: int) -> float:
    """Return the bytes of a whole layer's output and of the further tensors that it keeps for the backward pass."""
    layer = graph.layers[i]
    sizes = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    saved = layer.operation.saved_tensors(Part(layer.input_shapes, layer.output, sizes))
    elements = layer.output.elements + np.asarray(saved.elements).sum()
    return float(elements * graph.element_bytes + np.asarray(saved.index_bytes).sum())
