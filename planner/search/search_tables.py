"""The search problem of a network on a cluster: its costs as tables over configurations."""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Bools
from planner.cost.cost_model import CostModel
from planner.cost.transfer_time import EdgeTable, LayoutTable
from planner.elimination.search_problem import SearchProblem, TensorCost, restrict
from planner.graph.computation_graph import Edge
from planner.layouts.configurations import ConfigSpace


def search_problem(model: CostModel, spaces: Sequence[ConfigSpace], table: EdgeTable) -> SearchProblem:
    """Return the search problem over the given spaces.

    Args:
        model: Costs of the layers, and the layouts in which consumers read tensors.
        spaces: For every layer the configurations to search.
        table: Transfer times of an edge, such as ``model.transfer_times.table``.
    """
    tensors = [
        TensorCost(
            producer=i,
            consumers=tuple(edge.consumer for edge in edges),
            cost_s=tuple(table(edge, spaces[i], spaces[edge.consumer]) for edge in edges),
            layout=tuple(model.transfer_times.layouts(edge, spaces[edge.consumer]) for edge in edges),
        )
        for i, edges in enumerate(model.graph.outgoing)
        if edges
    ]
    nodes = tuple(model.node_costs(i, space).total_s for i, space in enumerate(spaces))
    return SearchProblem(node_cost_s=nodes, tensors=tuple(tensors))


def mesh_bounds(model: CostModel, spaces: Sequence[ConfigSpace]) -> SearchProblem:
    """Return the search problem over configurations on one mesh as if gradients travelled free: lower bounds.

    Args:
        model: Costs of the layers and of transfers.
        spaces: For every layer the configurations to search, as of ``mesh_configurations``.
    """
    return _on_mesh(model, spaces, [_forward_tables(model, spaces, edges) for edges in model.graph.outgoing])


def mesh_problem(model: CostModel, spaces: Sequence[ConfigSpace], keep: Sequence[Bools] | None = None) -> SearchProblem:
    """Return the search problem over configurations on one mesh.

    A tensor of several consumers has two tables of each: some that read one layout may make gradients of several.

    Args:
        model: Costs of the layers and of transfers.
        spaces: For every layer the configurations to search, as of ``mesh_configurations``.
        keep: Masks of those of the result, shapes (C_i,); None: all.
    """
    keep = keep or [np.ones(space.size, dtype=np.bool_) for space in spaces]
    sums: dict[tuple[int, int], LayoutTable] = {}
    tensors = list[list[list[LayoutTable]]]()
    for i, edges in enumerate(model.graph.outgoing):
        backward = [
            model.transfer_times.layout_table(
                edge, spaces[i], spaces[edge.consumer], backward=True, keep=(keep[i], keep[edge.consumer])
            )
            for edge in edges
        ]
        tables = [*_forward_tables(model, spaces, edges), backward]
        if len(edges) == 1:
            (forward,), (back,) = tables
            if (key := (id(forward), id(back))) not in sums:
                sums[key] = LayoutTable(forward.seconds + back.seconds, back.layout)
            tables = [[sums[key]]]
        tensors.append(tables)
    return restrict(_on_mesh(model, spaces, tensors), keep)


def _forward_tables(model: CostModel, spaces: Sequence[ConfigSpace], edges: Sequence[Edge]) -> list[list[LayoutTable]]:
    """Return the tables of one tensor's way to its consumers, as a list of one direction."""
    times = model.transfer_times
    return [[times.layout_table(e, spaces[e.producer], spaces[e.consumer], backward=False) for e in edges]]


def _on_mesh(
    model: CostModel, spaces: Sequence[ConfigSpace], tables: Sequence[Sequence[Sequence[LayoutTable]]]
) -> SearchProblem:
    """Return the search problem of tables by producer, direction and consumer."""
    tensors = [
        TensorCost(
            producer=i,
            consumers=tuple(edge.consumer for edge in edges),
            cost_s=tuple(row.seconds for row in rows),
            layout=tuple(row.layout for row in rows),
        )
        for i, edges in enumerate(model.graph.outgoing)
        for rows in (tables[i] if edges else ())
    ]
    nodes = tuple(model.node_costs(i, space).total_s for i, space in enumerate(spaces))
    return SearchProblem(node_cost_s=nodes, tensors=tuple(tensors))
