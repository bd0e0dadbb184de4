"""Eq. 1 of a strategy, from the cost tables: layers, exchanges and transfers, one after another."""

from planner.costs import CostModel
from planner.cut import WHOLE, Cut, sub_spaces
from planner.edge_prices import edge_prices
from planner.search.problem import evaluate
from planner.strategies import Strategy, spaces_of

__all__ = ["additive_s"]


def additive_s(model: CostModel, strategy: Strategy, cut: Cut = WHOLE) -> float:
    """Eq. 1 of a strategy; tensors in one layout are paid once, and what sub-batches do as often as they are.

    Args:
        model: Prices.
        strategy: A configuration for every layer.
        cut: Which layers take the mini-batch in sub-batches.

    Raises:
        ConfigError: A configuration does not fit its layer or a sub-batch.
    """
    count = len(model.cluster.devices)
    spaces = spaces_of(model.graph, strategy, count)
    if cut.parts == 1:
        return evaluate(model.problem(spaces, edge_prices(model)), [0] * len(spaces))
    part = model.for_batch(model.graph.batch // cut.parts)
    pieces = sub_spaces(part.graph, spaces, cut, count)
    total_s = 0.0
    for i in range(len(spaces)):
        if cut.of(i) == 1:
            total_s += float(model.node_costs(i, spaces[i]).total_s[0])
            continue
        costs = part.node_costs(i, pieces[i])
        once_s = float(costs.phase_s["update"][0] + costs.exchange_s[0] - costs.statistics_s[0])
        each_s = float(costs.total_s[0]) - once_s
        total_s += cut.parts * each_s + once_s * (cut.parts if cut.update_each else 1)
    for edges in model.graph.consumers:
        paid: set[tuple[bool, int]] = set()
        for edge in edges:
            behind = cut.of(edge.consumer) > 1
            used, rows = (part, pieces) if behind else (model, spaces)
            layout = (behind, int(used.layouts(edge, rows[edge.consumer])[0]))
            if layout not in paid:
                paid.add(layout)
                price_s = edge_prices(used)(edge, rows[edge.producer], rows[edge.consumer])[0, 0]
                total_s += (cut.parts if behind else 1) * float(price_s)
    return total_s
