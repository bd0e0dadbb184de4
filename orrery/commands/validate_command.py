"""``orrery validate``: predict strategies, run them, and set both side by side."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.terminal import (
    Batch,
    Device,
    Exchange,
    Json,
    Model,
    Page,
    Seed,
    StandInCompute,
    Strategies,
    Threads,
    page_files,
    print_json,
    print_table,
    progress_bar,
    to_json,
)

if TYPE_CHECKING:
    from executor.lab import Hosts
    from executor.runtime import RunOptions
    from executor.validation import Validation

__all__ = ["validate"]

_TABLES = ("kinds", "layers", "edges", "tasks")

_Processes = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Ranks; as many as the lab has hosts if not given.")
]
Predicted = Annotated[
    str | None, typer.Option(metavar="C", help="Cluster to predict with; this machine is probed if not given.")
]
Lab = Annotated[str | None, typer.Option(metavar="C", help="Cluster to make of network namespaces, and to run in.")]
StandInCodes = Annotated[
    bool, typer.Option("--stand-in-codes", help="With --stand-in-compute: wait instead of encoding and decoding.")
]
Orders = Annotated[
    str, typer.Option(metavar="O,O,...", help="Run every strategy also with sums of gradients in these orders.")
]
GradientTypes = Annotated[
    str, typer.Option(metavar="T,T,...", help="Run every strategy also with gradients as these data types.")
]
ActivationTypes = Annotated[
    str, typer.Option(metavar="T,T,...", help="Also with tensors between layers, and their gradients, as these.")
]
_Rounds = Annotated[int, typer.Option(min=1, metavar="R", help="Turns of each strategy at most.")]
Spread = Annotated[
    float, typer.Option(min=0.0, metavar="S", help="Share to which medians are to be known; ends the rounds.")
]
Budget = Annotated[float, typer.Option(min=0.0, metavar="S", help="No round begins after so many seconds.")]


def validate(
    model: Model,
    *,
    processes: _Processes = None,
    batch: Batch,
    strategies: Strategies = "data,model,owt,spatial,layerwise",
    cluster: Predicted = None,
    lab: Lab = None,
    stand_in_compute: StandInCompute = False,
    stand_in_codes: StandInCodes = False,
    gradient_sync: Exchange = "ring",
    gradient_sync_order: Orders = "",
    compress_gradients: GradientTypes = "",
    compress_activations: ActivationTypes = "",
    rounds: _Rounds = 12,
    spread: Spread = 0.02,
    budget: Budget = 300.0,
    device: Device = "auto",
    threads: Threads = 0,
    seed: Seed = 0,
    out: Page = None,
    json: Json = False,
) -> None:
    """Probe, plan, simulate, run and compare: how far predictions can be trusted here."""
    from executor.runtime import check_torch

    check_torch("validate")
    options = _run_options(stand_in_compute, stand_in_codes, device=device, threads=threads, seed=seed)
    ranks = _ranks(processes, lab=lab, cluster=cluster)
    from executor.validation import validate as validate_strategies
    from planner.parallel import split_list
    from reports.pages import write_validation_page
    from studies.eight_bit import type_list

    with page_files(out, "validation.json") as files, progress_bar(model) as progress, _hosts(lab) as hosts:
        found = validate_strategies(
            model,
            batch=batch,
            strategies=split_list(strategies),
            processes=ranks,
            cluster=lab or cluster,
            hosts=hosts,
            run=options,
            rounds=rounds,
            spread=spread,
            budget_s=budget,
            gradient_sync=gradient_sync,
            compress_gradients=type_list(compress_gradients) if compress_gradients else (),
            compress_activations=type_list(compress_activations) if compress_activations else (),
            gradient_sync_orders=[order.strip() for order in gradient_sync_order.split(",")]
            if gradient_sync_order
            else (),
            out=out,
            progress=progress,
        )
        values = validation_values(found)
        if files:
            write_validation_page(found, files[0])
            files[1].write_bytes(to_json(values))
    if json:
        return print_json(values)
    _print(found)
    if out:
        print(f"page: {out / 'index.html'}")


def _ranks(processes: int | None, *, lab: str | None, cluster: str | None) -> int:
    """How many processes run; a lab that is not there yet gets the same command, inside, and ends this one."""
    from hwprofiles import ConfigError
    from hwprofiles.catalogue import load_cluster

    if lab and cluster:
        raise ConfigError(f"cluster must be left out with a lab, which is the cluster, got {cluster!r}")
    if not lab:
        if processes is None:
            raise ConfigError("processes must be given where there is no lab, got none")
        return processes
    hosts = len(load_cluster(lab).devices)
    from executor.lab import is_inside, run_inside

    if not is_inside():
        raise typer.Exit(run_inside([sys.executable, "-m", "orrery", *sys.argv[1:]]))
    return processes or hosts


def _hosts(lab: str | None) -> "AbstractContextManager[Hosts | None]":
    """The hosts of a lab while the block lasts, or None."""
    from executor.lab import lab_hosts
    from hwprofiles.catalogue import load_cluster

    return lab_hosts(load_cluster(lab)) if lab else nullcontext()


def _run_options(stand_in: bool, stand_in_codes: bool, *, device: str, threads: int, seed: int) -> "RunOptions":
    from executor.runtime import RunOptions
    from hwprofiles import ConfigError

    if stand_in_codes and not stand_in:
        raise ConfigError("stand_in_codes must be left out without stand_in_compute: arithmetic is then real, too")
    return RunOptions(
        plan="", stand_in=stand_in, real_codes=stand_in and not stand_in_codes, device=device, threads=threads,
        seed=seed,
    )  # fmt: skip


def validation_values(found: "Validation") -> dict[str, Any]:
    """Everything that was found, in SI units; tables as lists of rows."""
    values = {
        field: getattr(found, field)
        for field in ("model", "batch", "cluster", "devices", "stand_in", "stand_in_codes", "lab")
    }
    values |= {field: getattr(found, field) for field in ("rank_correlation", "order_right", "loss_difference")}
    rows = []
    for strategy in found.strategies:
        row = {key: value for key, value in asdict(strategy).items() if key not in (*_TABLES, "simulated", "measured")}
        row |= {key: getattr(strategy, key) for key in ("predicted_s", "measured_s", "error", "bytes_equal")}
        rows.append(row | {key: getattr(strategy, key).to_dict("records") for key in _TABLES})
    speedups = [asdict(row) | {"error": row.error} for row in found.speedups]
    return {
        **values,
        "strategies": rows,
        "speedups": speedups,
        "refused": found.refused,
        "environment": found.environment,
        "notes": found.notes,
    }


def _print(found: "Validation") -> None:
    """A table for people, and the answer."""
    from reports.pages import validation_headline

    print_table(
        [
            {
                "strategy": s.name,
                **{f"{reading} (ms)": f"{time_s * 1e3:.4g}" for reading, time_s in s.ladder_s.items()},
                "quartiles (ms)": f"{s.quartiles_s[0] * 1e3:.4g} to {s.quartiles_s[1] * 1e3:.4g}",
                "iterations": len(s.iterations_s),
                "error": f"{s.error:+.1%}",
                "moved": "as priced" if s.bytes_equal else "differs",
            }
            for s in found.strategies
        ]
    )
    if found.speedups:
        print_table(
            [
                {
                    "strategy": row.name,
                    "over": row.plain,
                    "speedup predicted": f"{row.predicted:.2f}",
                    "measured": f"{row.measured:.2f}",
                    "error": f"{row.error:+.1%}",
                }
                for row in found.speedups
            ]
        )
    refused = [f"{name} was refused: {reason}" for name, reason in found.refused.items()]
    print("\n".join([validation_headline(found), *refused, *found.notes]))
