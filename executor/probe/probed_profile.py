"""Measurements written as a compute profile that ``hwprofiles.compute.profile_file.load_profile`` reads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import yaml

from executor.probe.codec_probe import CodecRow, speeds_of
from executor.probe.device_probe import DeviceFacts
from executor.probe.measured_rows import ProbeRow
from groundwork.input_files import yaml_input
from groundwork.units import GIB, GIGA, MICRO, MILLI, TERA
from groundwork.whole_files import replacing
from hwprofiles.compute.compute_profile import PROFILE_PHASES
from hwprofiles.compute.profile_file import profile_path

_PRODUCT_PHASES = PROFILE_PHASES[:3]


def write_profile(
    rows: Sequence[ProbeRow], path: Path, *, device: DeviceFacts, codecs: Sequence[CodecRow] = (), note: str = ""
) -> None:
    """Write a compute profile; a file that is there is replaced as a whole.

    Measured parts price themselves, and scale to other parts of their layers.  Layers that were not measured get the
    roofline: peak, bandwidth and launch overhead are measured, the ceiling of each phase is the median share of the
    peak that the measured products reach (1 where there are none), and everything else is neutral: half sizes of
    about one element, no gain by Winograd's algorithm, all of the copy's bandwidth.

    Args:
        rows: Rows of ``LayerProbe.rows``, of any number of models; ``over_ranks`` makes one list of several ranks'.
        path: Path of the profile, ending in .yaml; planners find it by this path.
        device: Result of ``measure_device``.
        codecs: Rows of ``CodecProbe.rows``: times of compression and decompression; the roofline if none.
        note: Further remark for readers, such as how many processes were busy.
    """
    reached = {phase: _rates(rows, phase, device) for phase in _PRODUCT_PHASES}
    peak = max([device.peak_flop_per_s, *(rate for rates in reached.values() for rate in rates)])
    ceilings = {phase: float(np.median(rates)) / peak if rates else 1.0 for phase, rates in reached.items()}
    codec_section = {}
    if codecs:
        codec_section["compression"] = _codec_section(
            codecs, device=device.label, measured=device.measured, software=device.software
        )
    write_yaml(
        path,
        f"Measured by orrery probe on {device.measured}; planners read it by this file's path.",
        {
            "description": f"{device.label}; float32; measured here",
            "sources": [line for line in (f"Measured {device.measured} with {device.software}", note) if line],
            "arithmetic": "float32",
            "peak_tflop_per_s": peak / TERA,
            "memory_bandwidth_gbyte_per_s": device.memory_bytes_per_s / GIGA,
            "memory_gib": device.memory_bytes / GIB,
            "launch_overhead_us": device.launch_overhead_s / MICRO,
            "multiprocessors": device.multiprocessors,
            "efficiency": {
                "ceiling": ceilings,
                "winograd_speedup": 1,
                "half_sizes": {
                    "rows": 1,
                    "columns": 1,
                    "depth": 1,
                    "output_elements": 1,
                    "samples": 0.1,
                    "positions": 1,
                },
                "memory": 1.0,
            },
            "measured": _measured(rows),
            **codec_section,
        },
    )


def _rates(rows: Sequence[ProbeRow], phase: str, device: DeviceFacts) -> list[float]:
    """Return the FLOP/s of the measured products of a phase, without the launch overhead of a kernel."""
    return [
        row.flop / max(row.samples.median_s - device.launch_overhead_s, row.samples.median_s / 2)
        for row in rows
        if row.phase == phase and row.flop > 0
    ]


def _measured(rows: Sequence[ProbeRow]) -> list[dict[str, Any]]:
    """Return one entry a layer and part, with all its phases; its spread is the largest among them."""
    entries: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in rows:
        for layer in row.layers:
            new: dict[str, Any] = {"model": row.model, "layer": layer, "part": list(row.sizes), "spread": 0.0}
            entry = entries.setdefault((row.model, layer, row.sizes), new)
            entry[f"{row.phase}_ms"] = row.samples.median_s / MILLI
            entry["spread"] = max(entry["spread"], round(row.samples.spread, 4))
    return list(entries.values())


def write_with_codecs(
    base: str, rows: Sequence[CodecRow], path: Path, *, device: str, measured: str, software: str
) -> None:
    """Write a compute profile again, with other times of compression and decompression."""
    content = yaml_input(profile_path(base), "compute profile")
    content.pop("coding", None)  # its name in version 0.1
    content["compression"] = _codec_section(rows, device=device, measured=measured, software=software)
    write_yaml(path, f"{base} with compression and decompression as measured {measured}.", content)


def _codec_section(rows: Sequence[CodecRow], *, device: str, measured: str, software: str) -> dict[str, Any]:
    """Return one entry a type, place and task: the line through its medians; its spread is the largest among them."""
    entries = []
    for (kind, place, task), speed in speeds_of(rows).items():
        same = [row for row in rows if (row.type, row.place, row.task) == (kind, place, task)]
        entries.append(
            {
                "type": kind,
                "place": place,
                "task": task,
                "elements_per_s": speed.elements_per_s,
                "fixed_us": speed.fixed_s / MICRO,
                "elements": [row.elements for row in same],
                "median_ms": [row.samples.median_s / MILLI for row in same],
                "spread": max(round(row.samples.spread, 4) for row in same),
            }
        )
    software = f"{software}, numba {numba.__version__}"
    return {"device": device, "measured": measured, "software": software, "rows": entries}


def write_yaml(path: Path, comment: str, content: dict[str, Any]) -> None:
    """Write a YAML file; a reader never sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False, width=120, default_flow_style=None, allow_unicode=True)
    with replacing(path) as partial:
        partial.write_text(f"# {comment}\n{text}", encoding="utf-8")
