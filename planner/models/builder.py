"""Builder of models in few lines: it infers shapes, names layers, and takes one number for windows of any rank."""

from collections import Counter
from collections.abc import Sequence
from typing import TypedDict, Unpack

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.operation import Operation
from planner.graph.shapes import Shape
from planner.operations.checks import check_int, position_dims
from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import GlobalPooling, Pooling

_Sizes = int | tuple[int, ...]

PREFIXES = {
    "convolution": "conv",
    "pooling": "pool",
    "global_pooling": "pool",
    "linear": "fc",
    "batch_norm": "norm",
    "local_response_norm": "norm",
}
"""Prefixes of automatic names, which a count from 1 follows; other kinds are their own prefix."""


class ConvolutionOptions(TypedDict, total=False):
    """Options of a convolution that few models set."""

    dilation: _Sizes
    """Distance of the window's elements; 1 if left out."""
    groups: int
    """Groups of channels that are convolved separately; 1 if left out."""
    bias: bool
    """True for a bias; if left out, there is one unless batch normalisation follows, which would cancel it."""


class ModelBuilder:
    """Builder of a graph, layer by layer; each method returns the name of the layer that it adds.

    A layer reads ``source``: the name of a layer, ``"input"`` for the data, or None for the layer added last.
    Window sizes are one number for all position dimensions, or one for each.  Layers without ``name`` are named after
    their kind and numbered.

    Args:
        name: Name of the graph.
        batch: Samples in a mini-batch, >= 1.
        image: Channels and positions of one sample, such as ``(3, 224, 224)``.
        element_bytes: Bytes of an element of a tensor: 2, 4 or 8.

    Raises:
        ConfigError: A value breaks its rule.
    """

    def __init__(self, name: str, *, batch: int, image: tuple[int, ...], element_bytes: int = 4) -> None:
        check_int("batch", batch, 1)
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
        """Add a layer of any kind.

        Args:
            operation: Kind of the layer, with its fields.
            sources: Layers that it reads; none: the layer added last.
            name: Name of the layer; None: an automatic one.

        Returns:
            The layer's name.

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
        """Return the channels of a layer's output."""
        return self._shapes[source or self.last].size("channel")

    def positions(self, source: str | None = None) -> tuple[int, ...]:
        """Return the position sizes of a layer's output."""
        return self._shapes[source or self.last].positions

    def conv(
        self,
        channels: int,
        kernel: _Sizes,
        source: str | None = None,
        *,
        stride: _Sizes = 1,
        pad: _Sizes = 0,
        batch_norm: bool = False,
        activation: str | None = "relu",
        name: str | None = None,
        **options: Unpack[ConvolutionOptions],
    ) -> str:
        """Add a convolution.

        Args:
            channels: Output channels.
            kernel: Window size.
            source: Layer that it reads.
            stride: Distance of windows.
            pad: Padding on both sides.
            batch_norm: True for batch normalisation behind the product.
            activation: Name of the activation at the end, or None.
            name: Name of the layer; None: an automatic one.
            **options: As in ``ConvolutionOptions``.
        """
        unknown = options.keys() - ConvolutionOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"conv() has no option {min(unknown)!r}")
        operation = Convolution(
            channels=channels,
            kernel=self._sizes(kernel),
            stride=self._sizes(stride),
            pad=self._sizes(pad),
            dilation=self._sizes(options.get("dilation", 1)),
            groups=options.get("groups", 1),
            bias=options.get("bias", not batch_norm),
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
        """Add pooling; without ``stride`` windows touch and do not overlap.

        Args:
            mode: ``max`` or ``average``.
            kernel: Window size.
            source: Layer that it reads.
            stride: Distance of windows; None: their size.
            pad: Padding on both sides.
            ceil_mode: True if the last window may end behind the padded input.
            name: Name of the layer; None: an automatic one.
        """
        operation = Pooling(
            mode=mode,
            kernel=self._sizes(kernel),
            stride=self._sizes(kernel if stride is None else stride),
            pad=self._sizes(pad),
            ceil_mode=ceil_mode,
        )
        return self.add(operation, *_given(source), name=name)

    def global_pool(self, source: str | None = None, *, name: str | None = None) -> str:
        """Add a mean over all positions."""
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
        """Add a fully connected layer, which reads all channels and positions of a sample."""
        return self.add(Linear(channels=channels, activation=activation, dropout=dropout), *_given(source), name=name)

    def sum(self, sources: Sequence[str], *, activation: str | None = None, name: str | None = None) -> str:
        """Add a sum of layers."""
        return self.add(Add(activation=activation), *sources, name=name)

    def concat(self, sources: Sequence[str], *, name: str | None = None) -> str:
        """Add a concatenation of layers along the channels."""
        return self.add(Concat(), *sources, name=name)

    def batch_norm(self, source: str | None = None, *, activation: str | None = "relu", name: str | None = None) -> str:
        """Add batch normalisation as a layer of its own."""
        return self.add(BatchNorm(activation=activation), *_given(source), name=name)

    def local_response_norm(self, source: str | None = None, *, size: int = 5, name: str | None = None) -> str:
        """Add local response normalisation over ``size`` neighbouring channels."""
        return self.add(LocalResponseNorm(size=size), *_given(source), name=name)

    def dropout(self, share: float, source: str | None = None, *, name: str | None = None) -> str:
        """Add dropout of the data, or of a layer without dropout of its own."""
        return self.add(Dropout(dropout=share), *_given(source), name=name)

    def loss(self, function: str = "softmax", source: str | None = None, *, name: str | None = None) -> str:
        """Add the loss of each sample, the last layer; its name is that of the function unless ``name`` is given."""
        return self.add(Loss(function=function), *_given(source), name=name or function)

    def build(self) -> ComputationGraph:
        """Return the graph of all layers added so far."""
        return ComputationGraph(self.name, self.batch, self._layers, element_bytes=self.element_bytes)

    def _sizes(self, sizes: _Sizes) -> tuple[int, ...]:
        """Return one size for each position dimension."""
        return (sizes,) * self._rank if isinstance(sizes, int) else sizes

    def _next_name(self, kind: str) -> str:
        prefix = PREFIXES.get(kind, kind)
        self._counts[prefix] += 1
        return f"{prefix}{self._counts[prefix]}"


def _given(source: str | None) -> tuple[str, ...]:
    """Return the source as arguments of ``add``: none for the layer added last."""
    return () if source is None else (source,)
