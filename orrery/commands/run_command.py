"""``orrery run``: a plan run for real, by processes that it starts or as one of those that torchrun has started."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from groundwork.requests import option
from orrery.terminal.exit_codes import left_out
from orrery.terminal.options import JsonOption, PlanArgument, TraceOption
from orrery.terminal.output import Out, out_option, output_file, print_json, to_json
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import print_pairs

if TYPE_CHECKING:
    from executor.run.plan_run import PlanRun


_Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Ranks to start here; as many as the plan has devices if not given."),
]
_OutOption = Annotated[
    Out | None, out_option("timeline.csv", "losses.csv", "run.json", "measured.npz", folder_only=True)
]
_StallTimeout = Annotated[
    float | None,
    typer.Option(metavar="S", help="Silence of a rank that ends the run: 20 s, or 5 times the longest predicted task."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _UpdateOptions:
    """Options of the optimizer; ``OptimizerSpec`` has no field for a momentum that was not given."""

    optimizer: Literal["sgd", "adam"] = option("sgd", help="Optimizer.")
    learning_rate: float = option(0.01, metavar="R", help="Learning rate of the optimizer.")
    momentum: float | None = option(None, metavar="M", help="Momentum of sgd, in [0, 1); 0.9 if not given.")
    weight_decay: float = option(0.0, metavar="W", help="Share of each parameter that is added to its gradient.")

    def spec(self) -> OptimizerSpec:
        """Return the optimizer with its settings.

        Raises:
            ConfigError: A number is out of its range, or a momentum is given for adam.
        """
        if self.optimizer != "sgd":
            left_out(f"with --optimizer {self.optimizer}", momentum=self.momentum)
        of_sgd = {} if self.momentum is None else {"momentum": self.momentum}
        return OptimizerSpec(
            name=self.optimizer, learning_rate=self.learning_rate, weight_decay=self.weight_decay, **of_sgd
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _NetworkOptions:
    """Options of ranks that are on several machines, in place of the variables of the environment."""

    interface: str | None = option(
        None, metavar="NAME", help="Network interface of ranks on several machines, if not that towards MASTER_ADDR."
    )
    secret_file: str | None = option(
        None, metavar="FILE", help="File with a secret, the same on every machine, by which ranks know each other."
    )
    no_secret: bool = option(
        False, names=("--no-secret",), help="Run on several machines without a secret, in a network that you trust."
    )

    def use(self) -> None:
        """Let the ranks of this process, which read the environment, find what was given."""
        from executor.rendezvous.rank_environment import INTERFACE_VARIABLE, NO_SECRET_VARIABLE, SECRET_VARIABLE

        given = {INTERFACE_VARIABLE: self.interface, SECRET_VARIABLE: self.secret_file}
        given[NO_SECRET_VARIABLE] = "1" if self.no_secret else None
        os.environ.update({name: value for name, value in given.items() if value is not None})

    def check_left_out(self) -> None:
        """Refuse options where the ranks are started here: their network is loopback."""
        left_out(
            "where the ranks are started here, which use loopback alone",
            interface=self.interface,
            secret_file=self.secret_file,
            no_secret=self.no_secret or None,
        )


@takes_requests
def orrery_run(
    plan_file: PlanArgument,
    *,
    options: RunOptions,
    update: _UpdateOptions,
    network: _NetworkOptions,
    processes: _Processes = None,
    out: _OutOption = None,
    trace: TraceOption = None,
    stall_timeout: _StallTimeout = None,
    json: JsonOption = False,
) -> None:
    """Train by a plan with real processes, and measure every task.

    Without --processes, and with the variables of torchrun in the environment, it is one rank of a larger run.
    """
    from executor.runtime.requirements import check_torch

    check_torch("run")
    from executor.rendezvous.rank_environment import rank_environment
    from executor.rendezvous.rank_network import check_network
    from executor.run.plan_run import run_plan, run_rank_of_plan

    options = replace(options, plan=str(plan_file), optimizer=update.spec(), out=str(out.typed) if out else "")
    report = _Report(out=out, trace=trace, save=options.save, json=json)
    if processes is not None or not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        network.check_left_out()
        _run(partial(run_plan, processes=processes), options, report, stall_s=stall_timeout)
        return
    network.use()
    where = rank_environment()
    check_network(where)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it would print a trace where the store ends before this
    if where.rank == 0:
        _run(partial(run_rank_of_plan, where=where), options, report, stall_s=stall_timeout)
    else:
        run_rank_of_plan(options, where, stall_s=stall_timeout)


def _run(
    run: Callable[..., "PlanRun | None"], options: RunOptions, report: "_Report", *, stall_s: float | None
) -> None:
    """Start ranks and supervise them, and report on the run."""
    from executor.measurement.measured_run import MEASUREMENT

    with report.files() as files, progress_bar("starting") as progress:
        options = replace(options, save=str(files["state_dict"])) if options.save else options
        measured = files.get(MEASUREMENT)  # takes its place with the others, at the end
        ran = run(options, stall_s=stall_s, measured=measured, progress=progress)
        assert ran is not None
        values = report.write(ran, options, files)
    report.show(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """The files that a run writes, and what it prints."""

    out: Out | None
    trace: Path | None
    save: str
    json: bool

    @contextmanager
    def files(self) -> Iterator[Mapping[str, Path]]:
        """Open the output files, by their names in the folder, before the long work begins."""
        wanted = {"trace": self.trace} if self.trace else {}
        wanted |= {"state_dict": Path(self.save)} if self.save else {}
        if self.out:
            wanted |= {path.name: path for path in self.out.files}
        with ExitStack() as stack:
            yield {name: stack.enter_context(output_file(path)) for name, path in wanted.items()}

    def write(self, ran: "PlanRun", options: RunOptions, files: Mapping[str, Path]) -> dict[str, Any]:
        """Write the files, and return the values that ``show`` prints."""
        measured, values = ran.measurement, _values(ran, options)
        if self.trace:
            measured.write_trace(ran.program, files["trace"])
        if self.out:
            measured.timeline(ran.program).to_csv(files["timeline.csv"], index=False)
            first = options.steps - len(measured.loss)
            rows = [f"{first + step},{loss!r}\n" for step, loss in enumerate(measured.loss.tolist())]
            files["losses.csv"].write_text("".join(["step,loss\n", *rows]))
            files["run.json"].write_bytes(to_json({**values, "options": options}))
        return values

    def show(self, values: Mapping[str, Any]) -> None:
        """Print the values: one JSON value, or a table."""
        if self.json:
            return print_json(values)
        peaks = [f"{peak / 2**20:.0f} MiB" for peak in values["peak_memory_bytes"]]
        shown = {name: value for name, value in values.items() if name not in ("iterations_s", "peak_memory_bytes")}
        if "allocated_bytes" in shown:
            pairs = zip(shown.pop("allocated_bytes"), shown.pop("predicted_bytes"), strict=True)
            shown["allocated by rank"] = [
                f"{row['peak'] / 2**20:.1f} MiB, predicted {size / 2**20:.1f}" for row, size in pairs
            ]
        shown[f"{shown.pop('samples_are')}/s"] = shown.pop("samples_per_s")
        print_pairs({**shown, "peak memory by rank": peaks})


def _values(ran: "PlanRun", options: RunOptions) -> dict[str, Any]:
    """Return losses, times beside the simulated one, and memory."""
    measured, losses = ran.measurement, ran.measurement.loss.tolist()
    return {
        "model": ran.plan.model,
        "strategy": ran.plan.strategy,
        "processes": len(measured.peak_memory_bytes),
        "steps": options.steps,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "iteration_s": measured.iteration_s,
        "spread_s": measured.spread_s,
        "simulated_s": ran.replayed.iteration_s,
        "cluster": ran.plan.cluster,
        "samples_per_s": ran.samples_per_s,
        "samples_are": ran.program.graph.samples_are,
        "peak_memory_bytes": measured.peak_memory_bytes.tolist(),
        "iterations_s": measured.iterations_s.tolist(),
        "notes": measured.notes,
    } | (_memory(ran, options) if options.memory else {})


def _memory(ran: "PlanRun", options: RunOptions) -> dict[str, Any]:
    """Return the bytes that each rank allocated at its peak, by kind, and the predicted ones."""
    from executor.measurement.memory_meter import ALLOCATED
    from executor.runtime.predicted_memory import predicted_bytes

    rows = ran.measurement.allocated_bytes.tolist()
    return {
        "allocated_bytes": [dict(zip(ALLOCATED, row, strict=True)) for row in rows],
        "predicted_bytes": predicted_bytes(ran.program, options)[: len(rows)].tolist(),
    }
