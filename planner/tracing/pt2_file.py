"""Exported programs in ``.pt2`` files, read from the JSON within: nothing is unpickled, and no weights are read.

``torch.export.load`` would unpickle the sample inputs and evaluate symbolic sizes; the graph itself is plain JSON.
"""

import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groundwork.errors import ConfigError
from groundwork.input_files import check_input
from planner.tracing.trace import Argument, Trace, TraceNode, TraceTensor

_FILE_MIB = 1 << 20
"""Largest archive: its weights are not read."""
_GRAPH_BYTES = 512 * 2**20
_INTEGERS = {1, 2, 3, 4, 5, 12, 28}
"""Types of elements that are whole numbers or truth values, as the format numbers them."""
_FLOATS = {6, 7, 8, 9, 10, 11, 13, 29, 30, 31, 32, 33}
"""Types of elements that have gradients."""


def trace_of_pt2(path: Path) -> Trace:
    """Read an exported program.

    Raises:
        ConfigError: The file is no such program, is cut off or has dynamic shapes.
    """
    content = _graph_json(path)
    try:
        return _Reader(path, content).trace()
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"exported program {path} has a graph of another form: {type(error).__name__} {error}"
        ) from None


def _graph_json(path: Path) -> Any:
    import msgspec

    check_input(path, "exported program", limit_mib=_FILE_MIB)
    try:
        with zipfile.ZipFile(path) as archive:
            rows = [i for i in archive.infolist() if i.filename.rpartition("models/")[2] == "model.json"]
            if len(rows) != 1:
                raise ConfigError(
                    f"exported program {path} must hold one models/model.json, as torch.export.save writes"
                )
            if rows[0].file_size > _GRAPH_BYTES:
                raise ConfigError(f"exported program {path} must have a graph of at most {_GRAPH_BYTES:,} bytes")
            with archive.open(rows[0]) as file:
                text = io.BytesIO(file.read(_GRAPH_BYTES + 1)).getvalue()
        return msgspec.json.decode(text)
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ) as error:
        raise ConfigError(
            f"exported program {path} is no archive of torch.export.save, or is cut off: {error}"
        ) from None


class _Reader:
    """The graph of one file."""

    def __init__(self, path: Path, content: Any) -> None:
        module = content["graph_module"]
        self.path, self.graph, self.signature = path, module["graph"], module["signature"]
        self.tensors: Mapping[str, Any] = self.graph["tensor_values"]

    def trace(self) -> Trace:
        """Return the program as plain data."""
        inputs, parameters, constants, buffers = {}, {}, {}, {}
        for spec in self.signature["input_specs"]:
            ((kind, value),) = spec.items()
            argument = value["arg"]
            name = argument["as_tensor"]["name"] if "as_tensor" in argument else argument.get("name", "")
            if not name:
                continue
            if kind == "parameter":
                parameters[name] = (value["parameter_name"], self._tensor(name))
            elif kind == "user_input":
                inputs[name] = self._tensor(name)
            else:
                constants[name] = self._tensor(name)
                if kind == "buffer" and value.get("persistent"):
                    buffers[name] = value["buffer_name"]
        outputs = [
            spec["user_output"]["arg"]["as_tensor"]["name"]
            for spec in self.signature["output_specs"]
            if "as_tensor" in spec.get("user_output", {}).get("arg", {})
        ]
        nodes: list[TraceNode] = []
        for node in self.graph["nodes"]:
            nodes += self._nodes(node)
        return Trace(
            inputs=inputs,
            parameters=parameters,
            constants=constants,
            buffers=buffers,
            nodes=tuple(nodes),
            outputs=tuple(outputs),
            frozen=self._frozen(parameters),
        )

    def _frozen(self, parameters: Mapping[str, tuple[str, TraceTensor]]) -> frozenset[str]:
        """Return the keys of the parameters that are not trained, of a file that says of some that they are."""
        marks = {key: self.tensors[name].get("requires_grad") for name, (key, _) in parameters.items()}
        trained = any(mark is True for mark in marks.values())
        return frozenset(key for key, mark in marks.items() if mark is False and trained)

    def _tensor(self, name: str) -> TraceTensor:
        meta = self.tensors[name]
        sizes = [size.get("as_int") for size in meta["sizes"]]
        if any(not isinstance(size, int) for size in sizes):
            raise ConfigError(
                f"exported program {self.path}: shapes must be fixed, {name} has a dynamic one; export it again with "
                f"dynamic_shapes=None and the sizes that you want"
            )
        kind = meta["dtype"]
        if kind not in _INTEGERS | _FLOATS:
            raise ConfigError(f"exported program {self.path}: tensor {name}: dtype must be a known one, got {kind!r}")
        try:
            return TraceTensor(tuple(sizes), kind in _FLOATS)
        except ConfigError as error:
            raise ConfigError(f"exported program {self.path}: tensor {name}: {error}") from None

    def _nodes(self, node: Mapping[str, Any]) -> list[TraceNode]:
        """Return one node, and for a list of results the nodes that take its items."""
        outputs = [_names(each) for each in node["outputs"]]
        several = len(outputs) > 1 or any(isinstance(each, list) for each in outputs)
        names = [name for each in outputs for name in (each if isinstance(each, list) else [each])]
        target, metadata = node["target"], node.get("metadata", {})
        name = names[0] if names and not several else f"{node.get('name') or target} of {'/'.join(map(str, names))}"
        stack = (metadata.get("nn_module_stack") or "").split(";")[-1].split(",")
        arguments = {row["name"] or str(i): _argument(row["arg"]) for i, row in enumerate(node["inputs"])}
        operation = _operation(target)
        row = TraceNode(
            name=name,
            operation=operation,
            arguments=arguments,
            results=tuple(self._tensor(n) if n in self.tensors else TraceTensor(()) for n in names),
            several=several,
            module=stack[1] if len(stack) > 1 else "",
            pointwise=_is_pointwise(target),
        )
        items = [
            TraceNode(
                name=each,
                operation="getitem",
                arguments={"0": Argument(name), "1": i},
                results=(self._tensor(each),) if each in self.tensors else (),
            )
            for i, each in enumerate(names)
            if each
        ]
        return [row, *(items if several else [])]


def _operation(target: str) -> str:
    """Return the name of an operation without namespace and overload."""
    parts = target.split(".")
    return parts[3] if target.startswith("torch.ops.") and len(parts) > 3 else parts[-1]


def _is_pointwise(target: str) -> bool:
    """Return whether PyTorch says that an operation works element by element; only its own are looked up."""
    import torch

    parts = target.split(".")
    if parts[:3] != ["torch", "ops", "aten"] or len(parts) != 5:
        return False
    operation = getattr(getattr(torch.ops.aten, parts[3], None), parts[4], None)
    return torch.Tag.pointwise in getattr(operation, "tags", ())


def _names(output: Mapping[str, Any]) -> Any:
    """Return the name of a result, or of those of a list."""
    ((kind, value),) = output.items()
    if kind == "as_tensor":
        return value["name"]
    if kind == "as_tensors":
        return [each["name"] for each in value]
    if kind == "as_optional_tensors":
        return [each["as_tensor"]["name"] if "as_tensor" in each else "" for each in value]
    return ""


def _argument(given: Mapping[str, Any]) -> Any:
    ((kind, value),) = given.items()
    if kind == "as_tensor":
        return Argument(value["name"])
    if kind == "as_tensors":
        return [Argument(each["name"]) for each in value]
    if kind == "as_optional_tensors":
        return [Argument(each["as_tensor"]["name"]) if "as_tensor" in each else None for each in value]
    if kind == "as_none":
        return None
    if kind in ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string"):
        return value
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
        return value.get("as_int", value.get("as_float", value.get("as_bool")))
    if kind == "as_sym_ints":
        return [each.get("as_int") for each in value]
    return None
