"""Layer blocks and layer paths, and how soon a gradient is used again: the first half of Algorithm 1 of TurboDL.

A block runs from a layer where the graph forks to the one where it merges again; what lies between two blocks is a
block of one path.  Blocks run one after another, so only the paths within a block compete.

Source: "TurboDL", Sec. 2.4 and Algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwprofiles import ConfigError, Floats
from planner.graph.computation_graph import ComputationGraph

__all__ = ["Block", "LayerPath", "dependency_distances", "layer_blocks"]


@dataclass(frozen=True, slots=True)
class LayerPath:
    """Layers of one path from fork to merge that no longer path of the block has, in the graph's order."""

    layers: tuple[int, ...]
    time_s: float
    """Time of the activation gradients of the whole path, from fork to merge, shared layers included."""


@dataclass(frozen=True, slots=True)
class Block:
    """A layer block."""

    layers: tuple[int, ...]
    paths: tuple[LayerPath, ...]
    """Longest first: the first is the block's critical path."""


def layer_blocks(graph: ComputationGraph, gradient_s: Floats) -> tuple[Block, ...]:
    """Segment a graph into blocks, and each block into paths.

    Where paths share layers within a block, as in dense connections, a layer belongs to the longest path through it,
    so the number of paths stays below that of layers.

    Args:
        graph: Any computation graph.
        gradient_s: Time of each layer's activation gradient, shape (layers,).

    Raises:
        ConfigError: ``gradient_s`` has another shape, or is not finite and >= 0.
    """
    times = np.asarray(gradient_s, dtype=np.float64)
    if times.shape != (len(graph.layers),) or not (np.isfinite(times) & (times >= 0)).all():
        raise ConfigError(
            f"gradient_s must hold a finite time >= 0 for each of {len(graph.layers)} layers, got {gradient_s}"
        )
    return tuple(Block(tuple(layers), _paths(graph, layers, times)) for layers in _segments(graph))


def _separators(graph: ComputationGraph) -> list[bool]:
    """Layers that no tensor passes by: every path from the data to the end goes through them."""
    size = len(graph.layers)
    passing = np.zeros(size + 1, dtype=np.int64)
    spans = [(edge.producer, edge.consumer) for edge in graph.edges]
    spans += [(-1, i) for i, layer in enumerate(graph.layers) if "input" in layer.inputs]
    spans += [(i, size) for i in range(size) if not graph.consumers[i]]
    for first, last in spans:
        passing[first + 1] += 1
        passing[last] -= 1
    return [bool(count == 0) for count in np.cumsum(passing)[:size]]


def _segments(graph: ComputationGraph) -> list[list[int]]:
    """Layers of each block, in order; one that ends a block and opens the next belongs to the first."""
    blocks: list[list[int]] = []
    chain: list[int] = []
    size, before = len(graph.layers), -1
    for separator in [i for i, alone in enumerate(_separators(graph)) if alone] + [size]:
        merge = [separator] if separator < size else []
        inside = list(range(before + 1, separator))
        if inside:
            fork = [chain.pop()] if chain and chain[-1] == before else []
            blocks += [chain] if chain else []
            chain = []
            blocks.append(fork + inside + merge)
        else:
            chain += merge
        before = separator
    return blocks + ([chain] if chain else [])


def _paths(graph: ComputationGraph, layers: Sequence[int], times: Floats) -> tuple[LayerPath, ...]:
    """Cover a block by paths: again and again the longest that has a layer which none has yet."""
    inside = set(layers)
    before = {i: [e.producer for e in graph.producers[i] if e.producer in inside] for i in layers}
    behind = {i: [e.consumer for e in graph.consumers[i] if e.consumer in inside] for i in layers}
    until, since = _longest(layers, before, times), _longest(layers[::-1], behind, times)
    through = {i: until[i] + since[i] - times[i] for i in layers}
    left, paths = list(layers), []
    while left:
        middle = max(left, key=lambda i: (through[i], -i))
        path = [*_trace(middle, before, until)[::-1], *_trace(middle, behind, since)[1:]]
        paths.append(LayerPath(tuple(i for i in path if i in left), float(through[middle])))
        left = [i for i in left if i not in path]
    return tuple(paths)


def _longest(layers: Sequence[int], before: dict[int, list[int]], times: Floats) -> dict[int, float]:
    """Time of the longest path that ends in each layer, itself included."""
    found: dict[int, float] = {}
    for i in layers:
        found[i] = float(times[i]) + max((found[j] for j in before[i]), default=0.0)
    return found


def _trace(layer: int, next_of: dict[int, list[int]], longest: dict[int, float]) -> list[int]:
    """The longest path from a layer on."""
    path = [layer]
    while next_of[path[-1]]:
        path.append(max(next_of[path[-1]], key=lambda i: (longest[i], -i)))
    return path


def dependency_distances(graph: ComputationGraph) -> list[int]:
    """Steps from the gradient of each layer's parameters to their next use, in the following iteration.

    The shortest way back to a layer that reads the data, one step into the next iteration, and forward again.  That of
    a layer that reads the data is 1: nothing lies between, so its sub-tasks are critical, as are activation gradients,
    which the layer before uses at once.
    """
    depth: list[int] = []
    for i, layer in enumerate(graph.layers):
        first = "input" in layer.inputs
        depth.append(0 if first else 1 + min(depth[edge.producer] for edge in graph.producers[i]))
    return [2 * hops + 1 for hops in depth]
