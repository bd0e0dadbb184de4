"""Drawing of a network as a graph: layers from top to bottom, each coloured by its configuration."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from planner.graph import ComputationGraph
from planner.plan import LayerResult
from reports.style import CONFIGURATIONS, byte_unit, time_unit

__all__ = ["COLUMN", "ROW", "layer_places", "strategy_drawing"]

COLUMN, ROW, WIDTH, HEIGHT = 176, 58, 160, 38
"""Distances between the boxes of layers, and the size of a box, in pixels."""
_SWEEPS = 8


def layer_places(graph: ComputationGraph) -> list[tuple[int, float]]:
    """Return row and column of every layer: below all layers that it reads, near layers with the same neighbours.

    The row is the length of the longest path from the input.  Within a row, layers are ordered by the mean position of
    their neighbours, row by row down and up again.

    Source:
        Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system structures", 1981.
    """
    count = len(graph.layers)
    before: list[list[int]] = [[] for _ in range(count)]
    after: list[list[int]] = [[] for _ in range(count)]
    for edge in graph.edges:
        before[edge.consumer].append(edge.producer)
        after[edge.producer].append(edge.consumer)
    row = [0] * count
    for layer in range(count):  # layers are in the order of their dependencies
        row[layer] = max((row[other] + 1 for other in before[layer]), default=0)
    rows: list[list[int]] = [[] for _ in range(max(row, default=-1) + 1)]
    for layer in range(count):
        rows[row[layer]].append(layer)
    place = [0.0] * count
    for sweep in range(_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for members in rows if sweep % 2 == 0 else reversed(rows):
            members.sort(key=lambda layer: (_mean([place[other] for other in neighbours[layer]], place[layer]), layer))
            for at, layer in enumerate(members):
                place[layer] = at - (len(members) - 1) / 2
    return list(zip(row, place, strict=True))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def strategy_drawing(graph: ComputationGraph, layers: Sequence[LayerResult]) -> dict[str, Any]:
    """Return boxes, lines and key of the drawing, in pixels.

    Args:
        graph: The network.
        layers: Configuration, times and bytes of every layer, in the order of the graph.

    Returns:
        ``width`` and ``height``, ``box`` (the size of a box), ``boxes``, ``lines`` (two ends, and whether the
        configurations at the ends differ) and ``key``.  A box's bar is as long as the layer's time relative to the
        longest.
    """
    places = layer_places(graph)
    left = min((place for _, place in places), default=0.0)
    at = [(round((place - left) * COLUMN) + 8, row * ROW + 8) for row, place in places]
    how = [_words(layer) for layer in layers]
    frequent = sorted(set(how), key=lambda words: (-how.count(words), words))
    colours = dict(zip(frequent, cycle(CONFIGURATIONS), strict=False))
    times = [layer.compute_s + layer.gradient_sync_s + layer.transfer_s for layer in layers]
    longest_s = max(times, default=0.0) or 1.0
    unit, moved = time_unit(times), byte_unit([layer.moved_bytes for layer in layers])
    boxes = [
        {
            "x": x, "y": y, "name": layer.name, "short": _short(layer.name, 22), "words": _short(words, 27),
            "colour": colours[words], "bars": _bars(layer, longest_s), "number": i,
            "title": f"{layer.name}: {layer.kind}, {layer.output}; {words} on {len(layer.devices)} devices; "
            f"{unit.full(seconds)}, {moved.full(layer.moved_bytes)} moved",
        }
        for i, ((x, y), layer, words, seconds) in enumerate(zip(at, layers, how, times, strict=True))
    ]  # fmt: skip
    lines = [
        (at[edge.producer][0] + WIDTH / 2, at[edge.producer][1] + HEIGHT, at[edge.consumer][0] + WIDTH / 2,
         at[edge.consumer][1], how[edge.producer] != how[edge.consumer])
        for edge in graph.edges
    ]  # fmt: skip
    return {
        "width": max((x for x, _ in at), default=0) + WIDTH + 8,
        "height": max((y for _, y in at), default=0) + HEIGHT + 8,
        "box": (WIDTH, HEIGHT),
        "boxes": boxes,
        "lines": lines,
        "key": [(colours[words], words, how.count(words)) for words in frequent],
    }


def _words(layer: LayerResult) -> str:
    return " × ".join(f"{dim} {degree}" for dim, degree in layer.degrees.items() if degree > 1) or "whole"


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else f"…{words[1 - most :]}"


def _bars(layer: LayerResult, longest_s: float) -> list[tuple[str, float, float]]:
    """Return (kind of time, start, length) of each segment of a box's bar, in pixels."""
    segments, start = [], 0.0
    for name in ("compute", "gradient_sync", "transfer"):
        length = WIDTH * float(getattr(layer, f"{name}_s")) / longest_s
        if length > 0.05:
            segments.append((name, round(start, 1), round(length, 1)))
        start += length
    return segments
