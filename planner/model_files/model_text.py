"""Model files as text: one line for each field, so that they can be read and edited."""

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.parameters import Parameter
from planner.graph.shapes import SUMMED, IntervalMap, Shape
from planner.model_files.computations import step_row
from planner.model_files.kinds import COMPUTED_FIELDS, single_field
from planner.model_files.model_file import FORMAT
from planner.operations.mapped import Mapped


def model_text(graph: ComputationGraph, *, heading: Sequence[str] = ()) -> str:
    """Return a network as the text of a model file."""
    layers = [_layer_row(layer) for layer in graph.layers]
    lines = [*(f"# {line}".rstrip() for line in heading), f"format: {FORMAT}", f"batch: {graph.batch}"]
    lines += [f"tokens_per_sample: {graph.given_tokens}"] * (graph.given_tokens is not None)
    lines.append("data:")
    lines += [f"  {_flow(name)}: {_flow(_sizes(shape))}" for name, shape in graph.data.items()]
    lines.append("layers:")
    for row in layers:
        lines.append(f"- name: {_flow(row.pop('name'))}")
        lines += [
            f"  {key}: {_flow(value)}" for key, value in row.items() if key not in ("reads", "parameters", "computes")
        ]
        if "reads" in row:
            lines.append("  reads:")
            lines += [f"  - {_flow(each)}" for each in row["reads"]]
        if "parameters" in row:
            lines.append("  parameters:")
            lines += [f"    {key}: {_flow(each)}" for key, each in row["parameters"].items()]
        if "computes" in row:
            lines.append("  computes:")
            lines += [f"  - {_flow(each)}" for each in row["computes"]]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    """Return a value on one line of YAML: JSON with bare words where they need no quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str):
        return value if _is_bare(value) else json.dumps(value)
    text = json.dumps(value)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text


_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def _is_bare(text: str) -> bool:
    """Return whether YAML reads a text without quotes as that text."""
    plain = text.replace("_", "").replace(".", "").replace("-", "")
    return plain.isascii() and plain.isalnum() and text[0].isalpha() and text.lower() not in _WORDS


def _sizes(shape: Shape) -> dict[str, int]:
    return dict(zip(shape.dims[1:], shape.sizes[1:], strict=True))


def _layer_row(layer: Layer) -> dict[str, Any]:
    """Return a layer as a mapping of a model file."""
    operation: Any = layer.operation
    row: dict[str, Any] = {"name": layer.name, "kind": operation.kind, "inputs": list(layer.inputs)}
    hidden = {*COMPUTED_FIELDS, *single_field(type(operation), operation.kind)}
    for each in fields(operation):
        value = getattr(operation, each.name)
        if each.name not in hidden and (each.default is MISSING or value != each.default):
            row[each.name] = value
    if isinstance(operation, Mapped):
        row["reads"] = [
            dict(zip(shape.dims, map(_map_text, maps), strict=True))
            for shape, maps in zip(layer.input_shapes, operation.reads, strict=True)
        ]
    row |= {"output": _sizes(layer.output), "parallel": list(layer.parallel_dims)}
    if layer.parameters:
        row["parameters"] = {p.name: _parameter_row(p, layer) for p in layer.parameters}
    if isinstance(operation, Mapped) and operation.computes:
        row["computes"] = [step_row(step) for step in operation.computes]
    return row


def _map_text(each: IntervalMap) -> Any:
    """Return an interval map in its shortest form."""
    if each.dim in (None, SUMMED):
        return "all" if each.index is None else {"of": "all", "index": each.index}
    given = {
        f.name: getattr(each, f.name) for f in fields(each) if f.name != "dim" and getattr(each, f.name) != f.default
    }
    return {"of": each.dim, **given} if given else each.dim


def _parameter_row(parameter: Parameter, layer: Layer) -> dict[str, Any]:
    """Return a parameter as a mapping of a model file."""
    keys, operation = dict(layer.keys), layer.operation
    row: dict[str, Any] = {"shape": list(parameter.shape)}
    if isinstance(operation, Mapped):
        axis = {"axis": parameter.axis} if parameter.axis else {}
        axis |= {"sections": True} if parameter.sections else {}
        row |= {"split": bool(parameter.split)} | axis | ({"shared": parameter.shared} if parameter.shared else {})
    row |= {"frozen": True} if parameter.name in layer.frozen else {}
    row |= {"key": keys[parameter.name]} if parameter.name in keys else {}
    aliases = [key for name, key in layer.aliases if name == parameter.name]
    return row | ({"aliases": aliases} if aliases else {})
