"""Configurations as files hold them: degrees and devices, or the splits of the axes of a mesh that layers share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groundwork.errors import ConfigError
from planner.graph.shapes import REPEATED, SUMMED
from planner.layouts.configurations import Configuration, Strategy
from planner.layouts.mesh import Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    """Configuration of one layer in a plan file."""

    degrees: dict[str, int]
    devices: tuple[int, ...] | None = None
    """None on a mesh."""
    mesh: int | None = None
    """Place of the mesh among those of the file."""
    splits: tuple[str | None, ...] | None = None


def rows_of(strategy: Strategy) -> tuple[dict[str, dict[str, Any]], list[Mesh]]:
    """Return the configurations of a strategy as rows, and the meshes that they name."""
    meshes: dict[Mesh, int] = {}
    rows: dict[str, dict[str, Any]] = {}
    for name, each in strategy.items():
        if each.mesh is None:
            rows[name] = {"degrees": each.degrees, "devices": each.devices}
        else:
            number = meshes.setdefault(each.mesh, len(meshes))
            rows[name] = {"degrees": each.degrees, "mesh": number, "splits": each.splits}
    return rows, list(meshes)


def configurations_of(rows: Mapping[str, ConfigurationRow], meshes: Sequence[Mesh]) -> dict[str, Configuration]:
    """Return the configurations of rows.

    Raises:
        ConfigError: A row has neither devices nor a mesh, or both; or splits that are not those of the mesh's axes.
    """
    return {name: _configuration(name, row, meshes) for name, row in rows.items()}


def _configuration(name: str, row: ConfigurationRow, meshes: Sequence[Mesh]) -> Configuration:
    """Return the configuration of one row."""
    where = f"configurations.{name}"
    if row.mesh is None:
        if row.devices is None:
            raise ConfigError(f"{where} must have devices, or a mesh and its splits")
        return Configuration.of(row.degrees, row.devices)
    if not 0 <= row.mesh < len(meshes):
        raise ConfigError(f"{where}.mesh must be one of the {len(meshes)} meshes, counted from 0, got {row.mesh}")
    mesh = meshes[row.mesh]
    if row.devices is not None or row.splits is None or len(row.splits) != len(mesh.axes):
        raise ConfigError(f"{where} must have splits of the {len(mesh.axes)} axes of its mesh, and no devices")
    dims = [dim for dim in row.degrees if dim not in (SUMMED, REPEATED)]
    return Configuration.on(mesh, row.splits, dims)
