"""One ONNX node with what is known of its inputs, and the operations of PyTorch that it becomes."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from groundwork.errors import ConfigError
from planner.onnx_files.known_tensors import KnownTensors
from planner.tracing.trace import Argument, TraceNode, TraceTensor

if TYPE_CHECKING:
    import onnx


Translation = Callable[["NodeView"], None]
TRANSLATIONS: dict[str, Translation] = {}
"""Translation of each operation of ONNX, by its name."""


def translates(*operations: str) -> Callable[[Translation], Translation]:
    """Register a function as the translation of operations; a text may name several."""

    def register(function: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys(" ".join(operations).split(), function))
        return function

    return register


@dataclass
class NodeView:
    """One node: its inputs, its attributes, and the operations it has become so far."""

    proto: "onnx.NodeProto"
    known: KnownTensors
    module: str
    parameters: Set[str]
    nodes: list[TraceNode] = field(default_factory=list)

    @property
    def opset(self) -> int:
        """Version of the operations."""
        return self.known.opset

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name, text decoded."""
        from onnx import helper

        rows = {row.name: helper.get_attribute_value(row) for row in self.proto.attribute}
        return {
            name: value.decode(errors="replace") if isinstance(value, bytes) else value for name, value in rows.items()
        }

    def has(self, i: int) -> bool:
        """Return whether an optional input is given."""
        return i < len(self.proto.input) and bool(self.proto.input[i])

    def input(self, i: int) -> Argument | None:
        """Return an input; None where it is left out."""
        return Argument(self.proto.input[i]) if self.has(i) else None

    def weight(self, i: int) -> Argument | None:
        """Return a trained input; None where it is left out, or constant."""
        return None if self.has(i) and self.proto.input[i] in self.known.elements else self.input(i)

    def shape(self, i: int = 0) -> tuple[int, ...]:
        """Return the sizes of an input."""
        return self.known.sizes[self.proto.input[i]].shape

    @property
    def result(self) -> TraceTensor:
        """Sizes of the first result."""
        return self.known.sizes[self.proto.output[0]]

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.attributes.get(name, default)

    def setting(self, name: str, i: int, default: Any = None) -> Any:
        """Return what older versions give as an attribute, and newer ones as a constant input.

        Raises:
            ConfigError: The input depends on the data.
        """
        if name in self.attributes:
            return self.attributes[name]
        if not self.has(i):
            return default
        return self.elements(i, name).tolist()

    def elements(self, i: int, name: str) -> np.ndarray[Any, Any]:
        """Return the elements of a constant input.

        Raises:
            ConfigError: It depends on the data.
        """
        found = self.known.elements.get(self.proto.input[i])
        if found is None:
            raise self.problem(f"{name} must be constant, it is {self.proto.input[i]!r}, which depends on data")
        return found

    # Operations that it becomes

    def step(self, operation: str, shape: Sequence[int], /, **arguments: Any) -> Argument:
        """Add an operation in between, and return its result."""
        tensor = TraceTensor(tuple(shape), self.result.floating)
        name = f"{self.proto.output[0]} {len(self.nodes) + 1}"
        self._add(name, operation, (tensor,), arguments)
        return Argument(name)

    def ends(self, operation: str, /, **arguments: Any) -> None:
        """Add the operation that makes the results."""
        names = [name for name in self.proto.output if name]
        results = tuple(self.known.sizes.get(name, TraceTensor(())) for name in names)
        if len(names) == 1:
            self._add(names[0], operation, results, arguments)
            return
        row = f"{names[0]} and others"
        self._add(row, operation, results, arguments, several=True)
        for i, (name, tensor) in enumerate(zip(names, results, strict=True)):
            self._add(name, "getitem", (tensor,), {"0": Argument(row), "1": i})

    def list_of(self, parts: Sequence[TraceTensor], operation: str, /, **arguments: Any) -> None:
        """Add the operation that makes a list of tensors."""
        self._add(self.proto.output[0], operation, tuple(parts), arguments, several=True)

    def _add(
        self,
        name: str,
        operation: str,
        results: tuple[TraceTensor, ...],
        arguments: dict[str, Any],
        several: bool = False,
    ) -> None:
        given = {key: value for key, value in arguments.items() if value is not None}
        self.nodes.append(
            TraceNode(
                name=name, operation=operation, arguments=given, results=results, several=several, module=self.module
            )
        )

    def problem(self, text: str) -> ConfigError:
        """Return the error that the node cannot be imported."""
        name = self.proto.name or (self.proto.output[0] if self.proto.output else "")
        return ConfigError(f"operation {self.proto.op_type} of node {name!r}: {text}")
