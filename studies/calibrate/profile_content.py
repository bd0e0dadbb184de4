"""Fitted profiles as the sections of a profile file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from groundwork.units import MICRO
from hwprofiles.compute.compute_profile import PROFILE_PHASES, Efficiency
from hwprofiles.compute.convolution_efficiency import ConvolutionEfficiency
from hwprofiles.compute.fused_kernels import FusedEfficiency
from hwprofiles.compute.kernel_table import KernelTable
from hwprofiles.compute.tile_convolution import TileConvolution
from studies.calibrate.cross_validation import HeldOutErrors

_PHASES = PROFILE_PHASES[:3]


def _rounded(value: float) -> float:
    """Return four significant digits: a file for people, and a thousand times finer than the errors."""
    return float(f"{value:.4g}")


def efficiency_section(efficiency: Efficiency) -> dict[str, Any]:
    """Return the section ``efficiency``."""
    half = {
        "rows": efficiency.half_rows,
        "columns": efficiency.half_columns,
        "depth": efficiency.half_depth,
        "output_elements": efficiency.half_output,
        "samples": efficiency.half_samples,
        "positions": efficiency.half_positions,
    }
    unaligned = {phase: _rounded(cost) for phase, cost in zip(_PHASES, efficiency.unaligned, strict=True)}
    return {
        "ceiling": {phase: _rounded(share) for phase, share in zip(_PHASES, efficiency.ceiling, strict=False)},
        "winograd_speedup": _rounded(efficiency.winograd_speedup),
        "half_sizes": {name: _rounded(size) for name, size in half.items()},
        "memory": _rounded(efficiency.memory),
        **({"unaligned": unaligned} if max(unaligned.values()) > 1 else {}),
    }


def convolution_section(convolution: ConvolutionEfficiency) -> dict[str, Any]:
    """Return the section ``convolution``."""
    names = ("rows", "columns", "depth", "output_elements")
    half: dict[str, Any] = {
        phase: {name: _rounded(getattr(sizes, name)) for name in names}
        for phase, sizes in zip(_PHASES, convolution.half_sizes, strict=True)
    }
    half |= {"samples": _rounded(convolution.half_samples), "positions": _rounded(convolution.half_positions)}
    return {
        "ceiling": {phase: _rounded(share) for phase, share in zip(_PHASES, convolution.ceiling, strict=True)},
        "half_sizes": half,
        "memory": _rounded(convolution.memory),
        "overhead_us": _rounded(convolution.overhead_s / MICRO),
        "winograd": {
            "speedup": _rounded(convolution.winograd_speedup),
            "half_out": _rounded(convolution.winograd_half_out),
            "half_in": _rounded(convolution.winograd_half_in),
            "weight_gradient": _rounded(convolution.winograd_weight_gradient),
        },
        "fourier": {
            "positions": _rounded(convolution.fourier_positions),
            "half_out": _rounded(convolution.fourier_half_out),
            "half_in": _rounded(convolution.fourier_half_in),
        },
        "strided_half_depth": _rounded(convolution.strided_half_depth),
        "window_reuse": _rounded(convolution.window_reuse),
    }


def tile_section(tiles: TileConvolution) -> dict[str, Any]:
    """Return the section ``tiles``."""
    triples = {
        "overhead_us": tuple(overhead / MICRO for overhead in tiles.overhead_s),
        "load": tiles.load,
        "strided": tiles.strided,
        "unaligned": tiles.unaligned,
    }
    if tiles.plain_overhead_s:
        triples["plain_overhead_us"] = tuple(overhead / MICRO for overhead in tiles.plain_overhead_s)
    return {
        "ceiling": _rounded(tiles.ceiling),
        **{
            name: {phase: _rounded(value) for phase, value in zip(_PHASES, values, strict=True)}
            for name, values in triples.items()
        },
        "prologue": _rounded(tiles.prologue),
        "memory": _rounded(tiles.memory),
        "partial_accesses": _rounded(tiles.partial_accesses),
        "narrow_window": _rounded(tiles.narrow_window),
        **({"least_rows": tiles.least_rows} if tiles.least_rows > 32 else {}),
        **({"unaligned_in_float32": True} if tiles.unaligned_in_float32 else {}),
        **({"gradient_channels": tiles.gradient_channels} if tiles.gradient_channels > 1 else {}),
    }


def kernel_section(table: KernelTable) -> dict[str, Any]:
    """Return the section ``kernels``."""
    rows = table.rows
    lines = ["phase rows columns depth window stride correction"]
    for at, phase in enumerate(rows.phase.tolist()):
        sizes = " ".join(f"{size:.0f}" for size in rows.sizes[at])
        lines.append(f"{_PHASES[phase]} {sizes} {rows.positions[at]} {rows.stride[at]} {rows.correction[at]:.3f}")
    names = ("rows", "columns", "depth", "window", "stride")
    return {
        "lengths": dict(zip(names, table.lengths, strict=True)),
        "spread": table.spread,
        "noise": table.noise,
        "table": "\n".join(lines) + "\n",
    }


def fused_section(kind: str, phase: str, efficiency: FusedEfficiency) -> dict[str, Any]:
    """Return an entry of the section ``fused``."""
    names = ["memory"] if kind == "norm" else ["ceiling", "half_blocks", "memory"]
    names += ["head_exponent"] if kind == "attention" else []
    values = {name: _rounded(getattr(efficiency, name)) for name in names}
    return {"kind": kind, "phase": phase, **values, "overhead_us": _rounded(efficiency.overhead_s / MICRO)}


def error_section(errors: Mapping[str, HeldOutErrors]) -> dict[str, Any]:
    """Return the errors of the section ``fit``."""
    return {
        kind: {"rows": e.rows, "median": round(e.median, 3), "p90": round(e.p90, 3), "bias": round(e.bias, 3)}
        for kind, e in errors.items()
    }


class _Dumper(yaml.SafeDumper):
    """Writer of YAML that keeps tables as lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Return the node of a text: a block for several lines."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def write_content(content: Mapping[str, Any], path: Path, comment: str) -> None:
    """Write a profile file."""
    text = yaml.dump(
        dict(content), Dumper=_Dumper, sort_keys=False, width=118, default_flow_style=None, allow_unicode=True
    )
    path.write_text("".join(f"# {line}\n" for line in comment.splitlines()) + text, encoding="utf-8")
