"""``orrery validate``: predict strategies, run them, and set both side by side."""

import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orrery.options import Device, Json, Page, StandInCompute, Strategies
from orrery.output import print_json, to_json, whole_file
from orrery.progress import progress_bar
from orrery.views import print_table

if TYPE_CHECKING:
    from executor.validation.result import Validation

__all__ = ["validate"]

TABLES = ("kinds", "layers", "edges", "tasks")


def validate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model, such as vgg11-cifar.")],
    *,
    processes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Ranks; as many as the lab has hosts if not given.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, metavar="N", help="Samples in a mini-batch, all ranks.")],
    strategies: Strategies = "data,model,owt,spatial,layerwise",
    cluster: Annotated[
        str | None, typer.Option(metavar="C", help="Cluster to predict with; this machine is probed if not given.")
    ] = None,
    lab: Annotated[
        str | None, typer.Option(metavar="C", help="Cluster to make of network namespaces, and to run in.")
    ] = None,
    stand_in_compute: StandInCompute = False,
    stand_in_codes: Annotated[
        bool, typer.Option("--stand-in-codes", help="With --stand-in-compute: wait instead of encoding and decoding.")
    ] = False,
    exchange: Annotated[str, typer.Option(metavar="E", help="How gradients are exchanged.")] = "ring",
    compress_gradients: Annotated[
        str, typer.Option(metavar="T,T,...", help="Run every strategy also with gradients as these data types.")
    ] = "",
    compress_activations: Annotated[
        str, typer.Option(metavar="T,T,...", help="Also with tensors between layers, and their gradients, as these.")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, metavar="R", help="Turns of each strategy at most.")] = 12,
    spread: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Share to which medians are to be known; ends the rounds.")
    ] = 0.02,
    budget: Annotated[float, typer.Option(min=0.0, metavar="S", help="No round begins after so many seconds.")] = 300.0,
    device: Device = "auto",
    threads: Annotated[int, typer.Option(min=0, metavar="T", help="Of each rank; 0: the cores, shared equally.")] = 0,
    seed: Annotated[int, typer.Option(metavar="S", help="Of first values, data, dropout and order of turns.")] = 0,
    out: Page = None,
    json: Json = False,
) -> None:
    """Probe, plan, simulate, run and compare: how far predictions can be trusted here."""
    from importlib.util import find_spec

    from hwprofiles.catalogue import load_cluster
    from hwprofiles.errors import ConfigError

    if find_spec("torch") is None:
        raise ConfigError("validate must have torch, which the extra orrery[executor] brings")
    if lab and cluster:
        raise ConfigError(f"cluster must be left out with a lab, which is the cluster, got {cluster!r}")
    if lab:
        processes = processes or len(load_cluster(lab).devices)
        from executor.lab import is_inside, run_inside

        if not is_inside():  # the same command again, where hosts can be made
            raise typer.Exit(run_inside([sys.executable, "-m", "orrery", *sys.argv[1:]]))
    if processes is None:
        raise ConfigError("processes must be given where there is no lab, got none")
    from executor.lab import lab_hosts
    from executor.options import RunOptions
    from executor.validation.validate import validate as validate_strategies
    from planner.eight_bit.lists import type_list
    from planner.hybrids import split_list
    from reports.validation_page import write_validation_page

    names = split_list(strategies)
    if stand_in_codes and not stand_in_compute:
        raise ConfigError("stand_in_codes must be left out without stand_in_compute: arithmetic is then real, too")
    options = RunOptions(
        plan="", stand_in=stand_in_compute, real_codes=stand_in_compute and not stand_in_codes, device=device,
        threads=threads, seed=seed,
    )  # fmt: skip
    types = [type_list(text) if text else () for text in (compress_gradients, compress_activations)]
    page = whole_file(out / "index.html") if out else nullcontext()
    numbers = whole_file(out / "validation.json") if out else nullcontext()
    hosts = lab_hosts(load_cluster(lab)) if lab else nullcontext()
    with page as page_file, numbers as numbers_file, progress_bar(model) as progress, hosts as where:
        found = validate_strategies(
            model, batch=batch, strategies=names, processes=processes, cluster=lab or cluster, hosts=where, run=options,
            rounds=rounds, spread=spread, budget_s=budget, exchange=exchange, compress_gradients=types[0],
            compress_activations=types[1], out=out, progress=progress,
        )  # fmt: skip
        values = validation_values(found)
        if page_file and numbers_file:
            write_validation_page(found, page_file)
            numbers_file.write_bytes(to_json(values))
    if json:
        return print_json(values)
    _print(found)
    if out:
        print(f"page: {out / 'index.html'}")


def validation_values(found: "Validation") -> dict[str, Any]:
    """Everything that was found, in SI units; tables as lists of rows."""
    values = {
        field: getattr(found, field)
        for field in ("model", "batch", "cluster", "devices", "stand_in", "stand_in_codes", "lab")
    }
    values |= {field: getattr(found, field) for field in ("rank_correlation", "order_right", "loss_difference")}
    rows = []
    for strategy in found.strategies:
        row = {key: value for key, value in asdict(strategy).items() if key not in (*TABLES, "simulated", "measured")}
        row |= {key: getattr(strategy, key) for key in ("predicted_s", "measured_s", "error", "bytes_equal")}
        rows.append(row | {key: getattr(strategy, key).to_dict("records") for key in TABLES})
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
    from reports.validation_page import validation_headline

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
