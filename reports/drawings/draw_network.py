"""Drawing of a network as a graph: layers from top to bottom, each coloured by its configuration.

Networks are long and pages are wide, so the drawing is cut into strips that stand side by side, each read from top to
bottom.  Tensors from one strip to another leave at the bottom of a layer and arrive at the top of another.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import cycle
from typing import Any

from planner.graph.computation_graph import ComputationGraph, Edge
from planner.lowering.program import Program
from planner.plan.comparison import LayerResult
from reports.style.palette import CONFIGURATIONS
from reports.style.units import byte_unit, time_unit
from reports.tables.layer_rows import degrees_letters, degrees_text

COLUMN, ROW, WIDTH, HEIGHT = 146, 58, 137, 38
"""Distances between the boxes of layers, and the size of a box, in pixels."""
_LETTERS = 20
"""Letters of a box's second line, in fonts of any width."""
_LANE, _LANES = 9, 6
"""Distance between tensors that pass the same layers, and number of such lines beside one another, in pixels."""
_SWEEPS = 8
_MARGIN, _PAGE = 6, 1188
"""Space around a strip, and the width of a page within which strips should stand side by side, in pixels."""
_SHORTEST, _LONGEST = 4, 12
"""Rows of a strip; the longest still fits on a printed page."""


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


def strategy_drawing(program: Program, layers: Sequence[LayerResult]) -> dict[str, Any]:
    """Return boxes, lines and key of the drawing, strip by strip, in pixels.

    Args:
        program: The program, which says what tensors move.
        layers: Its layers, with their configurations and costs.

    Returns:
        ``box`` (the size of a box), ``key``, and ``strips``: each with its number (``part``), ``width``,
        ``height``, ``boxes`` and ``lines``.  A box's bar is as long as the layer's time relative to the longest.
    """
    graph, moves = program.graph, moving_edges(program)
    places = layer_places(graph)
    how = [degrees_text(layer) for layer in layers]
    frequent = sorted(set(how), key=lambda words: (-how.count(words), words))
    colours = dict(zip(frequent, cycle(CONFIGURATIONS), strict=False))
    times = [layer.compute_s + layer.gradient_sync_s + layer.transfer_s for layer in layers]
    longest_s = max(times, default=0.0) or 1.0
    unit, moved = time_unit(times), byte_unit([layer.moved_bytes for layer in layers])
    strips = list[dict[str, Any]]()
    for first, last in layer_strips(graph, places):
        inside = [i for i, (row, _) in enumerate(places) if first <= row < last]
        left = min(places[i][1] for i in inside)
        at = {
            i: (round((places[i][1] - left) * COLUMN) + _MARGIN, (places[i][0] - first) * ROW + 2 * _MARGIN)
            for i in inside
        }
        boxes = [
            {
                "x": x,
                "y": y,
                "short": _short(layers[i].name, 18),
                "words": _box_words(layers[i]),
                "colour": colours[how[i]],
                "bars": _bars(layers[i], longest_s),
                "number": i,
                "title": f"{layers[i].name}: {layers[i].kind}, {layers[i].output}; {how[i]} on "
                f"{len(layers[i].devices)} devices; {unit.full(times[i])}, {moved.full(layers[i].moved_bytes)} moved",
            }
            for i, (x, y) in at.items()
        ]
        width = max(x for x, _ in at.values()) + WIDTH + _MARGIN
        height = (last - first - 1) * ROW + HEIGHT + 4 * _MARGIN
        strip = {"part": len(strips) + 1, "width": width, "height": height, "boxes": boxes}
        strips.append({**strip, "lines": _lines(graph, at, moves)})
    return {
        "box": (WIDTH, HEIGHT),
        "strips": strips,
        "key": [(colours[words], words, how.count(words)) for words in frequent],
    }


def layer_strips(graph: ComputationGraph, places: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
    """Return the rows of each strip, from the first one to the one after the last.

    Strips are as short as they can be while all of them stand side by side on a page; where they do not, they are as
    long as a printed page allows.  Cuts go where they cut few tensors.
    """
    rows = max((row for row, _ in places), default=-1) + 1
    columns: list[list[float]] = [[] for _ in range(rows)]
    for row, place in places:
        columns[row].append(place)
    crossed = [0] * (rows + 1)  # tensors that a cut above a row goes through
    for edge in graph.edges:
        for row in range(places[edge.producer][0] + 1, places[edge.consumer][0] + 1):
            crossed[row] += 1
    for most in range(_SHORTEST, _LONGEST + 1):
        strips = _cheapest_cuts(crossed, rows, most)
        widths = [_strip_width(columns[first:last]) for first, last in strips]
        if sum(widths) <= _PAGE:
            break
    return strips if rows else []


def _strip_width(columns: Sequence[Sequence[float]]) -> float:
    places = [place for row in columns for place in row]
    return (max(places) - min(places)) * COLUMN + WIDTH + 2 * _MARGIN


def _cheapest_cuts(crossed: Sequence[int], rows: int, most: int) -> list[tuple[int, int]]:
    """Return strips of at most ``most`` rows whose cuts go through as few tensors as possible, counted with the strips.

    The best cuts above a row follow from those above every row that the last strip may begin at; of equal ones, those
    into strips of equal lengths are taken.
    """
    cost, before = [(0, 0)] * (rows + 1), [0] * (rows + 1)
    for end in range(1, rows + 1):
        cut = crossed[end] if end < rows else 0
        cost[end], before[end] = min(
            ((cost[begin][0] + cut + 1, cost[begin][1] + (end - begin) ** 2), begin)
            for begin in range(max(0, end - most), end)
        )
    strips, end = list[tuple[int, int]](), rows
    while end > 0:
        strips.append((before[end], end))
        end = before[end]
    return strips[::-1]


def _lines(graph: ComputationGraph, at: Mapping[int, tuple[int, int]], moves: Set[Edge]) -> list[tuple[str, bool, str]]:
    """Return the lines of a strip: path, whether the tensor moves, and for one cut off where it goes."""
    lines, names, shifts = [], [layer.name for layer in graph.layers], _lanes(graph, at)
    for edge in graph.edges:
        begin, end = at.get(edge.producer), at.get(edge.consumer)
        if begin is not None:
            x, y = begin[0] + WIDTH / 2, begin[1] + HEIGHT
            if end is None:
                lines.append((f"M{x} {y}v{_MARGIN}l-3 -3m3 3l3 -3", edge in moves, f"to {names[edge.consumer]}"))
            else:
                shift = shifts.get(edge, 0)
                x, to_x, to_y = x + shift, end[0] + WIDTH / 2 + shift, end[1]
                lines.append((f"M{x} {y}C{x} {y + 14} {to_x} {to_y - 14} {to_x} {to_y}", edge in moves, ""))
        elif end is not None:
            x, y = end[0] + WIDTH / 2, end[1]
            lines.append((f"M{x} {y - _MARGIN}v{_MARGIN}", edge in moves, f"from {names[edge.producer]}"))
    return lines


def _lanes(graph: ComputationGraph, at: Mapping[int, tuple[int, int]]) -> dict[Edge, int]:
    """Return how far to the right tensors that pass other layers are drawn, so that no two lie on each other."""
    lanes, boxes = dict[Edge, int](), dict[Edge, tuple[int, int, int, int]]()
    for edge in graph.edges:
        if edge.producer in at and edge.consumer in at and at[edge.consumer][1] - at[edge.producer][1] > ROW:
            (x, y), (to_x, to_y) = at[edge.producer], at[edge.consumer]
            left, right = min(x, to_x), max(x, to_x)
            taken = {
                lanes[other]
                for other, (low, begin, high, end) in boxes.items()
                if low <= right and left <= high and begin < to_y and y < end
            }
            lanes[edge] = min(set(range(1, _LANES + 1)) - taken, default=_LANES)
            boxes[edge] = left, y, right, to_y
    return {edge: lane * _LANE for edge, lane in lanes.items()}


def moving_edges(program: Program) -> set[Edge]:
    """Return the edges whose tensor, or its gradient, moves between devices; readers of one layout share what moves."""
    ends = zip(program.layer.tolist(), program.consumer.tolist(), program.slot.tolist(), strict=True)
    found = {Edge(*each) for each in set(ends)} & set(program.transferred_by)
    first = {program.transferred_by[edge] for edge in found}
    return {edge for edge, by in program.transferred_by.items() if by in first}


def _box_words(layer: LayerResult) -> str:
    """Return how a layer is split in words, or where they find no room with one letter for each dimension."""
    words = degrees_text(layer)
    return words if len(words) <= _LETTERS else degrees_letters(layer.degrees)


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
