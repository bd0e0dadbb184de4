"""The search problem of a network on a cluster: its costs as tables over configurations."""

from collections.abc import Sequence

from planner.cost.cost_model import CostModel
from planner.cost.transfer_time import EdgeTable
from planner.elimination.search_problem import SearchProblem, TensorCost
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


def mesh_problem(model: CostModel, spaces: Sequence[ConfigSpace]) -> SearchProblem:
    """Return the search problem over configurations on one mesh.

    A tensor of several consumers has two tables of each: some that read one layout may make gradients of several.

    Args:
        model: Costs of the layers and of transfers.
        spaces: For every layer the configurations to search, as of ``mesh_configurations``.
    """
    tensors = list[TensorCost]()
    for i, edges in enumerate(model.graph.outgoing):
        rows = [model.transfer_times.layout_tables(edge, spaces[i], spaces[edge.consumer]) for edge in edges]
        consumers = tuple(edge.consumer for edge in edges)
        if len(edges) == 1:
            forward, backward = rows[0]
            both = (forward.seconds + backward.seconds,)
            tensors.append(TensorCost(producer=i, consumers=consumers, cost_s=both, layout=(backward.layout,)))
            continue
        for ways in zip(*rows, strict=True):
            tables, layouts = zip(*ways, strict=True)
            tensors.append(TensorCost(producer=i, consumers=consumers, cost_s=tables, layout=layouts))
    nodes = tuple(model.node_costs(i, space).total_s for i, space in enumerate(spaces))
    return SearchProblem(node_cost_s=nodes, tensors=tuple(tensors))
