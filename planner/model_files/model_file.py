"""Model files: a network's layers as YAML that can be read and edited.

A layer lists its kind, what it reads, its fields, its output, the dimensions that it may be split in, and its
parameters.  Outputs and parameters of the built-in kinds follow from the fields; a file that states them differently is
refused.  Reading a file runs no code of it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from groundwork.rule_texts import broken_rules
from groundwork.suggestions import did_you_mean
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.data_sources import DATA, data_names, is_data
from planner.graph.operation import Operation
from planner.graph.shapes import IntervalMap, Shape
from planner.model_files.computations import steps_of
from planner.model_files.kinds import COMPUTED_FIELDS, operation_class, single_field
from planner.operations.mapped import Mapped
from planner.operations.products import TensorProduct
from planner.operations.rearrangement import Rearrangement

MODEL_SUFFIXES = (".yaml", ".yml")
FORMAT = "orrery model 2"
"""First line of every model file."""
_LAYER_KEYS = ("name", "kind", "inputs", "output", "parallel", "parameters", "reads", "computes")
_MARKS = ("frozen", "key", "aliases")
"""Fields of a parameter that are those of its layer."""
_TOP_KEYS = ("format", "batch", "tokens_per_sample", "data", "layers")
_CHECKS: dict[type[Any], TypeAdapter[Any]] = {}
"""Checks of the classes of operations, which are made once."""


def read_model_file(path: Path, *, name: str, batch: int, element_bytes: int = 4) -> ComputationGraph:
    """Read a model file.

    Args:
        path: Path that the user gave.
        name: Name of the graph.
        batch: Samples in a mini-batch.
        element_bytes: Bytes of an element of a tensor.

    Raises:
        ConfigError: The file breaks a rule; the message names the layer and the field.
    """
    content = yaml_input(path, "model file")
    return model_of(content, f"model file {path}", name=name, batch=batch, element_bytes=element_bytes)


@cache
def kept_content(path: Path) -> Any:
    """Return the content of a model file of this package, parsed once; nobody may change it.

    It holds what other model files do, but as JSON, which is read many times as fast, and needs no guard against
    strangers.
    """
    return msgspec.json.decode(path.read_bytes())


def model_of(content: Any, where: str, *, name: str, batch: int, element_bytes: int) -> ComputationGraph:
    """Return the model that the content of a file holds, which stays as it is.

    Raises:
        ConfigError: The content breaks a rule; the message names the layer and the field.
    """
    _check_keys(where, content, _TOP_KEYS, required=("format", "data", "layers"))
    if content["format"] == "orrery model 1":
        raise ConfigError(f"{where} has version 1, which Orrery 0.1 wrote: make it again by orrery import")
    if content["format"] != FORMAT:
        raise ConfigError(f"{where}: format must be {FORMAT!r}, got {content['format']!r}")
    data = {
        key: _shape(f"{where}: data.{key}", sizes, batch) for key, sizes in _mapping(where, "data", content).items()
    }
    rows = content["layers"]
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{where}: layers must be a list of layers")
    reader = _FileReader(where, dict(data), set(data))
    layers = [reader.layer(row, number) for number, row in enumerate(rows)]
    names = data_names(data, {source for layer in layers for source in layer.inputs})
    layers = [replace(each, inputs=tuple(names.get(source, source) for source in each.inputs)) for each in layers]
    tokens = content.get("tokens_per_sample")
    if tokens is not None and (type(tokens) is not int or tokens < 0):
        raise ConfigError(f"{where}: tokens_per_sample must be a whole number >= 0, got {tokens!r}")
    graph = ComputationGraph(name, batch, layers, element_bytes=element_bytes, tokens_per_sample=tokens)
    _check_keys_differ(where, layers)
    try:
        assert graph.shared is not None  # all parameters that layers borrow are there
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return graph


def _mapping(where: str, key: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping within a file."""
    if not isinstance(content[key], dict) or not all(isinstance(each, str) for each in content[key]):
        raise ConfigError(f"{where}: {key} must be a mapping")
    value: Mapping[str, Any] = content[key]
    return value


def _check_keys(where: str, content: Any, known: Sequence[str], *, required: Sequence[str]) -> None:
    """Refuse what is no mapping, or has unknown keys or lacks some."""
    if not isinstance(content, dict):
        raise ConfigError(f"{where} must be a mapping with {', '.join(required)}")
    for key in content:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}{did_you_mean(str(key), known)}")
    for key in required:
        if key not in content:
            raise ConfigError(f"{where}: {key} is missing")


def _shape(where: str, sizes: Any, batch: int) -> Shape:
    """Return the shape of a tensor whose sizes behind the samples are given by dimension."""
    dims = (
        "channel",
        *(dim for dim in ("length", "depth", "height", "width") if isinstance(sizes, dict) and dim in sizes),
    )
    if not isinstance(sizes, dict) or set(sizes) != set(dims) or tuple(sizes) != dims:
        raise ConfigError(f"{where} must give channel and then its positions, got {sizes!r}")
    for dim, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"{where}.{dim} must be an integer >= 1, got {size!r}")
    return Shape(("sample", *dims), (batch, *sizes.values()))


@dataclass(slots=True)
class _FileReader:
    """Layers of a file so far."""

    where: str
    shapes: dict[str, Shape]
    data: set[str]

    def layer(self, row: Any, number: int) -> Layer:
        """Return one layer."""
        where = f"{self.where}: layer {number + 1}"
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            where = f"{self.where}: layer {row['name']!r}"
        if not isinstance(row, dict) or not all(isinstance(key, str) for key in row):
            raise ConfigError(f"{where} must be a mapping")
        for key in ("name", "kind", "inputs"):
            if key not in row:
                raise ConfigError(f"{where}: {key} is missing")
        name, kind, inputs = row["name"], row["kind"], row["inputs"]
        if not isinstance(name, str) or not name or name in self.shapes or is_data(name):
            raise ConfigError(f"{where}: name must be a new one, got {name!r}")
        if not isinstance(inputs, list) or not inputs:
            raise ConfigError(f"{where}: inputs must be a list of layers before it, or of data")
        for source in inputs:
            if not isinstance(source, str) or source not in self.shapes:
                raise ConfigError(f"{where}: inputs must be layers before it or data, got {source!r}")
        shapes = tuple(self.shapes[source] for source in inputs)
        try:
            operation = self._operation(kind, row, shapes)
            output = operation.output(shapes)
            if "computes" in row:
                operation = _computing(operation, row["computes"], shapes, output)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        layer = Layer(
            name,
            operation,
            tuple(f"{DATA}:{s}" if s in self.data else s for s in inputs),
            shapes,
            output,
            splits=_splits(where, row, operation, output),
            **_marks(where, row),
        )
        self._check(where, row, layer)
        self.shapes[name] = output
        return layer

    def _operation(self, kind: Any, row: Mapping[str, Any], shapes: Sequence[Shape]) -> Operation:
        made = operation_class(kind)
        given = {key: value for key, value in row.items() if key not in _LAYER_KEYS}
        taken = single_field(made, kind)
        known = [each.name for each in fields(made) if each.name not in taken and each.name not in COMPUTED_FIELDS]
        for key in given:
            if key not in known:
                raise ConfigError(f"unknown key {key!r}{did_you_mean(key, known)}")
        given |= single_field(made, kind)
        if issubclass(made, Mapped):
            given |= _mapped_fields(row, shapes)
        try:
            if made not in _CHECKS:
                _CHECKS[made] = TypeAdapter(made)
            operation: Operation = _CHECKS[made].validate_json(json.dumps(given), strict=True)
        except ValidationError as error:
            raise ConfigError(broken_rules(error)) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a field has a value that no field can have: {error}") from None
        if isinstance(operation, Mapped):
            _check_reads(operation, shapes)
        return operation

    def _check(self, where: str, row: Mapping[str, Any], layer: Layer) -> None:
        """Refuse an output or parameters other than those that follow from the fields."""
        sizes = dict(zip(layer.output.dims[1:], layer.output.sizes[1:], strict=True))
        if "output" in row and row["output"] != sizes:
            raise ConfigError(
                f"{where}: output must be {sizes}, as its fields give, or left out, got {row['output']!r}"
            )
        if "parameters" in row:
            given = row["parameters"]
            shapes = {p.name: list(p.shape) for p in layer.parameters}
            stated = (
                {n: v.get("shape") for n, v in given.items() if isinstance(v, dict)}
                if isinstance(given, dict)
                else None
            )
            if stated != shapes:
                raise ConfigError(
                    f"{where}: parameters must be {shapes}, as its fields give, or left out, got {given!r}"
                )


def _computing(operation: Operation, rows: Any, shapes: Sequence[Shape], output: Shape) -> Operation:
    """Return an operation with the steps that a file lists."""
    if not isinstance(operation, Mapped):
        raise ConfigError(f"unknown key 'computes': a {operation.kind} computes what its fields say")
    return replace(operation, computes=steps_of(rows, shapes, output, operation.weights))


_CUTS = (Rearrangement, TensorProduct)
"""Operations that may leave some of an input unread, or have some output of no input: slices, padding, windows."""


def _check_reads(operation: Mapped, shapes: Sequence[Shape]) -> None:
    """Refuse maps of the same interval between dimensions of different sizes."""
    output = operation.output(shapes)
    for shape, maps in zip(shapes, operation.reads, strict=True):
        for dim, size, each in zip(shape.dims, shape.sizes, maps, strict=True):
            same = each.dim is not None and each == IntervalMap(dim=each.dim) and not isinstance(operation, _CUTS)
            if same and each.dim is not None and output.size(each.dim) != size:
                raise ConfigError(
                    f"reads {dim} of {size} indices as {each.dim} of {output.size(each.dim)}: sizes must be equal, "
                    f"or the map must say how they differ"
                )
            if each.index is not None and (each.dim is not None or not 0 <= each.index < size):
                raise ConfigError(f"index of reads must be one of the {size} of {dim}, counted from 0, of all")
            if min(each.group_out, each.group_in, each.kernel, each.stride, each.spread) < 1:
                raise ConfigError("kernel, stride, spread and groups of reads must be >= 1")


def _splits(where: str, row: Mapping[str, Any], operation: Operation, output: Shape) -> tuple[str, ...]:
    """Return the dimensions that a file allows to be split; empty for all that the operation allows."""
    if "parallel" not in row:
        return ()
    given, known = row["parallel"], operation.parallel_dims(output)
    if not isinstance(given, list) or not given or any(dim not in known for dim in given):
        raise ConfigError(f"{where}: parallel must be a list of some of {list(known)}, got {given!r}")
    return () if set(given) == set(known) else tuple(dim for dim in known if dim in given)


def _check_keys_differ(where: str, layers: Sequence[Layer]) -> None:
    """Refuse two trained parameters of one key: a state_dict has one tensor of it."""
    taken: dict[str, str] = {}
    for layer in layers:
        trained = {each.name for each in layer.parameters if not each.shared}
        for name, key in (*layer.keys, *layer.aliases):
            if name not in trained:
                continue
            place = f"{name} of layer {layer.name}"
            if key in taken:
                raise ConfigError(
                    f"{where}: keys and aliases of parameters must differ, got {key[:80]!r} for {taken[key]} and again "
                    f"for {place}: a parameter that two layers use is shared by the second"
                )
            taken[key] = place


def _marks(where: str, row: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the keys of a layer's parameters in a ``state_dict``, their further keys, and those not trained."""
    given = row.get("parameters")
    keys, frozen, aliases = list[tuple[str, str]](), list[str](), list[tuple[str, str]]()
    for name, each in given.items() if isinstance(given, dict) else ():
        if not isinstance(each, dict):
            continue
        mark, further = each.get("frozen", False), each.get("aliases", [])
        if not isinstance(mark, bool):
            raise ConfigError(f"{where}: frozen of parameter {name} must be true or false, got {str(mark)[:80]}")
        if not isinstance(further, list) or not all(isinstance(key, str) for key in further):
            raise ConfigError(f"{where}: aliases of parameter {name} must be a list of keys, got {str(further)[:80]}")
        keys += [(str(name), each["key"])] if isinstance(each.get("key"), str) else []
        frozen += [str(name)] * mark
        aliases += [(str(name), key) for key in further]
    return {"keys": tuple(keys), "frozen": tuple(frozen), "aliases": tuple(aliases)}


def _mapped_fields(row: Mapping[str, Any], shapes: Sequence[Shape]) -> dict[str, Any]:
    """Return the fields of an operation that lists its sizes and maps."""
    output, reads = row.get("output"), row.get("reads")
    shape = _shape("output", output, 1)
    if not isinstance(reads, list) or len(reads) != len(shapes):
        raise ConfigError(f"reads must be a list with the maps of {len(shapes)} inputs")
    maps = []
    for given, source in zip(reads, shapes, strict=True):
        if not isinstance(given, dict) or tuple(given) != source.dims:
            raise ConfigError(f"reads must map {', '.join(source.dims)}, in order, got {given!r}")
        maps.append([_map(each) for each in given.values()])
    weights = []
    parameters = row.get("parameters", {})
    for name, each in parameters.items() if isinstance(parameters, dict) else ():
        known = ("shape", "split", "axis", "sections", "shared", *_MARKS)
        _check_keys(f"parameter {name}", each, known, required=("shape",))
        fields_of = {key: value for key, value in each.items() if key not in (*_MARKS, "split", "axis")}
        weights.append({"name": name, "indices": _indices(name, each), **fields_of})
    return {"dims": list(shape.dims[1:]), "sizes": list(shape.sizes[1:]), "reads": maps, "weights": weights}


def _indices(name: str, row: Mapping[str, Any]) -> list[str | None]:
    """Return the index of each axis of a parameter, of which a file says whether channels split one, and which."""
    split, axis, shape = row.get("split", True), row.get("axis", 0), row["shape"]
    axes = max(len(shape), 1) if isinstance(shape, list) else 1
    if not isinstance(split, bool):
        raise ConfigError(f"split of parameter {name} must be true or false, got {str(split)[:80]}")
    if type(axis) is not int or not 0 <= axis < axes:
        raise ConfigError(f"axis of parameter {name} must be one of its {axes}, counted from 0, got {str(axis)[:80]}")
    return [*[None] * axis, "channel"] if split else []


def _map(given: Any) -> dict[str, Any]:
    """Return the fields of an interval map: ``all``, the name of a dimension, or a mapping."""
    if isinstance(given, str):
        return {"dim": None if given == "all" else given}
    known = ("of", *(each.name for each in fields(IntervalMap) if each.name != "dim"))
    _check_keys("a map of reads", given, known, required=("of",))
    return {
        "dim": None if given["of"] == "all" else given["of"],
        **{key: value for key, value in given.items() if key != "of"},
    }
