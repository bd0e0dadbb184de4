"""Sizes of all tensors of an ONNX graph, and the elements of those that only sizes and constants decide.

Exporters compute sizes by operations, such as ``Shape``, ``Gather`` and ``Concat`` in front of a ``Reshape``: these are
evaluated by ONNX's own reference in NumPy, one node at a time, a short list of operations and small tensors only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from groundwork.errors import ConfigError
from planner.tracing.trace import TraceTensor

if TYPE_CHECKING:
    import onnx


_EVALUATED_WORDS = """
    Add And Cast Ceil Concat Constant ConstantOfShape Div Equal Expand Flatten Floor Gather Greater GreaterOrEqual
    Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pow Range ReduceMax ReduceMin ReduceProd ReduceSum Reshape
    ScatterND Slice Split Sqrt Squeeze Sub Tile Transpose Trilu Unsqueeze Where
"""
_EVALUATED = frozenset(_EVALUATED_WORDS.split())
_SAME_SIZES = frozenset(["GroupNormalization", "Gelu", "HardSwish", "Mish", "RMSNormalization", "Swish"])
"""Operations whose result has the sizes of their first input, of some of which ONNX does not infer them."""
_MOST_ELEMENTS = 2**20
"""Most elements of a tensor that is evaluated."""


class UnknownSizesError(Exception):
    """The sizes of what a node makes cannot be told."""


@dataclass(slots=True)
class KnownTensors:
    """What is known of the tensors of a graph so far."""

    opset: int
    sizes: dict[str, TraceTensor] = field(default_factory=dict)
    elements: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Elements of small constant tensors, by name."""
    types: dict[str, "onnx.TypeProto"] = field(default_factory=dict)
    declared: Mapping[str, "onnx.TypeProto"] = field(default_factory=dict)
    """Types that the file declares, which count where an operation is unknown."""

    def add(self, name: str, kind: "onnx.TypeProto") -> None:
        """Add a tensor of known sizes.

        Raises:
            UnknownSizesError: A size is not fixed, or it is no tensor.
            ConfigError: Its elements are of an unknown type, or too many.
        """
        from onnx import TensorProto

        if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            raise UnknownSizesError(name)
        rows = kind.tensor_type.shape.dim
        if not all(row.HasField("dim_value") and row.dim_value >= 0 for row in rows):
            raise UnknownSizesError(name)
        element, sizes = kind.tensor_type.elem_type, tuple(row.dim_value for row in rows)
        if element not in TensorProto.DataType.values():
            raise ConfigError(f"tensor {name!r}: elem_type must be a type that the installed onnx knows, got {element}")
        self.types[name] = kind
        try:
            self.sizes[name] = TraceTensor(sizes, is_floating(element))
        except ConfigError as error:
            raise ConfigError(f"tensor {name!r}: {error}") from None

    def add_constant(self, name: str, tensor: "onnx.TensorProto") -> None:
        """Add a tensor of the file; its elements are read if they are few and lie in the file."""
        from onnx import TensorProto, helper, numpy_helper

        self.add(name, helper.make_tensor_type_proto(tensor.data_type, tensor.dims))
        external = tensor.data_location == TensorProto.EXTERNAL
        if not external and int(np.prod(tensor.dims, dtype=float)) <= _MOST_ELEMENTS:
            self.elements[name] = numpy_helper.to_array(tensor)

    def add_results(self, node: "onnx.NodeProto") -> bool:
        """Add what a node makes, and return whether all of it is known to the last element.

        Raises:
            UnknownSizesError: Sizes cannot be told.
        """
        from onnx import helper

        outputs = [name for name in node.output if name]
        if node.op_type == "Shape" and node.input[0] in self.sizes:
            shape = self.sizes[node.input[0]].shape
            given = {row.name: row.i for row in node.attribute}
            self._keep(
                outputs[0], np.array(shape[given.get("start", 0) : given.get("end", len(shape))], dtype=np.int64)
            )
            return True
        if node.op_type == "CastLike" and node.input[0] in self.elements:  # of the other operand only its type counts
            number = helper.tensor_dtype_to_np_dtype(self.types[node.input[1]].tensor_type.elem_type)
            self._keep(outputs[0], self.elements[node.input[0]].astype(number))
            return True
        inferred = dict(self._inferred(node))
        if node.op_type in _SAME_SIZES and node.input[0] in self.types:
            inferred[outputs[0]] = self.types[node.input[0]]
        for name in outputs:
            kind = inferred.get(name)
            try:
                self.add(name, kind if kind is not None else self.declared[name])
            except (KeyError, UnknownSizesError):
                if name not in self.declared:
                    raise UnknownSizesError(name) from None
                self.add(name, self.declared[name])
        return self._evaluated(node, outputs)

    def _inferred(self, node: "onnx.NodeProto") -> Mapping[str, "onnx.TypeProto"]:
        """Return the types of what a node makes, as ONNX infers them; none where it does not know the operation."""
        from onnx import checker, defs, helper, numpy_helper, shape_inference

        if not defs.has(node.op_type, node.domain):
            return {}
        data = {
            name: numpy_helper.from_array(self.elements[name], name) for name in node.input if name in self.elements
        }
        types = {name: self.types[name] for name in node.input if name in self.types}
        try:
            schema = defs.get_schema(node.op_type, self.opset if not node.domain else 1, node.domain)
            found: Mapping[str, Any] = shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[helper.make_opsetid("", self.opset)]
            )
        except (defs.SchemaError, shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError):
            return {}
        return found

    def _evaluated(self, node: "onnx.NodeProto", outputs: list[str]) -> bool:
        """Evaluate a node whose inputs are all known, if it is one of those that compute sizes."""
        small = all(int(np.prod(self.sizes[name].shape, dtype=float)) <= _MOST_ELEMENTS for name in outputs)
        known = all(name in self.elements for name in node.input if name)
        if not small or not known or node.op_type not in _EVALUATED or node.domain:
            return False
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        names = list(dict.fromkeys(name for name in node.input if name))
        inputs = [helper.make_value_info(name, self.types[name]) for name in names]
        results = [helper.make_value_info(name, self.types[name]) for name in outputs]
        graph = helper.make_graph([node], "one", inputs, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        try:
            with np.errstate(all="ignore"):
                found = ReferenceEvaluator(model).run(None, {name: self.elements[name] for name in names})
        except Exception:  # whatever wrong arguments make the reference raise: the elements stay unknown
            return False
        for name, value in zip(outputs, found, strict=True):
            self._keep(name, np.asarray(value))
        return True

    def _keep(self, name: str, value: np.ndarray[Any, Any]) -> None:
        from onnx import helper

        kind = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        self.add(name, kind)
        self.elements[name] = value


def is_floating(kind: int) -> bool:
    """Return whether elements of a type have gradients."""
    from onnx import TensorProto

    return kind in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
