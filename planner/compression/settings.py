"""Compression settings of a strategy: the tensors and gradients that are compressed, and their data types."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from groundwork.errors import ConfigError
from planner.compression.data_types import Compression, compression
from planner.graph.computation_graph import ComputationGraph
from planner.graph.type_roles import DataTypes, types_of

AUTO = "auto"
"""Choice of the fastest algorithm of gradient synchronisation for each layer."""
LIBRARY = "library"
"""Choice that the communication library of a cluster makes itself."""
DECOMPRESSING_SYNCS = ("direct", "ps", "ps-spread")
"""Algorithms in which the device that sums receives all addends, so that it can decompress them and sum floats."""
_CASTS = ("float16", "bfloat16", "float32")
"""Types that can be summed without decompression, so that any algorithm can use them."""


@lru_cache(maxsize=64)
def _type(text: str) -> Compression | None:
    """Return the data type of a text; None for the empty text."""
    return compression(text) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionSettings:
    """Compression settings of a strategy: data types of its messages, and the layers that use them.

    Types are texts that ``compression`` reads; an empty text leaves messages uncompressed.

    Raises:
        ConfigError: A type is unknown, or the type of activations keeps a residual: the part that a message omits
            belongs to other samples than the next message.
    """

    gradients: str = ""
    """Type of parameters' gradients in their synchronisation."""
    activations: str = ""
    """Type of tensors between layers in the forward pass, and of their gradients in the backward pass."""
    gradient_layers: tuple[str, ...] | None = None
    """Layers whose parameters' gradients are compressed; None: all."""
    activation_layers: tuple[str, ...] | None = None
    """Layers whose outputs, with the gradients of these, are compressed; None: all."""

    def __post_init__(self) -> None:
        _type(self.gradients)
        activations = _type(self.activations)
        if activations and activations.feedback:
            raise ConfigError(f"compress_activations must be a type without a residual, got {self.activations!r}")

    def __bool__(self) -> bool:
        return bool(self.gradients or self.activations)

    def describe(self) -> str:
        """Return the compressed tensors and their types in words; empty if nothing is compressed."""
        parts = (
            ("gradients", self.gradients, self.gradient_layers),
            ("activations", self.activations, self.activation_layers),
        )
        rows = [
            (what if layers is None else f"{what} of {', '.join(layers) or 'no layer'}", kind)
            for what, kind, layers in parts
            if kind
        ]
        return "; ".join(f"{what} as {kind}" for what, kind in rows)

    def gradient(self, graph: ComputationGraph, layer: int) -> Compression | None:
        """Return the type that a layer's gradients are synchronised with; None if they are not compressed."""
        named = self.gradient_layers is None or graph.layers[layer].name in self.gradient_layers
        return _type(self.gradients) if named else None

    def activation(self, graph: ComputationGraph, layer: int) -> Compression | None:
        """Return the type of messages with a layer's output or its gradient; None if they are not compressed."""
        named = self.activation_layers is None or graph.layers[layer].name in self.activation_layers
        return _type(self.activations) if named else None


UNCOMPRESSED = CompressionSettings()
"""Settings that compress nothing."""


def compressed_of(
    graph: ComputationGraph,
    gradient_sync: str,
    types: DataTypes | None = None,
    *,
    gradients: str = "",
    activations: str = "",
    gradient_layers: Sequence[str] | None = None,
    activation_layers: Sequence[str] | None = None,
) -> CompressionSettings:
    """Return compression settings, checked against a network and its gradient synchronisation.

    A type that messages have anyway is left out.

    Args:
        graph: The network.
        gradient_sync: One of ``planner.cost.all_reduce.GRADIENT_SYNCS``.
        types: Data types by role; None: those of the network's elements.
        gradients: Type of parameters' gradients, or empty.
        activations: Type of tensors between layers, or empty.
        gradient_layers: Layers whose gradients are compressed; None: all.
        activation_layers: Layers whose outputs are compressed; None: all.

    Raises:
        ConfigError: A type is unknown or cannot compress this, or the network has no such layer.
    """
    types = types or types_of(graph.element_bytes)
    plain = types.message, types.activation
    texts = [text if text != kind else "" for text, kind in zip((gradients, activations), plain, strict=True)]
    for field, names in (("gradient_layers", gradient_layers), ("activation_layers", activation_layers)):
        unknown = [name for name in names or () if name not in graph.index]
        if unknown:
            raise ConfigError(f"{field} must be layers of {graph.name}, got {unknown[0]!r}")
    layers = [None if names is None else tuple(names) for names in (gradient_layers, activation_layers)]
    settings = CompressionSettings(
        gradients=texts[0], activations=texts[1], gradient_layers=layers[0], activation_layers=layers[1]
    )
    kind = _type(settings.gradients)
    if kind:
        check_gradient_sync(kind, gradient_sync)
    return settings


def can_synchronise(kind: Compression, scheme: str) -> bool:
    """Return True if an algorithm, one of ``ALL_REDUCES``, can sum gradients of a type."""
    return scheme in DECOMPRESSING_SYNCS or kind.name in _CASTS


def check_gradient_sync(kind: Compression, gradient_sync: str) -> None:
    """Refuse an algorithm of gradient synchronisation that would have to sum compressed messages.

    Raises:
        ConfigError: The algorithm is ``library``; or it is neither ``auto`` nor one of ``DECOMPRESSING_SYNCS``, and
            the type cannot be summed without decompression.
    """
    if gradient_sync == LIBRARY:
        raise ConfigError(
            f"gradient_sync must not be {LIBRARY} with gradients compressed as {kind.name}, which libraries do not sum"
        )
    if gradient_sync != AUTO and not can_synchronise(kind, gradient_sync):
        allowed = f"{', '.join(DECOMPRESSING_SYNCS)} or {AUTO}"
        raise ConfigError(
            f"gradient_sync must be {allowed} with gradients compressed as {kind.name}, "
            f"whose messages cannot be summed without decompression, got {gradient_sync!r}"
        )
