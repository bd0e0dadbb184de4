"""Parts of a model's layers that are measured: each size of equal layers once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import ConfigSpace, Strategy, all_configurations, product_space
from planner.layouts.regions import held_regions, needed_regions
from planner.plan.plan_text import read_plan_text
from planner.search.pipeline_strategy import Pipeline, has_stages, micro_batch_parts
from planner.strategies.named_strategies import named_strategy, spaces_of

ALL_DEGREES = "all"
"""Name among strategies that stands for every configuration that divides."""


@dataclass(frozen=True, slots=True, eq=False)
class ProbePart:
    """Part of a layer, measured for all layers and parts that are equal to it."""

    index: int
    """Index in the graph of the layer that is run."""
    layers: tuple[str, ...]
    sizes: tuple[int, ...]
    """Sizes of the region of the output that the part computes: samples, channels, positions."""
    space: ConfigSpace
    part: int


def added_slots(graph: ComputationGraph, index: int) -> tuple[bool, ...]:
    """Return, by slot, whether a layer adds the gradient of its input to that of a reader that comes after it."""
    rows = []
    for slot, source in enumerate(graph.layers[index].inputs):
        producer = graph.index.get(source, -1)
        after = producer >= 0 and graph.has_gradient(producer)
        rows.append(after and any((e.consumer, -e.slot) > (index, -slot) for e in graph.consumers[producer]))
    return tuple(rows)


def parts_of(graph: ComputationGraph, plans: Iterable[Iterable[ConfigSpace]]) -> list[ProbePart]:
    """Return every different part of every different layer, in the order of the layers.

    Of parts of one size the one that reads most is taken: parts at the border of a tensor read no halo there::

        positions of the input    0 1 2 3 | 4 5 6 7 | 8 9 10 11
        read by a 3-wide kernel   0 ... 4 | 3 ... 8 | 7 ... 11      the middle part stands for all three

    Args:
        graph: The model.
        plans: Spaces of any number of configurations, one space a layer, from
            ``planner.strategies.named_strategies.spaces_of``.
    """
    names: dict[object, list[str]] = {}
    kinds = []
    for i, layer in enumerate(graph.layers):
        inner = graph.has_phase(i, "activation_gradient")
        kinds.append((layer.operation, layer.input_shapes, inner, added_slots(graph, i)))
        names.setdefault(kinds[-1], []).append(layer.name)
    largest: dict[tuple[object, tuple[int, ...]], tuple[float, ProbePart]] = {}
    for plan in plans:
        for i, whole in enumerate(plan):
            for c in range(whole.size):
                space = whole if whole.size == 1 else whole.only(np.array([c]))
                for part, sizes, read in _different_parts(graph, i, space):
                    before = largest.get((kinds[i], sizes))
                    if before is None or read > before[0]:
                        index = i if before is None else before[1].index
                        row = ProbePart(index, tuple(names[kinds[i]]), sizes, space, part)
                        largest[kinds[i], sizes] = (read, row)
    return sorted((row for _, row in largest.values()), key=lambda row: row.index)


def _whole_sums(space: ConfigSpace) -> ConfigSpace:
    """Return a space of one configuration without slices of a sum, and without devices that compute the same."""
    product = product_space(space)
    if product.sums[0] * product.repeats[0] == 1:
        return space
    parts, once = int(product.degrees.prod()), np.ones(1, dtype=np.int64)
    return replace(product, sums=once, repeats=once, listed=product.devices[:parts], on_meshes=())


def _different_parts(
    graph: ComputationGraph, index: int, space: ConfigSpace
) -> Iterable[tuple[int, tuple[int, ...], float]]:
    """Return index, sizes and number of read elements of the part of each size that reads most."""
    layer, boxes = graph.layers[index], held_regions(space)
    read = np.zeros(len(boxes.low))
    for slot, shape in enumerate(layer.input_shapes):
        read += needed_regions(space, layer.operation.interval_maps(slot, layer.input_shapes), shape).volume
    best: dict[tuple[int, ...], int] = {}
    for part, sizes in enumerate(map(tuple, (boxes.high - boxes.low).tolist())):
        if sizes not in best or read[part] > read[best[sizes]]:
            best[sizes] = part
    return [(part, sizes, float(read[part])) for sizes, part in best.items()]


def every_part(graph: ComputationGraph, processes: int, most: int) -> list[ProbePart]:
    """Return the parts of every configuration that divides, on up to ``processes`` processes.

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
    """Return the parts that strategies use, by their names or files; with ``all`` every part that splits outputs.

    Raises:
        ConfigError: A strategy is unknown or does not fit the processes, or there are more than ``most`` parts.
    """
    if ALL_DEGREES in strategies:
        return every_part(graph, processes, most)
    return _parts(graph, [named_strategy(name, graph, processes) for name in strategies], processes, most)


def divided_parts(
    graph: ComputationGraph, strategies: Sequence[str], processes: int, *, most: int
) -> list[tuple[ComputationGraph, list[ProbePart]]]:
    """Return the parts of strategies of any kind, grouped by the graph that they belong to.

    The first graph is the model's own; the others are those of plans with micro-batches, with one as their batch.
    Parts of an earlier graph are left out of later ones.  Arguments are those of ``strategy_parts``.
    """
    texts = [(name, {}) if name == ALL_DEGREES else read_plan_text(name) for name in strategies]
    pipes = [(name, said) for name, said in texts if has_stages(name) or said.get("micro_batches")]
    others = [name for name, said in texts if (name, said) not in pipes]
    groups = [(graph, strategy_parts(graph, others, processes, most=most))] if others else []
    for each in pipes:
        known = {(name, part.sizes) for _, parts in groups for part in parts for name in part.layers}
        small, strategy = _micro_batch_parts(graph, *each, processes)
        parts = _parts(small, [strategy], processes, most)
        groups.append((small, [part for part in parts if any((n, part.sizes) not in known for n in part.layers)]))
    return groups


def _micro_batch_parts(
    graph: ComputationGraph, strategy: str, said: Mapping[str, Any], processes: int
) -> tuple[ComputationGraph, Strategy]:
    """Return the parts of a micro-batch of a plan, by its strategy and the fields that its text sets."""
    names = {field.name for field in fields(Pipeline)}
    request = Pipeline(**{name: value for name, value in said.items() if name in names})
    return micro_batch_parts(graph, strategy, processes, request)


def _parts(graph: ComputationGraph, plans: Sequence[Strategy], processes: int, most: int) -> list[ProbePart]:
    """Return the parts of some plans; refuse more than ``most``."""
    # profiles know whole sums alone, from which slices are scaled
    parts = parts_of(graph, [map(_whole_sums, spaces_of(graph, plan, processes)) for plan in plans])
    if len(parts) > most:
        raise ConfigError(f"max_parts must be at least the {len(parts)} parts of {graph.name}, got {most}")
    return parts


def rounds_of(parts: Sequence[ProbePart]) -> list[list[ProbePart]]:
    """Return the parts in rounds of at most one part of each layer, layers in order, as a training step runs them."""
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
    """Return the parts in portions that are measured together: as many whole rounds as fit in memory, at least one."""
    rows: list[list[ProbePart]] = []
    free_bytes = 0.0
    for row in rounds_of(parts):
        size = sum(tensor_bytes(graph, part) for part in row)
        if not rows or size > free_bytes:
            rows.append([])
            free_bytes = most_bytes
        rows[-1] += row
        free_bytes -= size
    return rows


def tensor_bytes(graph: ComputationGraph, part: ProbePart) -> float:
    """Return roughly the memory of a part's tensors: with gradients, saved outputs and momentum, in bytes."""
    layer = graph.layers[part.index]
    share = math.prod(part.sizes) / layer.output.elements
    read = sum(shape.elements for shape in layer.input_shapes) * part.sizes[0] / graph.batch
    return graph.element_bytes * (2 * read + 4 * share * layer.output.elements + 3 * layer.parameter_count)
