"""ONNX graphs as programs in the operations of PyTorch, which one importer reads.

Initial tensors of floating-point elements are taken as parameters, without running statistics and single elements that
are no weight of a layer.
"""

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from groundwork.errors import ConfigError
from groundwork.input_files import input_bytes
from planner.onnx_files import (  # noqa: F401 - each registers its translations
    translate_elementwise,
    translate_products,
    translate_views,
    translate_windows,
)
from planner.onnx_files.known_tensors import KnownTensors, UnknownSizesError
from planner.onnx_files.node_view import TRANSLATIONS, NodeView
from planner.onnx_files.sequences import SEQUENCES, read_sequence
from planner.tracing.inputs import InputSpec, one_sample_error, with_two_samples
from planner.tracing.trace import Argument, Trace, TraceNode, TraceTensor

if TYPE_CHECKING:
    import onnx


_FILE_MIB = 2048
"""Largest file; protocol buffers cannot be larger."""
_DOMAINS = ("", "ai.onnx")


def loaded_onnx(path: Path) -> "onnx.ModelProto":
    """Return what an ONNX file holds.

    Raises:
        ConfigError: The package ``onnx`` is not installed, or the file is no ONNX file or is cut off.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ConfigError("onnx must be installed to read ONNX files: pip install 'orrery-training[onnx]'")
    import onnx
    from google.protobuf.message import DecodeError

    content = input_bytes(path, "ONNX file", limit_mib=_FILE_MIB)
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        raise ConfigError(f"ONNX file {path} is no protocol buffer of ONNX, or is cut off") from None
    if not model.graph.node or not model.opset_import:
        raise ConfigError(f"ONNX file {path} must hold a graph with nodes and the version of its operations")
    return _inlined(model, path) if model.functions else model


def _inlined(model: "onnx.ModelProto", path: Path) -> "onnx.ModelProto":
    """Return a model with the nodes of its functions in place of their calls."""
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())[:160]
        raise ConfigError(f"ONNX file {path} has functions that cannot be inlined: {text}") from None


def opset_of(model: "onnx.ModelProto", path: Path) -> int:
    """Return the version of the operations.

    Raises:
        ConfigError: It is missing, or newer than the installed package knows.
    """
    from onnx import defs

    version = next((row.version for row in model.opset_import if row.domain in _DOMAINS), 0)
    newest = defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise ConfigError(
            f"ONNX file {path} must use operations of a version from 1 to {newest}, which the installed onnx knows, "
            f"got {version}"
        )
    return int(version)


_CONTROL_FLOW = ("If", "Loop", "Scan")
_NOT_TRAINED = {"BatchNormalization": (3, 4), "Resize": (1, 2), "Upsample": (1,)}
"""Inputs that are statistics or factors, by operation."""
_WEIGHTS = {
    "BatchNormalization": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gemm": (1, 2),
    "PRelu": (1,),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "GroupNormalization": (1, 2),
    "RMSNormalization": (1,),
    "LSTM": (1, 2, 3),
    "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
}
"""Inputs that are weights, by operation."""


def trace_of_onnx(path: Path, inputs: Sequence[InputSpec] = ()) -> Trace:
    """Read the program of an ONNX file.

    A file of one sample is read with two, where its graph allows: an axis of one sample cannot be told from others of
    size 1.

    Args:
        path: The file; weights that it keeps in other files are not needed.
        inputs: Sizes in place of those in the file, by position or name; needed where the file's are not fixed.

    Raises:
        ConfigError: The file is none, has sizes that are not fixed, control flow, or an operation whose result has
            sizes that cannot be told.
    """
    model = loaded_onnx(path)
    reader = _Reader(path, model.graph, KnownTensors(opset_of(model, path)))
    reader.read_tensors(inputs)
    try:
        for node in model.graph.node:
            _checked_read(reader, node)
    except ConfigError as error:
        raise one_sample_error(error) if reader.samples else error from None
    return reader.trace()


def _checked_read(reader: "_Reader", node: "onnx.NodeProto") -> None:
    """Read one node; one whose inputs or attributes contradict its operation becomes one line."""
    try:
        reader.read(node)
    except ConfigError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        text = " ".join(str(error).split())[:160]
        raise ConfigError(
            f"operation {node.op_type} of node {node.name!r} has inputs or attributes that it cannot have: "
            f"{type(error).__name__} {text}"
        ) from error


@dataclass
class _Reader:
    """State of a translation."""

    path: Path
    graph: "onnx.GraphProto"
    known: KnownTensors
    inputs: dict[str, TraceTensor] = field(default_factory=dict)
    parameters: dict[str, tuple[str, TraceTensor]] = field(default_factory=dict)
    constants: dict[str, TraceTensor] = field(default_factory=dict)
    nodes: list[TraceNode] = field(default_factory=list)
    absorbed: set[str] = field(default_factory=set)
    """Products that became one with the bias behind them."""
    samples: int = 0
    """Samples of the file where it is read with more of them; else 0."""

    def read_tensors(self, given: Sequence[InputSpec]) -> None:
        """Read sizes of the data, and parameters and constants."""
        self.known.declared = {row.name: row.type for row in (*self.graph.value_info, *self.graph.output)}
        initial = {row.name for row in self.graph.initializer}
        data = [row for row in self.graph.input if row.name not in initial]
        sizes = _given_sizes(self.path, [row.name for row in data], given)
        for row in data:
            self._read_input(row, sizes.get(row.name))
        own = [InputSpec(shape=each.shape, name=name) for name, each in self.inputs.items()]
        resized, self.samples = with_two_samples(own)
        for row, spec in zip(data, resized, strict=True):
            self._read_input(row, spec.shape)
        trained, shapes = _trained(self.graph), _recurrent_shapes(self.graph)
        for tensor in self.graph.initializer:
            try:
                self.known.add_constant(tensor.name, tensor)
            except ConfigError as error:
                raise ConfigError(f"ONNX file {self.path}: {error}") from None
            except (UnknownSizesError, TypeError, ValueError) as error:
                text = " ".join(str(error).split())[:120]
                raise ConfigError(f"ONNX file {self.path}: tensor {tensor.name!r} must be whole: {text}") from None
            kind = self.known.sizes[tensor.name]
            if tensor.name in trained and kind.floating:
                self.parameters[tensor.name] = (tensor.name, replace(kind, shape=shapes.get(tensor.name, kind.shape)))
                self.known.elements.pop(tensor.name, None)
            else:
                self.constants[tensor.name] = kind
        self.uses = Counter(name for node in self.graph.node for name in node.input)
        self.uses.update(row.name for row in self.graph.output)
        self.transposed = {
            node.output[0]: node.input[0]
            for node in self.graph.node
            if node.op_type == "Transpose" and node.input and self._is_matrix(node.input[0]) and _turns(node)
        }
        self.biases = self._biases()

    def _read_input(self, row: "onnx.ValueInfoProto", sizes: Sequence[int] | None) -> None:
        from onnx import helper

        kind = row.type
        if sizes is not None:
            kind = helper.make_tensor_type_proto(kind.tensor_type.elem_type, sizes)
        try:
            self.known.add(row.name, kind)
        except UnknownSizesError:
            shape = "x".join(
                str(dim.dim_value) if dim.dim_value else dim.dim_param or "?" for dim in kind.tensor_type.shape.dim
            )
            raise ConfigError(
                f"ONNX file {self.path}: sizes must be fixed, input {row.name!r} has {shape or 'none'}; import it with "
                f"--input {row.name}=SIZES, such as {row.name}=32x3x224x224"
            ) from None
        self.inputs[row.name] = self.known.sizes[row.name]

    def _biases(self) -> dict[str, "onnx.NodeProto"]:
        """Return products with a trained matrix whose only reader may add a bias, by the name of their result."""
        rows = [node for node in self.graph.node if node.op_type == "MatMul" and self._has_matrix(node)]
        return {node.output[0]: node for node in rows if self.uses[node.output[0]] == 1}

    def _is_matrix(self, name: str) -> bool:
        """Return whether a tensor is a trained matrix."""
        return name in self.parameters and len(self.parameters[name][1].shape) == 2

    def _has_matrix(self, product: "onnx.NodeProto") -> bool:
        """Return whether a product is one with a trained matrix, transposed or read by no other node."""
        name = product.input[1] if len(product.input) == 2 else ""
        return name in self.transposed or (self._is_matrix(name) and self.uses[name] == 1)

    def read(self, node: "onnx.NodeProto") -> None:
        """Read one node."""
        view = NodeView(node, self.known, _module(node), self.parameters.keys())
        if node.op_type in _CONTROL_FLOW:
            raise view.problem("control flow has no fixed program; export the model again with fixed sizes")
        absent = next((name for name in node.input if name and name not in self.known.sizes), None)
        if absent is not None:
            raise view.problem(f"it reads {absent!r}, which nothing before it makes")
        if node.op_type in SEQUENCES:
            read_sequence(view)
            self.nodes += view.nodes
            return
        if node.op_type == "Reshape":
            # A reshape of the file keeps one sample first; it gets the samples that the file is read with.
            sizes, given = self.known.elements.get(node.input[1]), self.known.sizes[node.input[0]].shape
            if (
                self.samples
                and sizes is not None
                and sizes.ndim == 1
                and len(sizes)
                and sizes[0] == 1
                and given[:1] == (2,)
            ):
                self.known.elements[node.input[1]] = np.array([2, *sizes[1:]], dtype=sizes.dtype)
            self._check_reshape(node, view)
        try:
            constant = self.known.add_results(node)
        except UnknownSizesError as error:
            domain = f" of {node.domain}" if node.domain else ""
            raise view.problem(
                f"the sizes of its result {str(error)!r}{domain} cannot be told; import with --input and fixed sizes, "
                f"or write them to the file with onnx.shape_inference"
            ) from None
        if constant or not any(node.input):
            self.constants.update((name, self.known.sizes[name]) for name in node.output if name)
            return
        if node.op_type == "Add" and (pair := self._product_of(node)):
            product, bias = pair
            self.absorbed.add(product.output[0])
            view.module = _module(product)
            view.ends("linear", input=Argument(product.input[0]), weight=self._turned(product), bias=Argument(bias))
        elif node.op_type == "MatMul" and self._has_matrix(node) and len(view.shape()) >= 2:
            view.ends("linear", input=view.input(0), weight=self._turned(node))
        elif node.op_type in TRANSLATIONS:
            TRANSLATIONS[node.op_type](view)
        else:  # the importer divides by samples what no rule is known for
            view.ends(node.op_type.lower(), **{f"x{i}": view.input(i) for i in range(len(node.input))})
        self.nodes += view.nodes

    def _check_reshape(self, node: "onnx.NodeProto", view: NodeView) -> None:
        """Refuse sizes in the file that other sizes of the input contradict."""
        fixed, given = self.known.elements.get(node.input[1]), self.known.sizes[node.input[0]].shape
        if fixed is None or fixed.ndim != 1:
            return
        copies = not any(row.name == "allowzero" and row.i for row in node.attribute)
        sizes = [int(size) for size in fixed]
        told = [given[i] if size == 0 and copies and i < len(given) else size for i, size in enumerate(sizes)]
        known, elements = math.prod(size for size in told if size >= 0), math.prod(given)
        if (elements % known if known else elements) if -1 in told else elements != known:
            raise view.problem(
                f"tensor {node.input[1]!r} of the file fixes its result to {sizes}, which {elements:,} elements of "
                f"{list(given)} do not fill; give with --input the sizes that the file was exported with, or export it "
                f"with dynamic sizes"
            )

    def _product_of(self, node: "onnx.NodeProto") -> "tuple[onnx.NodeProto, str] | None":
        """Return the product whose bias an addition adds, and the bias."""
        for one, two in ((0, 1), (1, 0)):
            product, bias = self.biases.get(node.input[one]), node.input[two]
            if product is None or bias not in self.parameters:
                continue
            features = self.known.sizes[product.input[1]].shape[1]
            if self.parameters[bias][1].shape == (features,) and len(self.known.sizes[product.input[0]].shape) >= 2:
                return product, bias
        return None

    def _turned(self, product: "onnx.NodeProto") -> Argument:
        """Return the matrix of a product as layers have it, outputs first."""
        name = product.input[1]
        if name in self.transposed:
            return Argument(self.transposed[name])
        rows, columns = self.known.sizes[name].shape
        self.parameters[name] = (name, TraceTensor((columns, rows)))
        return Argument(name)

    def trace(self) -> Trace:
        """Return the program."""
        outputs = tuple(row.name for row in self.graph.output)
        return Trace(
            inputs=self.inputs,
            parameters=self.parameters,
            constants=self.constants,
            nodes=tuple(row for row in self.nodes if row.name not in self.absorbed),
            outputs=outputs,
            foreign=True,
            samples=self.samples,
        )


def _given_sizes(path: Path, names: Sequence[str], given: Sequence[InputSpec]) -> Mapping[str, tuple[int, ...]]:
    """Return the sizes that a user gives, by the name of the input."""
    rest = [name for name in names if name not in {spec.name for spec in given}]
    result = {}
    for spec in given:
        if spec.name and spec.name not in names:
            raise ConfigError(f"input must be one of {', '.join(names)}, which {path} reads, got {spec.name!r}")
        if not spec.name and not rest:
            raise ConfigError(f"input must be given at most {len(names)} times, as {path} reads {', '.join(names)}")
        result[spec.name or rest.pop(0)] = spec.shape
    return result


def _trained(graph: "onnx.GraphProto") -> frozenset[str]:
    """Return the names of the tensors that training changes."""
    statistics, weights = set[str](), set[str]()
    for node in graph.node:
        statistics |= {node.input[i] for i in _NOT_TRAINED.get(node.op_type, ()) if i < len(node.input)}
        weights |= {node.input[i] for i in _WEIGHTS.get(node.op_type, ()) if i < len(node.input)}
    several = {row.name for row in graph.initializer if any(size > 1 for size in row.dims)}
    return frozenset((several | weights) - statistics)


def _recurrent_shapes(graph: "onnx.GraphProto") -> Mapping[str, tuple[int, ...]]:
    """Return the weights of recurrent layers as the matrices and the vectors that they are, directions together."""
    sizes = {row.name: tuple(row.dims) for row in graph.initializer}
    shapes: dict[str, tuple[int, ...]] = {}
    for node in graph.node:
        for i, name in enumerate(node.input[:4] if node.op_type in ("LSTM", "GRU", "RNN") else ()):
            if i and name in sizes:
                shapes[name] = (math.prod(sizes[name]),) if i == 3 else (math.prod(sizes[name][:-1]), *sizes[name][-1:])
    return shapes


def _turns(node: "onnx.NodeProto") -> bool:
    """Return whether a transposition exchanges two axes."""
    return all(list(row.ints) == [1, 0] for row in node.attribute if row.name == "perm")


def _module(node: "onnx.NodeProto") -> str:
    """Return the path of the module that a node is of, as PyTorch's exporters write it; else the node's name."""
    scopes = next((row.value for row in node.metadata_props if row.key == "pkg.torch.onnx.name_scopes"), "")
    if scopes:
        rows = re.findall(r"'([^']*)'", scopes)
        return rows[-2] if len(rows) > 1 else ""
    if "/" not in node.name:
        return re.sub(r"[^\w.]+", "_", node.name)
    path = ""
    for part in node.name.strip("/").split("/")[:-1]:  # /layer1/layer1.0/conv1/Conv: each part, or all from the root
        path = part if part.startswith(f"{path}.") or not path else f"{path}.{part}"
    return path
