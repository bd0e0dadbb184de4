"""Recomputation: activations inside segments of layers are dropped after their forward pass, and computed again just
before the segment goes back.

A segment keeps nothing but what it reads from other layers, in the layout in which its devices read it: only transfers
between its own layers are repeated.  What other layers read of its tensors they keep themselves.  The layers behind
the last segment keep everything.

Source:
    Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174, 2016, Sec. 4: about sqrt(n)
    segments of n layers hold O(sqrt(n)) activations for one more forward pass.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hwprofiles import ConfigError
from planner.graph import ComputationGraph
from planner.operations import Part
from planner.parallel.micro_batches import MicroBatching

__all__ = ["KEEP_ACTIVATIONS", "SEGMENTS", "Recompute", "frontiers", "recompute_of", "segments_of"]

SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class Recompute:
    """Which activations are computed again."""

    ends: tuple[str, ...] = ()
    """Last layer of every segment, in order; each segment begins behind the one before."""

    def __bool__(self) -> bool:
        return bool(self.ends)


KEEP_ACTIVATIONS = Recompute()
"""Everything is kept."""


def recompute_of(graph: ComputationGraph, spec: str, micro_batching: MicroBatching) -> Recompute:
    """What ``--recompute`` says.

    Args:
        graph: The network.
        spec: ``none``; ``segments``: cut at single tensors into about sqrt(n) segments that keep alike; or the last
            layers of the segments, with commas between.
        cut: Stages begin segments of their own.

    Raises:
        ConfigError: No such layer, or layers out of order.
    """
    if spec in ("", "none"):
        return KEEP_ACTIVATIONS
    if spec == SEGMENTS:
        return _default(graph, micro_batching)
    chosen = Recompute(tuple(name.strip() for name in spec.split(",")))
    segments_of(graph, chosen, micro_batching)
    return chosen


def segments_of(graph: ComputationGraph, recompute: Recompute, micro_batching: MicroBatching) -> tuple[int, ...]:
    """By layer, the segment that computes it again; -1 for layers that keep what they need.

    Raises:
        ConfigError: No such layer, or layers out of order.
    """
    for name in recompute.ends:
        if name not in graph.index:
            raise ConfigError(f"recompute must name layers of {graph.name}, none or {SEGMENTS}, got {name!r}")
    ends = [graph.index[name] for name in recompute.ends]
    if any(b <= a for a, b in pairwise(ends)):
        raise ConfigError(f"recompute must name layers in order, each once, got {','.join(recompute.ends)}")
    found, segment, begins = list[int](), 0, {*micro_batching.starts} if micro_batching.parts > 1 else set[int]()
    for i in range(len(graph.layers)):
        if i in begins:
            segment += 1
        found.append(segment if ends and i <= ends[-1] and graph.has_gradient(i) else -1)
        if i in ends:
            segment += 1
    return tuple(found)


def frontiers(graph: ComputationGraph) -> list[int]:
    """Layers whose output is all that layers behind them read of those up to them; the last one left out."""
    found, reach = [], 0
    for i in range(len(graph.layers) - 1):
        if reach <= i:  # nothing before i is read behind it
            found.append(i)
        reach = max([reach, *(edge.consumer for edge in graph.consumers[i])])
    return found


def _default(graph: ComputationGraph, micro_batching: MicroBatching) -> Recompute:
    """About sqrt(n) segments of equal bytes, the last of which keeps what it has."""
    kept = [_kept_bytes(graph, i) for i in range(len(graph.layers))]
    count = max(round(math.sqrt(len(kept))), 2)
    names, total, begun, done = list[str](), sum(kept), 0.0, 0.0
    borders = set(frontiers(graph))
    for i, size in enumerate(kept):
        begun, done = begun + size, done + size
        if i in borders and begun >= total / count and done < total * (1 - 0.5 / count):
            names.append(graph.layers[i].name)
            begun = 0.0
    return Recompute(tuple(names))


def _kept_bytes(graph: ComputationGraph, i: int) -> float:
    """What a whole layer makes and keeps."""
    layer = graph.layers[i]
    sizes = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    kept = layer.operation.kept(Part(layer.input_shapes, layer.output, sizes))
    numbers = layer.output.elements + np.asarray(kept.elements).sum()
    return float(numbers * graph.element_bytes + np.asarray(kept.index_bytes).sum())
