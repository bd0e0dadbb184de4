"""``orrery validate``: strategies predicted and run, side by side."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from executor.validation.validation_request import ValidationRequest
from orrery.terminal.options import JsonOption, ModelArgument
from orrery.terminal.output import Out, out_files, out_option, print_json, print_lines, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import print_table

if TYPE_CHECKING:
    from executor.lab.namespaces import LabHosts
    from executor.validation.validation_result import Validation


_OutOption = Annotated[Out | None, out_option("index.html", "validation.json", folder_only=True)]
_TABLES = ("kinds", "layers", "edges", "tasks")
"""Tables of a validated strategy, which are written as lists of rows."""
_Lab = Annotated[str | None, typer.Option(metavar="C", help="Cluster to build of network namespaces, and to run in.")]


@takes_requests
def orrery_validate(
    model: ModelArgument,
    *,
    request: ValidationRequest,
    lab: _Lab = None,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Probe, plan, simulate, run and compare: how far predictions can be trusted here."""
    from executor.runtime.requirements import check_torch

    check_torch("validate")
    request = replace(request, processes=_ranks(request, lab), cluster=lab or request.cluster)
    from executor.validation.validation_run import validate
    from reports.pages.validation_page import validation_html

    with out_files(out) as files, progress_bar(model) as progress, _hosts(lab) as hosts:
        result = kept(validate, model, request, hosts=hosts, out=out.typed if out else None, progress=progress)
        values = _values(result)
        write_results(files, lambda: validation_html(result), values)
    print_json(values) if json else _print(result, out)


def _ranks(request: ValidationRequest, lab: str | None) -> int:
    """Return the number of processes to run; outside the lab, run the same command inside it and end with its code."""
    from groundwork.errors import ConfigError
    from hwprofiles.catalogue.cluster_catalogue import load_cluster

    if lab and request.cluster:
        raise ConfigError(f"cluster must be left out with a lab, which is the cluster, got {request.cluster!r}")
    if not lab:
        if request.processes is None:
            raise ConfigError("processes must be given where there is no lab, got none")
        return request.processes
    hosts = len(load_cluster(lab).devices)
    from executor.lab.inside import is_inside, run_inside

    if not is_inside():
        # no typer.Exit: its code 130 would have this process, too, say that it was interrupted
        sys.exit(run_inside([sys.executable, "-m", "orrery", *sys.argv[1:]]))
    return request.processes or hosts


def _hosts(lab: str | None) -> "AbstractContextManager[LabHosts | None]":
    """Return the hosts of a lab for as long as a block lasts, or None without a lab."""
    from executor.lab.inside import lab_hosts
    from hwprofiles.catalogue.cluster_catalogue import load_cluster

    return lab_hosts(load_cluster(lab)) if lab else nullcontext()


def _values(result: "Validation") -> dict[str, Any]:
    """Return all results in SI units; tables as lists of rows."""
    names = ("model", "batch", "cluster", "devices", "stand_in", "stand_in_compression", "lab")
    measures = ("rank_correlation", "order_right", "loss_difference")
    rows = []
    for strategy in result.strategies:
        row = {key: value for key, value in asdict(strategy).items() if key not in (*_TABLES, "simulated", "measured")}
        row |= {key: getattr(strategy, key) for key in ("predicted_s", "measured_s", "error", "bytes_equal")}
        rows.append(row | {key: getattr(strategy, key).to_dict("records") for key in _TABLES})
    speedups = [asdict(row) | {"error": row.error} for row in result.speedups]
    return {
        **{name: getattr(result, name) for name in (*names, *measures)},
        "strategies": rows,
        "speedups": speedups,
        "refused": result.refused,
        "environment": result.environment,
        "notes": result.notes,
    }


def _print(result: "Validation", out: Out | None) -> None:
    """Print tables of times and speed-ups, then the headline, refusals and notes."""
    from reports.pages.validation_page import validation_headline
    from reports.style.units import time_unit

    unit = time_unit(time_s for row in result.strategies for time_s in (*row.ladder_s.values(), *row.quartiles_s))
    print_table(
        [
            {
                "strategy": row.name,
                **{f"{model} ({unit.name})": unit.text(time_s) for model, time_s in row.ladder_s.items()},
                f"quartiles ({unit.name})": " to ".join(map(unit.text, row.quartiles_s)),
                "iterations": len(row.iterations_s),
                "error": f"{row.error:+z.1%}",
                "moved": "as priced" if row.bytes_equal else "differs",
            }
            for row in result.strategies
        ]
    )
    if result.speedups:
        print_table(
            [
                {
                    "strategy": row.name,
                    "over": row.plain,
                    "speedup predicted": f"{row.predicted:.2f}",
                    "measured": f"{row.measured:.2f}",
                    "error": f"{row.error:+z.1%}",
                }
                for row in result.speedups
            ]
        )
    refused = [f"{name} was refused: {reason}" for name, reason in result.refused.items()]
    print_lines([validation_headline(result), *refused, *result.notes], out)
