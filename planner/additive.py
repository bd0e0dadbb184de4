"""Eq. 1 of a strategy, from the cost tables: layers, exchanges and transfers, one after another."""

from planner.coded_exchange import coded_choices
from planner.compressed import PLAIN, Compressed
from planner.costs import CostModel
from planner.cut import WHOLE, Cut, sub_spaces
from planner.edge_prices import edge_prices
from planner.search.problem import evaluate
from planner.strategies import Strategy, applied

__all__ = ["additive_s"]


def additive_s(model: CostModel, strategy: Strategy, cut: Cut = WHOLE, compressed: Compressed = PLAIN) -> float:
    """Eq. 1 of a strategy; tensors in one layout are paid once, and what sub-batches do as often as they are.

    Args:
        model: Prices.
        strategy: A configuration for every layer.
        cut: Which layers take the mini-batch in sub-batches.
        compressed: What is compressed; encoding and decoding are paid beside the messages.

    Raises:
        ConfigError: A configuration does not fit its layer or a sub-batch, or the exchange cannot be compressed so.
    """
    count = len(model.cluster.devices)
    model, spaces, cut = applied(model, strategy, cut)
    if cut.parts == 1 and not compressed:
        return evaluate(model.problem(spaces, edge_prices(model)), [0] * len(spaces))
    part = model.for_batch(model.graph.batch // cut.parts)
    pieces = sub_spaces(part.graph, spaces, cut, count)
    total_s = 0.0
    for i in range(len(spaces)):
        behind = cut.of(i) > 1
        costs = (part if behind else model).node_costs(i, (pieces if behind else spaces)[i])
        each_s = float(costs.compute_s[0] + costs.statistics_s[0])
        exchange_s, kind = float(costs.exchange_s[0] - costs.statistics_s[0]), compressed.gradient(model.graph, i)
        if kind is not None:
            exchange_s = sum(choice.price_s for choice in coded_choices(model, kind, i, spaces[i]))
        once_s = float(costs.phase_s["update"][0]) + exchange_s
        total_s += cut.of(i) * each_s + once_s * (cut.of(i) if cut.update_each else 1)
    for edges in model.graph.consumers:
        paid: set[tuple[bool, int]] = set()
        for edge in edges:
            behind = cut.of(edge.consumer) > 1
            used, rows = (part, pieces) if behind else (model, spaces)
            layout = (behind, int(used.layouts(edge, rows[edge.consumer])[0]))
            if layout not in paid:
                paid.add(layout)
                price_s = edge_prices(used, compressed)(edge, rows[edge.producer], rows[edge.consumer])[0, 0]
                total_s += (cut.parts if behind else 1) * float(price_s)
    return total_s
