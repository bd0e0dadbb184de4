"""Which plans a validation compares: strategies as they are, with other orders of sums, and with messages as codes."""

from collections.abc import Sequence
from dataclasses import dataclass

from hwprofiles import ConfigError
from planner.compression import UNCOMPRESSED, Compressed, compressed_of, compression, takes
from planner.graph import ComputationGraph
from planner.search import check_gradient_sync_order
from simulator.collectives import ALL_REDUCES

__all__ = ["Variant", "variants_of"]

_CODED_EXCHANGE = "ps-spread"
"""Of codes where the scheme asked for cannot carry them: per host it moves as many numbers as a ring does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A strategy, how what it sends is encoded, and in which order gradients are summed."""

    name: str
    strategy: str
    gradient_sync: str
    compressed: Compressed = UNCOMPRESSED
    order: str = "end"
    """As for ``planner.search.gradient_order.ordered``."""
    plain: str = ""
    """Name of the strategy as it is; empty where this is it."""


def variants_of(
    graph: ComputationGraph, strategies: Sequence[str], gradient_sync: str, *, gradients: Sequence[str] = (),
    activations: Sequence[str] = (), orders: Sequence[str] = (),
) -> list[Variant]:  # fmt: skip
    """Every strategy as it is, then with each order of sums, then with each data type.

    Args:
        graph: The network.
        strategies: Names or files; each once, whatever the number of times.
        exchange: How gradients are exchanged; ``ps-spread`` stands for it where codes cannot be summed on the way.
        gradients, activations: Data types; one that is in both compresses both.
        orders: Of ``planner.search.gradient_order.EXCHANGE_ORDERS``.

    Raises:
        ConfigError: A type or order is unknown, or cannot compress this, or the exchange is none that is run.
    """
    for order in orders:
        check_gradient_sync_order(order)
    if gradient_sync not in ALL_REDUCES:
        raise ConfigError(f"gradient_sync must be one of {', '.join(ALL_REDUCES)}, got {gradient_sync!r}")
    types = list(dict.fromkeys(compression(text).text for text in (*gradients, *activations)))
    chosen = [{compression(text).text for text in texts} for texts in (gradients, activations)]
    found = []
    for strategy in dict.fromkeys(strategies):
        found.append(Variant(name=strategy, strategy=strategy, gradient_sync=gradient_sync))
        found += [
            Variant(
                name=f"{strategy}, {order}", strategy=strategy, gradient_sync=gradient_sync, order=order, plain=strategy
            )
            for order in dict.fromkeys(orders)
            if order != "end"
        ]
        for text in types:
            coded, scheme = [text if text in texts else "" for texts in chosen], gradient_sync
            if coded[0] and not takes(compression(text), gradient_sync):
                scheme = _CODED_EXCHANGE
            compressed = compressed_of(graph, scheme, gradients=coded[0], activations=coded[1])
            name = f"{strategy}, {text}"
            found.append(
                Variant(name=name, strategy=strategy, gradient_sync=scheme, compressed=compressed, plain=strategy)
            )
    return found
