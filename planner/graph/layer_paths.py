"""Layer blocks, layer paths and reuse distances of gradients: the first half of Algorithm 1 of TurboDL.

A block runs from a layer where the graph forks to the layer where it merges again; the layers between two blocks form
a block of one path.  Blocks run one after another, so only paths within one block compete for a device.

Source:
    "TurboDL", Sec. 2.4 and Algorithm 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph


@dataclass(frozen=True, slots=True)
class LayerPath:
    """A path from the fork to the merge of a block, without the layers that it shares with longer paths."""

    layers: tuple[int, ...]
    """Layers that no longer path of the block has, in the graph's order."""
    time_s: float
    """Time of the activation gradients of the whole path, from fork to merge, shared layers included."""


@dataclass(frozen=True, slots=True)
class Block:
    """A layer block: the layers from a fork of the graph to the merge that closes it."""

    layers: tuple[int, ...]
    """All layers of the block, in the graph's order."""
    paths: tuple[LayerPath, ...]
    """Paths of the block, longest first: the first is the block's critical path."""


def layer_blocks(graph: ComputationGraph, gradient_s: Floats) -> tuple[Block, ...]:
    """Divide a graph into blocks, and each block into paths.

    Where paths share layers within a block, as in dense connections, a layer belongs to the longest path through it,
    so the number of paths stays below that of layers.

    Args:
        graph: Any computation graph.
        gradient_s: Time of each layer's activation gradient, shape (layers,).

    Returns:
        Blocks in the order in which they run forward.

    Raises:
        ConfigError: ``gradient_s`` has another shape, or is not finite and >= 0.

    Source:
        "TurboDL", Sec. 2.4 and Algorithm 1.
    """
    times = np.asarray(gradient_s, dtype=np.float64)
    if times.shape != (len(graph.layers),) or not (np.isfinite(times) & (times >= 0)).all():
        raise ConfigError(
            f"gradient_s must hold a finite time >= 0 for each of {len(graph.layers)} layers, got {gradient_s}"
        )
    return tuple(Block(tuple(layers), _paths(graph, layers, times)) for layers in _segments(graph))


def _separators(graph: ComputationGraph) -> list[bool]:
    """Return, for every layer, True if every path from the data to the end goes through it.

    A tensor from layer p to layer c passes by the layers between them.  Tensors that pass by are counted as brackets
    that open behind p and close at c; a layer is a separator where none is open::

        layer        0   1   2   3        edges 0-1, 1-2, 1-3, 2-3
        opens        .   .   +1  .        1-3 passes by layer 2
        closes       .   .   .   -1
        open         0   0   1   0        separators: 0, 1, 3
    """
    size = len(graph.layers)
    passing = np.zeros(size + 1, dtype=np.int64)
    spans = [(edge.producer, edge.consumer) for edge in graph.edges]
    spans += [(-1, i) for i, layer in enumerate(graph.layers) if layer.reads_data]
    spans += [(i, size) for i in range(size) if not graph.consumers[i]]
    for first, last in spans:
        passing[first + 1] += 1
        passing[last] -= 1
    return [bool(count == 0) for count in np.cumsum(passing)[:size]]


def _segments(graph: ComputationGraph) -> list[list[int]]:
    """Return the layers of each block, in order; a layer that ends a block and opens the next belongs to the first."""
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
    """Cover a block by paths: repeatedly take the longest path with a layer that no earlier path has."""
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
    """Return the time of the longest path that ends in each layer, that layer included."""
    longest: dict[int, float] = {}
    for i in layers:
        longest[i] = float(times[i]) + max((longest[j] for j in before[i]), default=0.0)
    return longest


def _trace(layer: int, next_of: dict[int, list[int]], longest: dict[int, float]) -> list[int]:
    """Return the longest path that starts at a layer, following ``next_of``."""
    path = [layer]
    while next_of[path[-1]]:
        path.append(max(next_of[path[-1]], key=lambda i: (longest[i], -i)))
    return path


def dependency_distances(graph: ComputationGraph) -> list[int]:
    """Return the reuse distance of each layer's gradient: steps until its parameters are used in the next iteration.

    The backward pass goes the shortest way back to a layer that reads the data, the next iteration takes one step, and
    its forward pass comes back the same way.  Layers that read the data themselves have distance 1, the least: their
    parameters are needed first.

    Source:
        "TurboDL", Sec. 2.4 and Algorithm 1.
    """
    depth: list[int] = []
    for i, layer in enumerate(graph.layers):
        first = layer.reads_data
        depth.append(0 if first else 1 + min(depth[edge.producer] for edge in graph.producers[i]))
    return [2 * hops + 1 for hops in depth]
