"""Which parts of a model's layers are worth measuring: each size of equal layers once."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hwprofiles import ConfigError
from planner.graph import ComputationGraph
from planner.parallel import (
    ConfigSpace,
    Strategy,
    all_configurations,
    held_regions,
    named_strategy,
    needed_regions,
    slices_of,
    spaces_of,
    split_input_channels,
)
from planner.search import has_stages, micro_batch_parts

__all__ = [
    "ALL_DEGREES",
    "ProbePart",
    "added_slots",
    "divided_parts",
    "every_part",
    "measured_names",
    "parts_of",
    "portions",
    "rounds_of",
    "strategy_parts",
    "tensor_bytes",
]

ALL_DEGREES = "all"
"""Among strategies: every configuration that divides."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbePart:
    """A part of a layer, measured for all layers and parts that are equal to it."""

    index: int
    """Layer of the graph that is run."""
    layers: tuple[str, ...]
    """Names of all layers that are equal to it."""
    sizes: tuple[int, ...]
    """Of the box of the output that the part makes: samples, channels, positions."""
    space: ConfigSpace
    """Holds one configuration that has such a part."""
    part: int
    """Which part of it."""


def added_slots(graph: ComputationGraph, index: int) -> tuple[bool, ...]:
    """By slot, whether a layer adds the gradient of its input to that of a reader that comes after it."""
    rows = []
    for slot, source in enumerate(graph.layers[index].inputs):
        producer = graph.index.get(source, -1)
        after = producer >= 0 and graph.has_gradient(producer)
        rows.append(after and any((e.consumer, -e.slot) > (index, -slot) for e in graph.consumers[producer]))
    return tuple(rows)


def parts_of(graph: ComputationGraph, plans: Iterable[Sequence[ConfigSpace]]) -> list[ProbePart]:
    """Every different part of every different layer, in the order of the layers.

    Of parts of one size the one that reads most is taken: at the borders of a tensor a halo is missing.

    Args:
        graph: The model.
        plans: Spaces of any number of configurations, one a layer; from ``planner.parallel.strategies.spaces_of``.
    """
    names: dict[object, list[str]] = {}
    kinds = []
    for i, layer in enumerate(graph.layers):
        inner = graph.has_phase(i, "activation_gradient")
        kinds.append((layer.operation, layer.input_shapes, inner, added_slots(graph, i)))
        names.setdefault(kinds[-1], []).append(layer.name)
    found: dict[tuple[object, tuple[int, ...]], tuple[float, ProbePart]] = {}
    for plan in plans:
        for i, whole in enumerate(plan):
            for c in range(whole.size):
                space = whole if whole.size == 1 else whole.only(np.array([c]))
                for part, sizes, read in _different_parts(graph, i, space):
                    before = found.get((kinds[i], sizes))
                    if before is None or read > before[0]:
                        index = i if before is None else before[1].index
                        row = ProbePart(index, tuple(names[kinds[i]]), sizes, space, part)
                        found[kinds[i], sizes] = (read, row)
    return sorted((row for _, row in found.values()), key=lambda row: row.index)


def _different_parts(
    graph: ComputationGraph, index: int, space: ConfigSpace
) -> Iterable[tuple[int, tuple[int, ...], float]]:
    """Part, sizes and elements read, of the part of each size that reads most."""
    layer, boxes = graph.layers[index], held_regions(space)
    read = np.zeros(len(boxes.low))
    for slot, shape in enumerate(layer.input_shapes):
        read += needed_regions(space, layer.operation.needs(slot, layer.input_shapes), shape).volume
    best: dict[tuple[int, ...], int] = {}
    for part, sizes in enumerate(map(tuple, (boxes.high - boxes.low).tolist())):
        if sizes not in best or read[part] > read[best[sizes]]:
            best[sizes] = part
    return [(part, sizes, float(read[part])) for sizes, part in best.items()]


def every_part(graph: ComputationGraph, processes: int, most: int) -> list[ProbePart]:
    """Parts of every configuration that divides, on up to so many processes.

    Raises:
        ConfigError: They are more than ``most``.
    """
    spaces = [all_configurations(layer.output, layer.parallel_dims, processes) for layer in graph.layers]
    parts = parts_of(graph, [spaces])
    if len(parts) > most:
        raise ConfigError(
            f"max_parts must be at least the {len(parts)} parts of {graph.name} on up to {processes} processes to "
            f"measure all, got {most}; or name strategies"
        )
    return parts


def strategy_parts(graph: ComputationGraph, strategies: Sequence[str], processes: int, *, most: int) -> list[ProbePart]:
    """Parts that strategies use, by their names or files; with ``all`` every part that splits outputs.

    Raises:
        ConfigError: A strategy is unknown or cannot be had, it splits input channels (``divided_parts`` takes
            those), or there are more than ``most`` parts.
    """
    if ALL_DEGREES in strategies:
        return every_part(graph, processes, most)
    return _parts(graph, [named_strategy(name, graph, processes) for name in strategies], processes, most)


def divided_parts(
    graph: ComputationGraph, strategies: Sequence[str], processes: int, *, most: int
) -> list[tuple[ComputationGraph, list[ProbePart]]]:
    """As ``strategy_parts``, for strategies of any kind: graphs of the model, and the parts of each.

    The first is the model's own; the others are those of strategies that split input channels and, with the batch of
    a micro-batch, of pipelines; without the parts that are measured already.
    """
    pipes = [name for name in strategies if has_stages(name)]
    others = [name for name in strategies if name not in pipes]
    ways = {} if ALL_DEGREES in strategies else {name: named_strategy(name, graph, processes) for name in others}
    sliced = {name: way for name, way in ways.items() if slices_of(way)}
    rest = [name for name in others if name not in sliced]
    found = [(graph, strategy_parts(graph, rest, processes, most=most))] if rest else []
    known: set[tuple[str, tuple[int, ...]]] = set()
    rows = [(graph, way) for way in sliced.values()]
    for whole, way in [*rows, *(micro_batch_parts(graph, name, processes) for name in pipes)]:
        known |= {(name, part.sizes) for row, parts in found for part in parts for name in measured_names(row, part)}
        divided = split_input_channels(whole, slices) if (slices := slices_of(way)) else whole
        parts = _parts(divided, [way], processes, most)
        news = [part for part in parts if any((n, part.sizes) not in known for n in measured_names(divided, part))]
        found.append((divided, news))
    return found


def measured_names(graph: ComputationGraph, part: ProbePart) -> tuple[str, ...]:
    """By which compute profiles know the layers of a part."""
    return tuple(graph.layers[graph.index[name]].measured_name for name in part.layers)


def _parts(graph: ComputationGraph, plans: Sequence[Strategy], processes: int, most: int) -> list[ProbePart]:
    parts = parts_of(graph, [spaces_of(graph, plan, processes) for plan in plans])
    if len(parts) > most:
        raise ConfigError(f"max_parts must be at least the {len(parts)} parts of {graph.name}, got {most}")
    return parts


def rounds_of(parts: Sequence[ProbePart]) -> list[list[ProbePart]]:
    """The same parts in rounds of one part of each layer at most, layers in order: as a training step runs them."""
    rounds: list[list[ProbePart]] = []
    seen: dict[int, int] = {}
    for part in parts:
        place = seen.get(part.index, 0)
        seen[part.index] = place + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(part)
    return rounds


def portions(graph: ComputationGraph, parts: Sequence[ProbePart], most_bytes: float) -> list[list[ProbePart]]:
    """Parts to be measured at the same time: whole rounds, as many as fit in memory, at least one."""
    found: list[list[ProbePart]] = []
    left = 0.0
    for row in rounds_of(parts):
        size = sum(tensor_bytes(graph, part) for part in row)
        if not found or size > left:
            found.append([])
            left = most_bytes
        found[-1] += row
        left -= size
    return found


def tensor_bytes(graph: ComputationGraph, part: ProbePart) -> float:
    """Roughly what a part's tensors take: each with its gradient, outputs also as they are saved, and momentum."""
    layer = graph.layers[part.index]
    share = math.prod(part.sizes) / layer.output.elements
    read = sum(shape.elements for shape in layer.input_shapes) * part.sizes[0] / graph.batch
    return graph.element_bytes * (2 * read + 4 * share * layer.output.elements + 3 * layer.parameter_count)
