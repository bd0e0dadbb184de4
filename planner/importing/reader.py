"""State of an import: the values of the program so far, and the layers that were made for them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from groundwork.errors import ConfigError
from planner.graph.computation_graph import Layer
from planner.graph.data_sources import is_data
from planner.graph.operation import Operation
from planner.graph.parameters import Parameter
from planner.graph.shapes import IntervalMap, Shape
from planner.importing.axes import Atom, IndivisibleViewError, RowPlaces, TracedValue, reshaped
from planner.importing.constants import Fixed, computed
from planner.importing.placement import OutputLayout, Tag, interval_maps, layout_of
from planner.importing.recording import Given, channel_axis, recorded
from planner.operations.checks import POSITIONS
from planner.operations.rearrangement import Rearrangement
from planner.operations.streaming import Unknown
from planner.tracing.trace import Argument, Trace, TraceNode

Pair = tuple[Atom, Tag | int | None]
"""An atom of an input, and the tag of the output that it follows."""


Trained = tuple[tuple[Parameter, str], ...]
"""Parameters of a layer, each with its key in the ``state_dict``."""
Result = TracedValue | Fixed | list["Result"]
Handler = Callable[["GraphReader", TraceNode], Any]
HANDLERS: dict[str, Handler] = {}
"""Reader of each operation, by its name."""


def handles(*operations: str) -> Callable[[Handler], Handler]:
    """Register a function as the reader of operations; a text may name several."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(" ".join(operations).split(), handler))
        return handler

    return register


def keys_of(trained: Trained) -> dict[str, str]:
    """Return the keys of parameters by name."""
    return {parameter.name: key for parameter, key in trained}


@dataclass(slots=True)
class GraphReader:
    """Values and layers of an import so far."""

    trace: Trace
    batch: int
    values: dict[str, Result] = field(default_factory=dict)
    """By name of the node or argument."""
    layers: dict[str, Layer] = field(default_factory=dict)
    """By name, in order."""
    shapes: dict[str, Shape] = field(default_factory=dict)
    """Outputs of layers, and data."""
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Layer and name of each parameter that a layer trains, by its key."""
    by_sample: list[tuple[str, str, str]] = field(default_factory=list)
    """Layers that are split by samples alone: name, operation, reason."""
    views: dict[str, str] = field(default_factory=dict)
    """Names of views, each with the name of what it is a view of."""
    read: dict[str, Sequence[TracedValue]] = field(default_factory=dict)
    """Values of the inputs of each layer."""
    nodes: dict[str, TraceNode] = field(default_factory=dict)
    """Operations by name, those that were read."""
    losses: list[TracedValue] = field(default_factory=list)
    """Tensors that the program sums over its samples."""

    def argument(self, node: TraceNode, name: str, default: Any = None) -> Any:
        """Return an argument: the value of a tensor, or the plain argument."""
        given = node.arguments.get(name)
        return default if given is None else self.resolved(given)

    def operand_name(self, node: TraceNode) -> str:
        """Return the name of the argument that an operation on one tensor is of."""
        named = (name for name in ("self", "input", "x", "a", "tensor") if name in node.arguments)
        return next(named, next(iter(node.arguments)))

    def operand(self, node: TraceNode) -> Any:
        """Return the tensor that an operation on one tensor is of."""
        return self.argument(node, self.operand_name(node))

    def resolved(self, given: Any) -> Any:
        """Return the values of references, also within lists."""
        if isinstance(given, Argument):
            return self.values.get(given.name, Fixed(()))
        return [self.resolved(each) for each in given] if isinstance(given, list | tuple) else given

    # Layers

    def emit(
        self,
        node: TraceNode,
        operation: Operation,
        inputs: Sequence[TracedValue],
        *,
        axes: Any = None,
        weights: Mapping[str, str] | None = None,
    ) -> TracedValue:
        """Add a layer, and return its output."""
        names = tuple(v.layer for v in inputs)
        shapes = tuple(self.shapes[v.layer] for v in inputs)
        output, name = operation.output(shapes), self.name_of(node)
        if output.sizes[0] != self.batch:
            raise self.problem(node, "mixes samples: its result must keep the batch of the input in its first axis")
        self.layers[name] = Layer(name, operation, names, shapes, output, keys=tuple((weights or {}).items()))
        self.shapes[name], self.read[name] = output, tuple(inputs)
        if axes is None:
            pairs = zip(output.dims, output.sizes, strict=True)
            axes = tuple((Atom(dim, size),) if size > 1 else () for dim, size in pairs)
        return TracedValue(name, axes)

    def parameters(self, name: str, keys: Iterable[tuple[str, str, bool]]) -> Trained:
        """Return the parameters of a new layer with their keys; those that another layer has are shared.

        Args:
            name: Name of the layer.
            keys: For each its name, its key in the ``state_dict``, and whether a split of the channels splits it.
        """
        rows = []
        for each, key, split in keys:
            owner = self.owners.setdefault(key, (name, each))
            shape = self.parameter_shapes[key]
            rows.append(
                (Parameter(each, shape, ("channel",) if split else (), "" if owner[0] == name else owner[0]), key)
            )
        return tuple(rows)

    def fixed_parameters(self, node: TraceNode, fixed: Iterable[Any], split: bool = False) -> Trained:
        """Return the parameters that tensors independent of the data are computed from."""
        keys = list(dict.fromkeys(key for each in fixed if isinstance(each, Fixed) for key in each.keys))
        name = self.name_of(node)
        return self.parameters(name, [(f"weight{i or ''}", key, split) for i, key in enumerate(keys)])

    @property
    def parameter_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Sizes of all parameters by key."""
        return self.trace.parameter_shapes

    def name_of(self, node: TraceNode) -> str:
        """Return the name that the next layer of a node will have: its module's path."""
        base = node.module or node.operation
        if base not in self.layers and not is_data(base) and node.operation != "view":
            return base
        base, number = f"{node.module}.{node.operation}".strip("."), 1
        base = base.replace(":", "_") if is_data(base) else base
        name = base
        while name in self.layers:
            number += 1
            name = f"{base}_{number}"
        return name

    # Values

    def mapped(
        self,
        node: TraceNode,
        make: Callable[..., Operation],
        out: Sequence[Sequence[Tag]],
        inputs: Sequence[tuple[TracedValue, Sequence[Pair]]],
        *,
        trained: Trained = (),
        **fields: Any,
    ) -> TracedValue:
        """Add a layer whose output has axes of tags and whose inputs follow them.

        Args:
            node: Operation of the program.
            make: Class of the operation.
            out: Tags of each axis of the output.
            inputs: Each input with the tag that every atom of it follows.
            trained: Parameters of the layer.
            **fields: Further fields of the operation.
        """
        layout = layout_of(out)
        reads = tuple(interval_maps(self.shapes[v.layer], pairs, layout) for v, pairs in inputs)
        return self.laid_out(node, make, layout, [v for v, _ in inputs], reads, trained=trained, **fields)

    def laid_out(
        self,
        node: TraceNode,
        make: Callable[..., Operation],
        layout: OutputLayout,
        inputs: Sequence[TracedValue],
        reads: Sequence[Any],
        *,
        trained: Trained = (),
        **fields: Any,
    ) -> TracedValue:
        """Add a layer with a given layout and maps."""
        if layout.shape.sizes[0] != self.batch:
            raise self.problem(node, "mixes samples: its result must keep the batch of the input in one axis")
        if trained:
            fields["weights"] = tuple(parameter for parameter, _ in trained)
        operation = make(dims=layout.shape.dims[1:], sizes=layout.shape.sizes[1:], reads=tuple(reads), **fields)
        return self.emit(node, operation, inputs, axes=layout.axes, weights=keys_of(trained))

    def plain(self, node: TraceNode, value: TracedValue) -> TracedValue | None:
        """Return a value whose axes are samples, channels and positions, adding a view where they are not.

        Returns:
            None if samples share their axis with something else, or there are too many axes.
        """
        rank = len(value.axes) - 2
        if not 0 <= rank <= 3:
            return None
        dims, shape = ("sample", "channel", *POSITIONS[rank]), self.shapes[value.layer]
        whole = tuple((Atom(dim, size),) if size > 1 else () for dim, size in zip(dims, value.shape, strict=True))
        if shape.dims == dims and shape.sizes == value.shape and whole == value.axes:
            return value
        if value.axes[0] != ((Atom("sample", self.batch),) if self.batch > 1 else ()):
            return None
        tags = [
            [Tag(atom.size, dim, len(axis) - i) for i, atom in enumerate(axis)]
            for dim, axis in zip(dims, value.axes, strict=True)
        ]
        for dim, row in zip(dims, tags, strict=True):
            if not row:
                row.append(Tag(1, dim))
        pairs = [pair for axis, row in zip(value.axes, tags, strict=True) for pair in zip(axis, row, strict=False)]
        view = TraceNode(name=node.name, operation="view", arguments={}, results=(), module=node.module, line=node.line)
        result = self.mapped(view, Rearrangement, tags, [(value, pairs)], kind="view")
        return self.computes(result, "take", "view", [("self", value)], {})

    def unknown(self, node: TraceNode, reason: str) -> TracedValue:
        """Add a layer that is split by samples alone."""
        node = self.without_places(node)
        tensors, result = list(self._tensors_in(node)), node.results[0]
        inputs = list(dict.fromkeys(each for each in tensors if isinstance(each, TracedValue)))
        if not inputs or result.shape[:1] != (self.batch,):
            raise self.problem(node, f"is not supported where its result has no axis of samples ({reason})")
        sample = Tag(self.batch, "sample")
        out = [[sample], *([Tag(size, f"position{i}" if i else "channel")] for i, size in enumerate(result.shape[1:]))]
        pairs = [
            (v, [(a, sample if a.dim == "sample" and a.size == self.batch else None) for row in v.axes for a in row])
            for v in inputs
        ]
        trained = self.fixed_parameters(node, tensors)
        value = self.mapped(node, Unknown, out, pairs, trained=trained, function=node.operation)
        self.by_sample.append((value.layer, node.operation, reason))
        return self.computes(value, "whole", node.operation, self.operands_of(node), node.arguments, channels={})

    def computes(
        self,
        value: TracedValue,
        form: str,
        call: str,
        operands: Sequence[Given],
        arguments: Mapping[str, Any],
        *,
        out: Any = None,
        channels: Mapping[str, int | None] | None = None,
    ) -> TracedValue:
        """Write down what the layer of a value computes, and return the value.

        Args:
            value: Result of the layer.
            form: How the computation is divided.
            call: Name of the operation.
            operands: Tensors that it reads.
            arguments: All arguments of the operation; those that are tensors are left out.
            out: Axes of the result, where they are not those of the value.
            channels: Axis of each constant that is the layer's channels; None: as they are broadcast.
        """
        if self.trace.foreign:
            return value
        layer, axes = self.layers[value.layer], value.axes if out is None else out
        arguments = {name: self.resolved(each) for name, each in arguments.items()}
        if channels is None:
            fixed = [(name, each) for name, each in operands if isinstance(each, Fixed)]
            channels = {name: channel_axis(axes, layer.output, len(each.shape)) for name, each in fixed}
        self.layers[value.layer] = recorded(
            layer, self.read[value.layer], form, call, operands, arguments, out=axes, channel_axes=channels
        )
        return value

    def operands_of(self, node: TraceNode) -> list[Given]:
        """Return the tensors that a node reads, by the names of its arguments; those of lists numbered."""
        rows: list[Given] = []
        for name, given in node.arguments.items():
            each = self.resolved(given)
            if isinstance(each, TracedValue | Fixed):
                rows.append((name, each))
            elif isinstance(each, list | tuple):
                rows += [(f"{name}.{i}", one) for i, one in enumerate(each) if isinstance(one, TracedValue | Fixed)]
        return rows

    def maps_with(
        self, value: TracedValue, pairs: Sequence[Pair], layout: OutputLayout, given: Mapping[str, IntervalMap]
    ) -> tuple[IntervalMap, ...]:
        """Return the maps of an input, some of which are given.

        Args:
            value: The input.
            pairs: Its atoms with the tags that they follow.
            layout: The output.
            given: Maps by dimension of the input, whose ``dim`` is the identity of a tag of the output; they count
                where that tag is a dimension of its own.
        """
        shape, rows = self.shapes[value.layer], list[IntervalMap]()
        for dim, each in zip(shape.dims, interval_maps(shape, pairs, layout), strict=True):
            one = given.get(dim)
            atom = layout.atoms[int(one.dim)] if one is not None and one.dim is not None else None
            whole = atom is not None and atom.dim is not None and layout.shape.size(atom.dim) == atom.size
            rows.append(replace(one, dim=atom.dim) if one is not None and atom is not None and whole else each)
        return tuple(rows)

    def _tensors_in(self, node: TraceNode) -> Iterable[TracedValue | Fixed]:
        """Yield the tensors that a node reads, those of lists too."""
        for each in _flat([self.resolved(given) for given in node.arguments.values()]):
            if isinstance(each, TracedValue | Fixed):
                yield each

    def view(self, node: TraceNode, value: TracedValue, shape: Sequence[int]) -> TracedValue:
        """Return a value with other sizes."""
        try:
            return replace(value, axes=reshaped(value.axes, shape))
        except IndivisibleViewError:
            return self.unknown(node, "divides its dimensions at no whole fraction")

    def without_places(self, node: TraceNode) -> TraceNode:
        """Return a node with tensors of unknown numbers for places of rows."""
        return replace(node, arguments=self._without_places(node.arguments))

    def _without_places(self, given: Any) -> Any:
        if isinstance(given, dict):
            return {name: self._without_places(each) for name, each in given.items()}
        if isinstance(given, list | tuple):
            return [self._without_places(each) for each in given]
        value = self.values.get(given.name) if isinstance(given, Argument) else None
        return Fixed(value.shape) if isinstance(value, RowPlaces) else given

    def depends(self, node: TraceNode) -> bool:
        """Return whether a node reads data."""
        return any(isinstance(each, TracedValue) for each in self._tensors_in(node))

    def fixed(self, node: TraceNode, call: str) -> Any:
        """Return the results of a node that reads no data; ``call`` is its operation, not in place."""
        given = {name: self.resolved(each) for name, each in node.arguments.items()}
        results: list[Result] = [
            computed(node, call, given, tensor.shape, i if node.several else None)
            for i, tensor in enumerate(node.results)
        ]
        return results if node.several else results[0] if results else Fixed(())

    def problem(self, node: TraceNode, text: str) -> ConfigError:
        """Return the error that an operation cannot be imported."""
        at = f" at {node.line}" if node.line else ""
        return ConfigError(f"operation {node.operation}{at}, in module {node.module or '(the model)'!r}: {text}")


def _flat(given: Any) -> Iterable[Any]:
    """Yield what nested lists hold."""
    if isinstance(given, list | tuple):
        for each in given:
            yield from _flat(each)
    else:
        yield given
