"""Redistributions of a rank: tensors that collectives bring from one layout on a mesh into another, and gradients back.

The steps are those of ``planner.layouts.redistribution``; the program's tasks say which devices take part and when.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from planner.graph.computation_graph import Edge
from planner.graph.shapes import Shape
from planner.layouts.mesh import Mesh
from planner.layouts.redistribution import (
    REPLICATED,
    Placements,
    Redistribution,
    RedistributionStep,
    gradient_layout,
    layouts_between,
    part_in,
    redistribution_of,
)
from planner.layouts.regions import held_regions
from planner.lowering.program import Program
from planner.lowering.send_phases import phases


@dataclass(frozen=True, slots=True)
class RankStep:
    """One step of a redistribution on one rank: a collective, or a slice that it takes of its own tensor."""

    collective: str
    """``slice``, ``all-gather``, ``reduce-scatter``, ``all-reduce`` or ``all-to-all``."""
    dim: int
    """Dimension of the tensor that is gathered, scattered or sliced; -1 for an all-reduce."""
    spans: tuple[tuple[int, int], ...]
    """Interval of the dimension that each member of the group has when it is split, from the first of them all on; of
    a slice that of the rank alone."""
    devices: tuple[int, ...] = ()
    """Members of the group, in the order of their parts; none for a slice."""
    tasks: tuple[int, ...] = ()
    """Tasks of the program that the collective is."""
    gathered: int = -1
    """Dimension that an all-to-all gathers, of which each member has an equal part, while it scatters ``dim``."""


@dataclass(frozen=True, slots=True)
class RankRedistribution:
    """What brings one tensor, or its gradient, to a rank."""

    edge: Edge
    """Edge whose collectives they are: of a tensor ``InputTensor.edge``, of a gradient that of ``returned_by``."""
    micro_batch: int
    backward: bool
    again: bool
    """True if it is repeated in a recomputation or, in the backward pass, brings an input again that is not kept."""
    phase: int
    """Group of tasks after which it begins; all ranks begin collectives in the order of the phases."""
    steps: tuple[RankStep, ...]
    rows: bool
    """True if tensors travel with their channels last in memory, as their readers want them."""

    @property
    def of_gradient(self) -> bool:
        """True if it brings a gradient."""
        return self.backward and not self.again

    @property
    def key(self) -> "RedistributionKey":
        """Return what a rank finds the redistribution by."""
        return self.edge, self.micro_batch, self.backward, self.again


RedistributionKey = tuple[Edge, int, bool, bool]
"""Edge, micro-batch, whether it is in the backward pass, and whether it is repeated."""


def way_of(program: Program, edge: Edge) -> Redistribution | None:
    """Return the collectives of an edge; None where regions of the tensor travel one by one."""
    layer, spaces = program.graph.layers[edge.consumer], program.spaces_at(edge.consumer)
    maps = layer.operation.interval_maps(edge.slot, layer.input_shapes)
    producer, consumer = spaces[edge.producer], spaces[edge.consumer]
    return redistribution_of(producer, consumer, maps, producer.output)


def returned_by(program: Program) -> dict[Edge, Edge]:
    """Return the edge whose tasks bring the gradient of a tensor back, by edge: that of the first reader of its kind.

    Readers of one layout whose gradients have one layout, too, sum these before they travel.
    """
    first: dict[tuple[object, ...], Edge] = {}
    edges = dict[Edge, Edge]()
    for edge, by in program.transferred_by.items():
        consumer = program.spaces_at(edge.consumer)[edge.consumer]
        edges[edge] = first.setdefault((by, gradient_layout(consumer, way_of(program, edge))), edge)
    return edges


def redistributions_of(program: Program, rank: int) -> list[RankRedistribution]:
    """Return the redistributions in which a rank takes part, in the order in which all ranks begin them."""
    phase = phases(program)
    rows = [
        RankRedistribution(
            edge=edge if backward else program.transferred_by[edge],
            micro_batch=micro_batch,
            backward=backward,
            again=again,
            phase=int(phase[min(mine)]),
            steps=_steps(program, edge, rank, sorted(mine), backward=backward and not again),
            rows=program.graph.layers[edge.consumer].operation.reads_rows,
        )
        for (edge, micro_batch, backward, again), mine in _tasks_of(program, rank).items()
        if edge.producer != edge.consumer
    ]
    return sorted(rows, key=lambda row: (row.phase, next(step.tasks for step in row.steps if step.tasks)))


def completions_of(program: Program, rank: int) -> dict["RedistributionKey", RankRedistribution]:
    """Return the sums that a rank completes with others within layers, and the gathers of their gradients.

    Their edges lead from a layer to itself.  They begin with no phase of their own, but as a part asks for them.
    """
    rows = dict[RedistributionKey, RankRedistribution]()
    for key, tasks in _tasks_of(program, rank).items():
        edge, micro_batch, backward, again = key
        if edge.producer != edge.consumer:
            continue
        space, group = program.spaces_at(edge.producer)[edge.producer], program.collectives[tasks[0]].devices
        held, part_on = held_regions(space), space.part_on(len(program.cluster.devices))[list(group)]
        spans = np.column_stack([held.low[part_on, 1], held.high[part_on, 1]]) - held.low[part_on[0], 1]
        moved = tuple((low, high) for low, high in spans.tolist())
        step = RankStep(program.collectives[tasks[0]].kind, 1, moved, group, tuple(sorted(tasks)))
        rows[key] = RankRedistribution(edge, micro_batch, backward, again, -1, (step,), rows=False)
    return rows


def _tasks_of(program: Program, rank: int) -> dict["RedistributionKey", list[int]]:
    """Return the collectives of activations in which a rank takes part, by what they bring."""
    moves, tasks = program.moves_activations, defaultdict[RedistributionKey, list[int]](list)
    for task, each in program.collectives.items():
        if moves[task] and rank in each.devices:
            edge = Edge(int(program.layer[task]), int(program.consumer[task]), int(program.slot[task]))
            key = edge, int(program.micro_batch[task]), bool(program.backward[task]), bool(program.recomputed[task])
            tasks[key].append(task)
    return tasks


def _steps(program: Program, edge: Edge, rank: int, tasks: Sequence[int], *, backward: bool) -> tuple[RankStep, ...]:
    way, layer, spaces = way_of(program, edge), program.graph.layers[edge.consumer], program.spaces_at(edge.consumer)
    producer, consumer = spaces[edge.producer], spaces[edge.consumer]
    maps = layer.operation.interval_maps(edge.slot, layer.input_shapes)
    layouts = layouts_between(producer, consumer, maps, producer.output, backward=backward)
    assert way is not None, "collectives of activations belong to an edge within one mesh"
    assert layouts is not None, "where there are collectives, parts follow each other in the order of the axes"
    _, now, _ = layouts
    # rounds of one collective are neighbours, and differ from those of the next one in what they do or in their devices
    collectives = program.collectives
    grouped = groupby(tasks, key=lambda t: (collectives[t].kind, collectives[t].dim, collectives[t].devices))
    rounds = [tuple(group) for _, group in grouped]
    steps = list[RankStep]()
    for step in way.backward if backward else way.forward:
        done = rounds.pop(0) if step.sends else ()
        made, now = _step(step, now, way.mesh, rank, producer.output, done)
        steps.append(made)
    assert not rounds, "every collective is a step"
    return tuple(steps)


def _step(
    step: RedistributionStep, now: Placements, mesh: Mesh, rank: int, source: Shape, tasks: tuple[int, ...]
) -> tuple[RankStep, Placements]:
    """Return a step on a rank, and the placements after it."""
    split = step.dim if step.collective in ("slice", "reduce-scatter", "all-to-all") else REPLICATED
    then = tuple(split if axis == step.axis else place for axis, place in enumerate(now))
    if step.collective == "all-reduce":
        return RankStep(step.collective, -1, (), _group(mesh, step.axis, rank), tasks), then
    divided = now if step.collective == "all-gather" else then
    group = _group(mesh, step.axis, rank)
    spans = [part_in(divided, mesh, device, source)[step.dim] for device in group]
    first = spans[0][0]
    moved = tuple((low - first, high - first) for low, high in spans)
    if step.collective == "slice":
        return RankStep("slice", step.dim, (moved[group.index(rank)],)), then
    return RankStep(step.collective, step.dim, moved, group, tasks, step.gathered), then


def _group(mesh: Mesh, axis: int, rank: int) -> tuple[int, ...]:
    """Return the devices that differ from a rank in their place along an axis alone, in the order of that axis."""
    rows: list[list[int]] = mesh.groups(axis).tolist()
    return next(tuple(row) for row in rows if rank in row)
