"""Writing a model in few lines: shapes inferred, layers named, windows given by one number."""

from collections import Counter
from collections.abc import Sequence

from hwprofiles import ConfigError
from planner.graph import ComputationGraph, Layer, Operation, Shape
from planner.operations import (
    Add,
    BatchNorm,
    Concat,
    Convolution,
    Dropout,
    GlobalPooling,
    Linear,
    LocalResponseNorm,
    Loss,
    Pooling,
    check_int,
    position_dims,
)

__all__ = ["ModelBuilder"]

_Sizes = int | tuple[int, ...]

ELEMENT_SIZES = (4, 8)
"""Bytes of a float32 and of a float64."""
PREFIXES = {
    "convolution": "conv",
    "pooling": "pool",
    "global_pooling": "pool",
    "linear": "fc",
    "batch_norm": "norm",
    "local_response_norm": "norm",
}
"""Automatic names: prefix and a count from 1; other kinds are named after themselves."""


class ModelBuilder:
    """Layers added one after another; each method returns the new layer's name.

    A layer reads ``source``: the name of a layer, ``"input"`` for the data, or None for the layer added last.
    Window sizes are one number for all position dimensions, or one for each.

    Args:
        name: Name of the graph.
        batch: Samples in a mini-batch, >= 1.
        image: Channels and positions of one sample, such as ``(3, 224, 224)``.
        element_bytes: Size of a number: one of ``ELEMENT_SIZES``.

    Raises:
        ConfigError: A value breaks its rule.
    """

    def __init__(self, name: str, *, batch: int, image: tuple[int, ...], element_bytes: int = 4) -> None:
        check_int("batch", batch, 1)
        if element_bytes not in ELEMENT_SIZES:
            raise ConfigError(f"element_bytes must be 4 or 8, got {element_bytes!r}")
        for size in image:
            check_int("image", size, 1)
        dims = ("sample", "channel", *position_dims(len(image) - 1))
        self.name = name
        self.batch = batch
        self.element_bytes = element_bytes
        self.last = "input"
        self._rank = len(image) - 1
        self._shapes = {"input": Shape(dims, (batch, *image))}
        self._layers: list[Layer] = []
        self._counts: Counter[str] = Counter()

    def add(self, operation: Operation, *sources: str, name: str | None = None) -> str:
        """Add a layer of any kind; without ``sources`` it reads the last one.

        Raises:
            ConfigError: A source is unknown, the name is taken, or the inputs do not fit the operation.
        """
        names = sources or (self.last,)
        name = name or self._next_name(operation.kind)
        if name in self._shapes:
            raise ConfigError(f"layer name must be new, {name!r} is taken in {self.name}")
        for source in names:
            if source not in self._shapes:
                raise ConfigError(f"inputs of layer {name!r} must be layers before it, got {source!r}")
        shapes = tuple(self._shapes[source] for source in names)
        try:
            output = operation.output(shapes)
        except ConfigError as error:
            raise ConfigError(f"layer {name!r} of {self.name}: {error}") from None
        self._layers.append(Layer(name, operation, names, shapes, output))
        self._shapes[name] = output
        self.last = name
        return name

    def channels(self, source: str | None = None) -> int:
        """Channels of a layer's output."""
        return self._shapes[source or self.last].size("channel")

    def positions(self, source: str | None = None) -> tuple[int, ...]:
        """Position sizes of a layer's output."""
        return self._shapes[source or self.last].positions

    def conv(
        self,
        channels: int,
        kernel: _Sizes,
        source: str | None = None,
        *,
        stride: _Sizes = 1,
        pad: _Sizes = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool | None = None,
        batch_norm: bool = False,
        activation: str | None = "relu",
        name: str | None = None,
    ) -> str:
        """Convolution; it has a bias unless batch normalisation, which would cancel it, follows."""
        operation = Convolution(
            channels=channels,
            kernel=self._sizes(kernel),
            stride=self._sizes(stride),
            pad=self._sizes(pad),
            dilation=self._sizes(dilation),
            groups=groups,
            bias=not batch_norm if bias is None else bias,
            batch_norm=batch_norm,
            activation=activation,
        )
        return self.add(operation, *_given(source), name=name)

    def pool(
        self,
        mode: str,
        kernel: _Sizes,
        source: str | None = None,
        *,
        stride: _Sizes | None = None,
        pad: _Sizes = 0,
        ceil_mode: bool = False,
        name: str | None = None,
    ) -> str:
        """Pooling; windows touch without overlap unless a stride is given."""
        operation = Pooling(
            mode=mode,
            kernel=self._sizes(kernel),
            stride=self._sizes(kernel if stride is None else stride),
            pad=self._sizes(pad),
            ceil_mode=ceil_mode,
        )
        return self.add(operation, *_given(source), name=name)

    def global_pool(self, source: str | None = None, *, name: str | None = None) -> str:
        """Mean over all positions."""
        return self.add(GlobalPooling(), *_given(source), name=name)

    def linear(
        self,
        channels: int,
        source: str | None = None,
        *,
        activation: str | None = None,
        dropout: float = 0.0,
        name: str | None = None,
    ) -> str:
        """Fully connected layer on all of a sample."""
        return self.add(Linear(channels=channels, activation=activation, dropout=dropout), *_given(source), name=name)

    def sum(self, sources: Sequence[str], *, activation: str | None = None, name: str | None = None) -> str:
        """Sum of layers."""
        return self.add(Add(activation=activation), *sources, name=name)

    def concat(self, sources: Sequence[str], *, name: str | None = None) -> str:
        """Concatenation of layers along the channels."""
        return self.add(Concat(), *sources, name=name)

    def batch_norm(self, source: str | None = None, *, activation: str | None = "relu", name: str | None = None) -> str:
        """Batch normalisation as a layer of its own."""
        return self.add(BatchNorm(activation=activation), *_given(source), name=name)

    def local_response_norm(self, source: str | None = None, *, size: int = 5, name: str | None = None) -> str:
        """Normalisation over ``size`` neighbouring channels."""
        return self.add(LocalResponseNorm(size=size), *_given(source), name=name)

    def dropout(self, share: float, source: str | None = None, *, name: str | None = None) -> str:
        """Dropout of the data, or of a layer that has none of its own."""
        return self.add(Dropout(dropout=share), *_given(source), name=name)

    def loss(self, function: str = "softmax", source: str | None = None, *, name: str | None = None) -> str:
        """Loss of each sample, the last layer."""
        return self.add(Loss(function=function), *_given(source), name=name or function)

    def build(self) -> ComputationGraph:
        """The graph of all layers added so far."""
        return ComputationGraph(self.name, self.batch, self._layers, element_bytes=self.element_bytes)

    def _sizes(self, sizes: _Sizes) -> tuple[int, ...]:
        return (sizes,) * self._rank if isinstance(sizes, int) else sizes

    def _next_name(self, kind: str) -> str:
        prefix = PREFIXES.get(kind, kind)
        self._counts[prefix] += 1
        return f"{prefix}{self._counts[prefix]}"


def _given(source: str | None) -> tuple[str, ...]:
    return () if source is None else (source,)
