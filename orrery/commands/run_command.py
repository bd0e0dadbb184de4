"""``orrery run``: a plan run for real, by processes that it starts or as one of those that torchrun has started."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from orrery.terminal import (
    Device,
    Json,
    PlanFile,
    Seed,
    StandInCompute,
    Threads,
    Trace,
    left_out,
    print_json,
    print_pairs,
    progress_bar,
    to_json,
    whole_file,
)

if TYPE_CHECKING:
    from executor.processes import RankEnvironment, RankStatus
    from executor.run import PlanRun
    from executor.runtime import RunOptions

__all__ = ["run"]


_Processes = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Ranks to start here; as many as the plan has devices if not given."),
]
Steps = Annotated[int, typer.Option(metavar="K", help="Training steps in all, with those before a resume.")]
Data = Annotated[
    str, typer.Option(metavar="D", help="generated, generated:N, FILE.npz, INPUTS.npy,TARGETS.npy or an image folder.")
]
Rule = Annotated[Literal["sgd", "adam"], typer.Option(help="Rule of the update.")]
Overlap = Annotated[bool, typer.Option(help="Send beside arithmetic, or wait for every message.")]
Memory = Annotated[
    bool, typer.Option("--memory", help="Count what the first two iterations allocate, beside the prediction.")
]
_Checkpoint = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for checkpoints.")]
CheckpointEvery = Annotated[int, typer.Option(metavar="K", help="Steps between checkpoints; 0: only after the last.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder for timeline.csv, losses.csv, run.json, measured.npz and logs."),
]
StallTimeout = Annotated[
    float | None,
    typer.Option(metavar="S", help="Silence that ends the run: 20 s, or 5 times the longest predicted task."),
]


def run(
    plan_file: PlanFile,
    *,
    processes: _Processes = None,
    steps: Steps = 10,
    data: Data = "generated",
    optimizer: Rule = "sgd",
    learning_rate: Annotated[float, typer.Option(metavar="R", help="Of the update.")] = 0.01,
    momentum: Annotated[float | None, typer.Option(metavar="M", help="Of sgd, in [0, 1); else 0.9.")] = None,
    weight_decay: Annotated[float, typer.Option(metavar="W", help="Share of each parameter in its gradient.")] = 0.0,
    seed: Seed = 0,
    overlap: Overlap = True,
    stand_in_compute: StandInCompute = False,
    device: Device = "auto",
    threads: Threads = 0,
    memory: Memory = False,
    checkpoint: _Checkpoint = None,
    checkpoint_every: CheckpointEvery = 0,
    resume: Resume = False,
    out: Out = None,
    trace: Trace = None,
    stall_timeout: StallTimeout = None,
    json: Json = False,
) -> None:
    """Train by a plan with real processes, and measure every task.

    Without --processes, and with the variables of torchrun in the environment, it is one rank of a larger run.
    """
    from executor.runtime import OptimizerSpec, RunOptions, check_torch

    check_torch("run")
    if optimizer != "sgd":
        left_out(f"with --optimizer {optimizer}", momentum=momentum)
    of_sgd = {} if momentum is None else {"momentum": momentum}
    rule = OptimizerSpec(name=optimizer, learning_rate=learning_rate, weight_decay=weight_decay, **of_sgd)
    options = RunOptions(
        plan=str(plan_file), steps=steps, seed=seed, data=data, optimizer=rule, overlap=overlap,
        stand_in=stand_in_compute, device=device, threads=threads, memory=memory, checkpoint=str(checkpoint or ""),
        checkpoint_every=checkpoint_every, resume=resume, out=str(out or ""),
    )  # fmt: skip
    report = _Report(plan_file=plan_file, out=out, trace=trace, json=json)
    if processes is None and {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        _take_place(options, report, stall_timeout)
    _run_here(options, report, processes=processes, stall_s=stall_timeout)


def _run_here(options: "RunOptions", report: "_Report", *, processes: int | None, stall_s: float | None) -> None:
    """Start the ranks on this machine, and watch over them."""
    from executor.run import run_plan

    with report.files() as files, progress_bar("starting") as progress:
        ran = run_plan(options, processes=processes, stall_s=stall_s, progress=progress)
        values = report.write(ran, options, files)
    report.show(values)


def _take_place(options: "RunOptions", report: "_Report", stall_s: float | None) -> NoReturn:
    """Be the rank that the environment says; rank 0 writes and prints.  Ends the process."""
    from executor.processes import Patience, RankState, serve
    from executor.run import PlanRun, default_stall_s, run_rank
    from executor.runtime import check_program, program_of
    from executor.watchdog import guarded
    from planner.plan import load_plan

    def work(where: "RankEnvironment", status: "RankStatus") -> None:
        plan = load_plan(Path(options.plan))
        program = program_of(plan)
        check_program(program, where.ranks)
        patience = Patience(stall_s=default_stall_s(program) if stall_s is None else stall_s)
        # The guards see a silent rank first, and who is to blame.
        timed = replace(options, timeout_s=max(options.timeout_s, 2 * patience.stall_s))
        reduced = plan.batch_norm == "reduced"
        with guarded(where, status, patience, program.name):
            if where.rank > 0:
                run_rank(where, program, timed, status, reduced=reduced)
                return
            with report.files() as files, progress_bar("starting") as bar:

                def show(images_per_s: float, done: int) -> None:
                    if bar:
                        bar(f"{images_per_s:.4g} images/s", done, options.steps)

                measurement = run_rank(where, program, timed, status, reduced=reduced, progress=show)
                assert measurement is not None
                status.at(-1, RankState.SAVING)
                values = report.write(PlanRun(plan=plan, program=program, measurement=measurement), options, files)
            report.show(values)

    serve(work)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """What a run leaves behind and prints."""

    plan_file: Path
    """What must not be replaced."""
    out: Path | None
    trace: Path | None
    json: bool

    @contextmanager
    def files(self) -> Iterator[Mapping[str, Path]]:
        """Open what will be written, by its name in the folder, before the long work begins."""
        from executor.measurement import MEASUREMENT

        wanted = {"trace": self.trace} if self.trace else {}
        if self.out:
            wanted |= {name: self.out / name for name in ("timeline.csv", "losses.csv", "run.json", MEASUREMENT)}
        with ExitStack() as stack:
            yield {name: stack.enter_context(whole_file(path, self.plan_file)) for name, path in wanted.items()}

    def write(self, ran: "PlanRun", options: "RunOptions", files: Mapping[str, Path]) -> dict[str, Any]:
        """Write the files; returns what ``show`` prints."""
        from executor.measurement import MEASUREMENT

        measured, values = ran.measurement, _values(ran, options)
        if self.trace:
            measured.write_trace(ran.program, files["trace"])
        if self.out:
            measured.timeline(ran.program).to_csv(files["timeline.csv"], index=False)
            first = options.steps - len(measured.loss)
            rows = [f"{first + step},{loss!r}\n" for step, loss in enumerate(measured.loss.tolist())]
            files["losses.csv"].write_text("".join(["step,loss\n", *rows]))
            files["run.json"].write_bytes(to_json({**values, "options": options}))
            measured.write(files[MEASUREMENT])
        return values

    def show(self, values: Mapping[str, Any]) -> None:
        """Print the answer."""
        if self.json:
            return print_json(values)
        peaks = [f"{peak / 2**20:.0f} MiB" for peak in values["peak_memory_bytes"]]
        told = {name: value for name, value in values.items() if name not in ("iterations_s", "peak_memory_bytes")}
        if "allocated_bytes" in told:
            measured, foretold = told.pop("allocated_bytes"), told.pop("predicted_bytes")
            pairs = zip(measured, foretold, strict=True)
            told["allocated by rank"] = [
                f"{row['peak'] / 2**20:.1f} MiB, predicted {size / 2**20:.1f}" for row, size in pairs
            ]
        told["images/s"] = told.pop("images_per_s")
        print_pairs({**told, "peak memory by rank": peaks})


def _values(ran: "PlanRun", options: "RunOptions") -> dict[str, Any]:
    """Loss, times beside the simulated one, memory."""
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
        "images_per_s": ran.images_per_s,
        "peak_memory_bytes": measured.peak_memory_bytes.tolist(),
        "iterations_s": measured.iterations_s.tolist(),
        "notes": measured.notes,
    } | (_memory(ran, options) if options.memory else {})


def _memory(ran: "PlanRun", options: "RunOptions") -> dict[str, Any]:
    """What each rank allocated at its peak, by kind, and what was predicted."""
    from executor.measurement import ALLOCATED
    from executor.runtime import predicted_bytes

    rows = ran.measurement.allocated_bytes.tolist()
    return {
        "allocated_bytes": [dict(zip(ALLOCATED, row, strict=True)) for row in rows],
        "predicted_bytes": predicted_bytes(ran.program, options)[: len(rows)].tolist(),
    }
