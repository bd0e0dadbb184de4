"""``orrery calibrate``: compute profiles and libraries of clusters fitted to measurements."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal.options import JsonOption
from orrery.terminal.output import Out, out_files, out_option, print_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.views import print_pairs, print_table

if TYPE_CHECKING:
    from studies.calibrate.cross_validation import HeldOutErrors


def orrery_calibrate(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Measurements: .csv tables of convolutions, products or networks, probe.json of orrery probe, or names"
            " of tables that ship, such as deepbench_conv; for a cluster the output of nccl-tests and of"
            " p2pBandwidthLatencyTest.",
        ),
    ],
    *,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Device: its data sheet, and whatever the rows do not determine. A known device, a compute profile of"
            " the catalogue, or a profile file.",
        ),
    ] = "",
    cluster: Annotated[
        str, typer.Option(metavar="C", help="Cluster of the catalogue, or a cluster file, whose library is fitted.")
    ] = "",
    out: Annotated[Out, out_option("calibrated.yaml", also=(".yml",))],
    gpu: Annotated[str, typer.Option(metavar="LABEL", help="Name of the device in the tables, where it differs.")] = "",
    json: JsonOption = False,
) -> None:
    """Fit a compute profile, or a cluster's library, to measurements; say how far off it is on rows held out."""
    from groundwork.errors import ConfigError
    from studies.calibrate.calibration import calibrated
    from studies.calibrate.device_sheets import base_content
    from studies.calibrate.measurements import read_measurements
    from studies.calibrate.profile_content import write_content

    if bool(device) == bool(cluster):
        raise ConfigError("one of --device and --cluster must be given: a compute profile or a library is fitted")
    if cluster:
        if gpu:
            raise ConfigError(f"--gpu must be left out with --cluster, got {gpu!r}")
        values = _cluster_values(files, cluster, out)
        return print_json(values) if json else _print_library(values)
    with out_files(out) as (path,), progress_bar(f"fitting {device}"):
        base = base_content(device)
        measured = read_measurements(files, device, gpu)
        result = calibrated(measured.kernels, measured.networks, base, fused=measured.fused, sources=files)
        write_content(
            result.content, path, f"{device}, fitted by orrery calibrate {' '.join(files)}; section fit says how well."
        )
    values = {
        "profile_file": str(out.files[0]),
        "errors": _error_rows(result.errors),
        "at_prior": list(result.at_prior),
        "sustained_clock": result.content.get("sustained_clock", 1.0),
        "dispatch_overhead_us": result.content.get("dispatch_overhead_us", 0.0),
    }
    print_json(values) if json else _print_fit(values)


def _print_fit(values: dict[str, Any]) -> None:
    """Print the errors on held-out rows, then what was not identified, and the file."""
    _print_errors(values["errors"], "held out")
    print_pairs(
        {
            "not identified, at their prior": ", ".join(values["at_prior"]) or "none",
            "sustained clock": values["sustained_clock"],
            "host's time a phase of a layer (us)": values["dispatch_overhead_us"],
            "compute profile": values["profile_file"],
        }
    )


def _cluster_values(files: list[str], cluster: str, out: Out) -> dict[str, Any]:
    """Fit a cluster's links and library, write the file, and return the errors."""
    from groundwork.errors import ConfigError
    from hwprofiles.machines.machine_file import machine_file
    from hwprofiles.machines.written_cluster import write_cluster_file
    from studies.calibrate.library_fit import fitted_library

    with out_files(out) as (path,), progress_bar(f"fitting {cluster}"):
        read = machine_file([Path(file) for file in files], base=cluster)
        if not read.collectives:
            raise ConfigError("a library is fitted to the output of nccl-tests: got none; orrery read takes the rest")
        result = fitted_library(read.content, read.collectives)
        write_cluster_file(path, result.content, "Fitted by orrery calibrate; section fit says how well.")
    return {
        "cluster_file": str(out.files[0]),
        "errors": _error_rows(result.held_out),
        "residuals": _error_rows(result.residuals),
        "at_prior": list(result.at_prior),
        "at_bound": list(result.at_bound),
        "way": result.way,
        "library": result.content["library"],
    }


def _error_rows(errors: "Mapping[str, HeldOutErrors]") -> list[dict[str, Any]]:
    return [
        {"what": kind, "rows": e.rows, "median": e.median, "p90": e.p90, "bias": e.bias} for kind, e in errors.items()
    ]


def _print_errors(rows: list[dict[str, Any]], title: str) -> None:
    """Print the errors of kinds of rows."""
    print_table(
        [
            {
                title: row["what"],
                "rows": row["rows"],
                "median error": f"{row['median']:.1%}",
                "90 % below": f"{row['p90']:.1%}",
                "bias": f"{row['bias']:+z.1%}",
            }
            for row in rows
        ]
    )


def _print_library(values: dict[str, Any]) -> None:
    """Print the errors of a fitted library, then what was not identified, and the file."""
    _print_errors(values["errors"], "held out")
    _print_errors(values["residuals"], "of the fit")
    ways = {1.0: "the fit", 0.5: "half of the way to the fit, which is worse on rows held out"}
    print_pairs(
        {
            "taken": ways.get(values["way"], "what the file said before: the fit is worse on rows held out"),
            "not identified, at their prior": ", ".join(values["at_prior"]) or "none",
            "at the end of what is physical: check transport and links": ", ".join(values["at_bound"]) or "none",
            "cluster file": values["cluster_file"],
        }
    )
