"""Variants that a validation compares: strategies as they are, in other orders of synchronisation, and compressed."""

from collections.abc import Sequence
from dataclasses import dataclass

from groundwork.errors import ConfigError
from planner.compression.data_types import compression
from planner.compression.settings import UNCOMPRESSED, CompressionSettings, can_synchronise, compressed_of
from planner.graph.computation_graph import ComputationGraph
from planner.search.gradient_order import check_gradient_sync_order
from simulator.collectives.schemes import ALL_REDUCES

_COMPRESSED_SYNC = "ps-spread"
"""Gradient synchronisation where the requested scheme cannot carry compressed messages: it moves as many bytes through
each host as a ring does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """Strategy with its gradient synchronisation and the compression of its messages."""

    name: str
    strategy: str
    gradient_sync: str
    """Scheme of gradient synchronisation, one of ``simulator.collectives.schemes.ALL_REDUCES``."""
    compressed: CompressionSettings = UNCOMPRESSED
    order: str = "end"
    """Order of gradient synchronisation, as for ``planner.search.gradient_order.ordered``."""
    plain: str = ""
    """Name of the strategy as it is; empty where this is it."""


def variants_of(
    graph: ComputationGraph,
    strategies: Sequence[str],
    gradient_sync: str,
    *,
    gradients: Sequence[str] = (),
    activations: Sequence[str] = (),
    orders: Sequence[str] = (),
) -> list[Variant]:
    """Return every strategy as it is, then with each order of synchronisation, then with each data type.

    Args:
        graph: The network.
        strategies: Names or files; repeated ones count once.
        gradient_sync: Scheme of gradient synchronisation; ``ps-spread`` replaces it where it cannot carry compressed
            messages.
        gradients: Data types that gradients are compressed to; one that is also in ``activations`` compresses both.
        activations: Data types that tensors between layers, and their gradients, are compressed to.
        orders: Orders of gradient synchronisation, of ``planner.search.gradient_order.GRADIENT_SYNC_ORDERS``.

    Raises:
        ConfigError: A type or order is unknown, a type cannot compress activations, or the scheme is none that can
            be run.
    """
    for order in orders:
        check_gradient_sync_order(order)
    if gradient_sync not in ALL_REDUCES:
        raise ConfigError(f"gradient_sync must be one of {', '.join(ALL_REDUCES)}, got {gradient_sync!r}")
    types = list(dict.fromkeys(compression(text).text for text in (*gradients, *activations)))
    chosen = [{compression(text).text for text in texts} for texts in (gradients, activations)]
    variants = []
    for strategy in dict.fromkeys(strategies):
        variants.append(Variant(name=strategy, strategy=strategy, gradient_sync=gradient_sync))
        variants += [
            Variant(
                name=f"{strategy}, {order}", strategy=strategy, gradient_sync=gradient_sync, order=order, plain=strategy
            )
            for order in dict.fromkeys(orders)
            if order != "end"
        ]
        for text in types:
            gradient_type, activation_type = (text if text in texts else "" for texts in chosen)
            takes_it = not gradient_type or can_synchronise(compression(text), gradient_sync)
            scheme = gradient_sync if takes_it else _COMPRESSED_SYNC
            compressed = compressed_of(graph, scheme, gradients=gradient_type, activations=activation_type)
            name = f"{strategy}, {text}"
            variants.append(
                Variant(name=name, strategy=strategy, gradient_sync=scheme, compressed=compressed, plain=strategy)
            )
    return variants
