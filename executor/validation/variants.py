"""Which plans a validation compares: strategies as they are, and the same with what they send compressed."""

from collections.abc import Sequence
from dataclasses import dataclass

from hwprofiles.errors import ConfigError
from planner.compressed import PLAIN, Compressed, compressed_of, takes
from planner.compression import compression
from planner.graph import ComputationGraph
from simulator.collectives import ALL_REDUCES

__all__ = ["Variant", "variants_of"]

_CODED_EXCHANGE = "ps-spread"
"""Of codes where the scheme asked for cannot carry them: per host it moves as many numbers as a ring does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A strategy, and how what it sends is encoded."""

    name: str
    strategy: str
    exchange: str
    compressed: Compressed = PLAIN
    plain: str = ""
    """Name of the same without compression; empty where this is it."""


def variants_of(
    graph: ComputationGraph, strategies: Sequence[str], exchange: str, *, gradients: Sequence[str] = (),
    activations: Sequence[str] = (),
) -> list[Variant]:  # fmt: skip
    """Every strategy as it is, then with each data type.

    Args:
        graph: The network.
        strategies: Names or files; each once, whatever the number of times.
        exchange: How gradients are exchanged; ``ps-spread`` stands for it where codes cannot be summed on the way.
        gradients, activations: Data types; one that is in both compresses both.

    Raises:
        ConfigError: A type is unknown or cannot compress this, or the exchange is none that is run.
    """
    if exchange not in ALL_REDUCES:
        raise ConfigError(f"exchange must be one of {', '.join(ALL_REDUCES)}, got {exchange!r}")
    types = list(dict.fromkeys(compression(text).text for text in (*gradients, *activations)))
    chosen = [{compression(text).text for text in texts} for texts in (gradients, activations)]
    found = []
    for strategy in dict.fromkeys(strategies):
        found.append(Variant(name=strategy, strategy=strategy, exchange=exchange))
        for text in types:
            coded, scheme = [text if text in texts else "" for texts in chosen], exchange
            if coded[0] and not takes(compression(text), exchange):
                scheme = _CODED_EXCHANGE
            compressed = compressed_of(graph, scheme, gradients=coded[0], activations=coded[1])
            name = f"{strategy}, {text}"
            found.append(Variant(name=name, strategy=strategy, exchange=scheme, compressed=compressed, plain=strategy))
    return found
