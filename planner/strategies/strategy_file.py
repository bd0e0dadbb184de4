"""Strategies read from files: YAML or JSON with a configuration for every layer, or a plan file."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from groundwork.errors import ConfigError
from groundwork.input_files import json_input, yaml_input
from groundwork.suggestions import did_you_mean
from hwprofiles.devices.device_graph import DeviceGraph
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration, Strategy, space_of
from planner.layouts.mesh import Mesh

SUFFIXES = (".json", ".yaml", ".yml")
"""Endings of the names of strategy files."""
OWN = "own"
"""Name in plans of strategies that a program gave."""
OwnRow = Configuration | Mapping[str, Any]
"""Configuration of a layer, or its ``degrees`` and ``devices`` as in a file."""
OwnStrategy = Mapping[str, OwnRow] | Callable[[Layer, DeviceGraph], OwnRow]
"""Strategy of a program: configurations by layer, or a function that returns the one of a layer on a cluster."""
_DEFAULT = "default"
"""Key of the configuration of all layers that are not named."""


class _Row(BaseModel):
    """Configuration of one layer, as written in a file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    degrees: dict[str, Annotated[int, Field(ge=1)]] | None = None
    devices: list[int] | None = None
    mesh: int | None = None
    splits: list[str | None] | None = None


_RULES = {
    "degrees": "integers >= 1",
    "devices": "a list of integers",
    "mesh": "the number of a mesh",
    "splits": "a list of indices, null where an axis repeats the computation",
}
"""Rules of the fields of ``_Row`` in words, for messages."""


def strategy_from_file(path: Path, graph: ComputationGraph, device_count: int) -> Strategy:
    """Read a strategy from a plan file, or from YAML or JSON with the key ``configurations``.

    ``configurations`` maps each layer to ``degrees`` (dimension to degree) and ``devices`` (the first ones if left
    out), or to ``mesh`` (the number of one of ``meshes``, each with ``axes`` and ``devices``) and ``splits`` (the index
    that each of its axes splits, or null); the key ``default`` serves layers that are not named.

    Args:
        path: File with one of ``SUFFIXES``.
        graph: The network with its batch.
        device_count: Devices of the cluster.

    Returns:
        A configuration for every layer of the network.

    Raises:
        ConfigError: The file cannot be read, has unknown keys or layers, leaves a layer out, or a
            configuration does not fit its layer.
    """
    where = f"strategy file {path}"
    content = json_input(path, "strategy file") if path.suffix == ".json" else yaml_input(path, "strategy file")
    rows = content.get("configurations") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(rows, dict):
        raise ConfigError(f"{where} must map 'configurations' to layers, got {type(rows).__name__}")
    known = {"configurations", "meshes"}
    if "version" not in content and not set(content) <= known:  # plan files have more keys
        extra = min(set(content) - known, key=str)
        raise ConfigError(f"{where} has the unknown key {extra!r}; known are configurations and meshes")
    _check_names(where, graph, rows)
    meshes = _meshes(where, content.get("meshes", []))
    return {layer.name: _configuration(where, layer, rows, device_count, meshes) for layer in graph.layers}


def own_strategy(given: OwnStrategy, graph: ComputationGraph, cluster: DeviceGraph) -> Strategy:
    """Return the strategy that a program gives, by the rules of files.

    Args:
        given: Configurations by layer, with ``default`` for all others; or a function of layer and cluster.
        graph: The network with its batch.
        cluster: The cluster.

    Returns:
        A configuration for every layer of the network.

    Raises:
        ConfigError: A layer is unknown or left out, or a configuration does not fit its layer.
    """
    rows = {layer.name: given(layer, cluster) for layer in graph.layers} if callable(given) else given
    plain = {name: _as_in_a_file(row) for name, row in rows.items()}
    _check_names("strategy", graph, plain)
    count = len(cluster.devices)
    given_on = {name: row for name, row in rows.items() if isinstance(row, Configuration) and row.mesh is not None}
    for layer in (layer for layer in graph.layers if layer.name in given_on):
        space_of(layer, given_on[layer.name], count)
    return {
        layer.name: given_on.get(layer.name) or _configuration("strategy", layer, plain, count, ())
        for layer in graph.layers
    }


def _as_in_a_file(row: object) -> object:
    """Return a configuration as a file has it; what is none stays, to be refused."""
    values = {"degrees": row.degrees, "devices": row.devices} if isinstance(row, Configuration) else row
    if not isinstance(values, Mapping):
        return values
    plain = {"degrees": dict, "devices": list}
    return {
        key: plain[key](each) if key in plain and isinstance(each, Mapping | tuple | range) else each
        for key, each in values.items()
    }


def _check_names(where: str, graph: ComputationGraph, rows: Mapping[str, object]) -> None:
    """Refuse layers that the network does not have, and dimensions of the default that none of its layers has."""
    for name in rows:
        if name not in graph.index and name != _DEFAULT:
            raise ConfigError(f"{where}: {graph.name} has no layer {name!r}{did_you_mean(name, graph.index)}")
    default = rows.get(_DEFAULT)
    degrees = default.get("degrees") if isinstance(default, dict) else None
    dims = {dim for layer in graph.layers for dim in _splittable(layer)}
    for dim in degrees if isinstance(degrees, dict) else ():
        if dim not in dims:  # dimensions that only some layers have are fine
            raise ConfigError(f"{where}: {graph.name} has no dimension {dim!r}{did_you_mean(dim, dims)}")


def _splittable(layer: Layer) -> tuple[str, ...]:
    """Return the indices that a file may split by degrees, with the older word of what is summed over."""
    return (*layer.parallel_dims, SUMMED, "in_channel") if layer.summed_size else layer.parallel_dims


def _meshes(where: str, given: object) -> tuple[Mesh, ...]:
    """Return the meshes of a file.

    Raises:
        ConfigError: They are no list of axes and devices, or a mesh has not as many devices as coordinates.
    """
    try:
        meshes = TypeAdapter(tuple[Mesh, ...]).validate_python(given)
    except ValidationError:
        rule = "be a list of meshes, each with axes (pairs of a name and a size) and devices"
        raise ConfigError(f"{where}: meshes must {rule}, got {given!r}") from None
    for mesh in meshes:
        if math.prod(mesh.sizes) != len(mesh.devices) or min(mesh.sizes, default=1) < 1:
            raise ConfigError(f"{where}: a mesh of {mesh.axes} must have as many devices, got {len(mesh.devices)}")
    return meshes


def _configuration(
    where: str, layer: Layer, rows: Mapping[str, object], device_count: int, meshes: Sequence[Mesh]
) -> Configuration:
    """Return a layer's configuration, checked against the layer and the number of devices."""
    row = _checked(f"{where}: configurations.{layer.name}", rows.get(layer.name, rows.get(_DEFAULT)))
    if row.mesh is not None:
        splits = tuple(row.splits or ())
        if not 0 <= row.mesh < len(meshes) or len(splits) != len(meshes[row.mesh].axes):
            raise ConfigError(
                f"{where}: configurations.{layer.name} must name one of {len(meshes)} meshes, counted from 0, and a "
                f"split of each of its axes, got mesh {row.mesh} and splits {list(splits)}"
            )
        if row.devices is not None:
            raise ConfigError(f"{where}: configurations.{layer.name}.devices must be left out beside mesh")
        try:
            on_mesh = Configuration.on(meshes[row.mesh], splits, layer.parallel_dims)
        except ConfigError as error:
            raise ConfigError(f"{where}: configurations.{layer.name}.{error}") from None
        space_of(layer, on_mesh, device_count)
        return on_mesh
    if row.degrees is None:
        raise ConfigError(f"{where}: configurations.{layer.name} must have degrees, got {rows.get(layer.name)!r}")
    given = {dim: degree for dim, degree in row.degrees.items() if layer.name in rows or dim in _splittable(layer)}
    degrees = dict.fromkeys(layer.parallel_dims, 1) | given
    # the check below refuses too many parts by their number, so a list of that many devices is never made
    devices = range(min(math.prod(degrees.values()), device_count + 1)) if row.devices is None else row.devices
    configuration = Configuration.of(degrees, devices)
    space_of(layer, configuration, device_count)
    return configuration


def _checked(where: str, row: object) -> _Row:
    """Return a row whose fields have the right types; the error names the field, its rule and the value."""
    try:
        return _Row.model_validate(row)
    except ValidationError as error:
        broken = {str(detail["loc"][0]) if detail["loc"] else "": detail for detail in error.errors()}
    given = row if isinstance(row, dict) else {}
    if "mesh" not in given and not isinstance(given.get("degrees"), dict):
        raise ConfigError(f"{where} must have degrees, got {row!r}")
    unknown = set(given) - set(_Row.model_fields)
    if unknown:
        raise ConfigError(f"{where} has the unknown key {min(unknown, key=str)!r}; known are {', '.join(_RULES)}")
    field = next(name for name in _RULES if name in broken)
    raise ConfigError(f"{where}.{field} must be {_RULES[field]}, got {given[field]!r}")
