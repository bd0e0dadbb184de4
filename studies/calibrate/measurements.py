"""Files of measurements of one device, whatever they hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groundwork.errors import ConfigError
from groundwork.input_files import json_input
from hwprofiles.compute.compute_profile import PROFILE_PHASES
from planner.models.registry import load_model
from studies.calibrate.device_sheets import check_library, device_labels
from studies.calibrate.fused_tables import MeasuredFused, fused_columns, table_fused
from studies.calibrate.kernel_tables import measurement_table, table_kernels
from studies.calibrate.measured_kernels import MeasuredKernel
from studies.calibrate.network_tables import MeasuredNetwork, table_networks

if TYPE_CHECKING:
    import pandas as pd


_DEVICE_COLUMNS = ("gpu", "config", "device")


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measured kernels, networks and fused kernels of one device."""

    kernels: tuple[MeasuredKernel, ...]
    networks: tuple[MeasuredNetwork, ...]
    fused: tuple[MeasuredFused, ...] = ()


def read_measurements(files: Sequence[str], device: str, gpu: str = "") -> Measurements:
    """Read tables of kernels and networks, and ``probe.json`` of ``orrery probe``.

    Args:
        files: Names of tables that ship, or paths of .csv and .json files.
        device: Device whose rows are wanted.
        gpu: Its name in the tables; those that are known for the device if empty.  A table that names one device only
            is taken as it is.

    Raises:
        ConfigError: A file cannot be read, or holds no row of the device; or the device takes the convolutions of a
            newer library from another profile, and rows are of convolutions.
    """
    kernels: list[MeasuredKernel] = []
    networks: list[MeasuredNetwork] = []
    fused: list[MeasuredFused] = []
    for name in files:
        if name.endswith(".json"):
            kernels += _probed(Path(name))
            continue
        table = _rows_of(measurement_table(name), name, device, gpu)
        if "images_per_sec" in table:
            networks += table_networks(table, name)
        elif fused_columns(table):
            fused += table_fused(table, name)
        else:
            kernels += table_kernels(table, name)
    if not kernels and not networks and not fused:
        raise ConfigError(f"the measurements hold no kernel and no known network of {device}; got {', '.join(files)}")
    check_library(device, sum(kernel.window is not None for kernel in kernels))
    return Measurements(tuple(kernels), tuple(networks), tuple(fused))


def _rows_of(table: "pd.DataFrame", name: str, device: str, gpu: str) -> "pd.DataFrame":
    """Return the rows of one device, each once."""
    column = next((column for column in _DEVICE_COLUMNS if column in table), None)
    if column is None:
        return table.drop_duplicates()
    found = sorted(table[column].dropna().astype(str).unique())
    labels = (gpu,) if gpu else device_labels(device)
    wanted = table[table[column].isin(labels)]
    if not len(wanted):
        if gpu or len(found) != 1:
            raise ConfigError(
                f"table {name} has no rows of {' or '.join(labels)}; its devices: {', '.join(found) or 'none'}; choose"
                " one by --gpu"
            )
        wanted = table
    return wanted.drop_duplicates()


def _probed(path: Path) -> list[MeasuredKernel]:
    """Return the products that ``orrery probe`` measured, from its ``probe.json``."""
    content = json_input(path, "probe output")
    layers = content.get("layers") if isinstance(content, dict) else None
    if not isinstance(layers, list) or not layers:
        raise ConfigError(f"probe output {path} must have a list 'layers', as orrery probe writes it")
    rows: list[MeasuredKernel] = []
    for number, row in enumerate(layers):
        try:
            rows += _probed_row(row)
        except (KeyError, TypeError, ValueError, IndexError):
            raise ConfigError(
                f"probe output {path}: layers.{number} must have model, layers, part, phase, median_s"
            ) from None
    return rows


def _probed_row(row: dict[str, Any]) -> list[MeasuredKernel]:
    """Return one measured part if it is a product: layers that are equal were measured once."""
    phase, sizes = str(row["phase"]), [int(size) for size in row["part"]]
    graph = load_model(str(row["model"]), batch=sizes[0])
    layer = graph.layers[graph.index[str(row["layers"][0])]]
    if phase not in PROFILE_PHASES[:3]:
        return []
    part = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, sizes, strict=True)}
    work = layer.kernels(phase, part)
    if not work.matrix[0]:
        return []
    return [
        MeasuredKernel(
            phase=phase,
            rows=int(work.rows[0]),
            columns=int(work.columns[0]),
            depth=int(work.depth[0]),
            samples=sizes[0],
            memory_bytes=float(work.memory_bytes[0]),
            streamed_bytes=float(np.max(work.streamed_bytes)),
            time_s=float(row["median_s"]),
            family=f"{row['model']} {row['layers'][0]}",
            source="orrery probe",
            window=work.window,
        )
    ]
