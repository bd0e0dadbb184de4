"""What a strategy compresses: which tensors, which gradients, and with which data types."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from hwprofiles import ConfigError
from planner.compression.data_types import Compression, compression
from planner.graph import ComputationGraph

__all__ = ["AUTO", "CODED", "UNCOMPRESSED", "Compressed", "check_gradient_sync", "compressed_of", "takes"]

AUTO = "auto"
"""For every buffer the scheme that is cheapest where it is exchanged."""
CODED = ("direct", "ps", "ps-spread")
"""Schemes of gradient exchange in which whoever sums receives all that is summed: it decodes and sums floats."""
_CASTS = ("float16", "bfloat16", "float32")
"""Types in which numbers can be summed, so that any scheme serves."""


@lru_cache(maxsize=64)
def _type(text: str) -> Compression | None:
    return compression(text) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """Data types of messages, as ``planner.compression.data_types.compression`` reads them; empty: messages stay as
    they are.

    Raises:
        ConfigError: A type is unknown, or activations would be compressed by one that keeps a residual: what a
            message leaves out belongs to other samples than the next message.
    """

    gradients: str = ""
    """Of parameters' gradients in their exchange."""
    activations: str = ""
    """Of tensors between layers forward, and of their gradients backward."""
    gradient_layers: tuple[str, ...] | None = None
    """Layers whose parameters' gradients are compressed; None: all."""
    activation_layers: tuple[str, ...] | None = None
    """Layers whose outputs are, with their gradients; None: all."""

    def __post_init__(self) -> None:
        _type(self.gradients)
        activations = _type(self.activations)
        if activations and activations.feedback:
            raise ConfigError(f"compress_activations must be a type without a residual, got {self.activations!r}")

    def __bool__(self) -> bool:
        return bool(self.gradients or self.activations)

    def describe(self) -> str:
        """What is compressed, and as what, in words; empty where nothing is."""
        parts = (
            ("gradients", self.gradients, self.gradient_layers),
            ("activations", self.activations, self.activation_layers),
        )
        rows = [(what if layers is None else f"{what} of {', '.join(layers) or 'no layer'}", kind)
                for what, kind, layers in parts if kind]  # fmt: skip
        return "; ".join(f"{what} as {kind}" for what, kind in rows)

    def gradient(self, graph: ComputationGraph, layer: int) -> Compression | None:
        """Type that compresses the exchange of a layer's gradients; None where nothing does."""
        named = self.gradient_layers is None or graph.model_layer(layer).name in self.gradient_layers
        return _type(self.gradients) if named else None

    def activation(self, graph: ComputationGraph, layer: int) -> Compression | None:
        """Type that compresses a layer's output on its way, and the gradient of it; None where nothing does."""
        named = self.activation_layers is None or graph.model_layer(layer).name in self.activation_layers
        return _type(self.activations) if named else None


UNCOMPRESSED = Compressed()
"""Nothing is compressed."""


def compressed_of(
    graph: ComputationGraph, gradient_sync: str, *, gradients: str = "", activations: str = "",
    gradient_layers: Sequence[str] | None = None, activation_layers: Sequence[str] | None = None,
) -> Compressed:  # fmt: skip
    """What to compress, checked against a network and a scheme of exchange; types that are no change are left out.

    Args:
        graph: The network.
        exchange: One of ``planner.cost.all_reduce.EXCHANGES``.
        gradients, activations, gradient_layers, activation_layers: As in ``Compressed``.

    Raises:
        ConfigError: A type is unknown or cannot compress this, or the network has no such layer.
    """
    none_needed = f"float{8 * graph.element_bytes}"
    types = [text if text != none_needed else "" for text in (gradients, activations)]
    for field, names in (("gradient_layers", gradient_layers), ("activation_layers", activation_layers)):
        unknown = [name for name in names or () if name not in graph.index]
        if unknown:
            raise ConfigError(f"{field} must be layers of {graph.name}, got {unknown[0]!r}")
    layers = [None if names is None else tuple(names) for names in (gradient_layers, activation_layers)]
    found = Compressed(gradients=types[0], activations=types[1], gradient_layers=layers[0], activation_layers=layers[1])
    kind = _type(found.gradients)
    if kind:
        check_gradient_sync(kind, gradient_sync)
    return found


def takes(kind: Compression, scheme: str) -> bool:
    """Whether a scheme, one of ``simulator.collectives.ALL_REDUCES``, can exchange gradients of a type."""
    return scheme in CODED or kind.name in _CASTS


def check_gradient_sync(kind: Compression, gradient_sync: str) -> None:
    """Refuse a scheme that would have to sum codes.

    Raises:
        ConfigError: The scheme is neither ``auto`` nor one of ``CODED``, and the type is no plain float.
    """
    if gradient_sync != AUTO and not takes(kind, gradient_sync):
        raise ConfigError(
            f"gradient_sync must be {', '.join(CODED)} or {AUTO} with gradients compressed as {kind.name}, "
            f"whose codes cannot be summed on the way, got {gradient_sync!r}"
        )
