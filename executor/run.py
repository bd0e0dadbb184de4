"""Runs of a plan by local processes: checked first, watched to their end, measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from executor.data import load_data
from executor.devices import device_of
from executor.launch import Hosts, launch, scratch_folder, threads_of
from executor.measurement import Measurement, read_measurement
from executor.options import RunOptions, write_options
from executor.rank import MEASUREMENT, program_of
from executor.resume import Checkpoints
from executor.session import DTYPES, check_program
from executor.status import RankRow
from hwprofiles.errors import ConfigError
from planner.plan import Plan
from planner.plan_file import load_plan
from planner.program import Program

__all__ = ["Hosts", "Run", "run"]

Progress = Callable[[str, int, int], None] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """A plan that was run."""

    plan: Plan
    program: Program
    measurement: Measurement

    @property
    def images_per_s(self) -> float:
        """Samples a second, from the median iteration."""
        return self.plan.batch / self.measurement.iteration_s


def run(
    options: RunOptions,
    *,
    processes: int,
    hosts: Hosts | None = None,
    stall_s: float = 20.0,
    progress: Progress = None,
) -> Run:
    """Run a plan with one local process a rank.

    Args:
        options: Plan, data, optimizer and the rest.
        processes: Ranks to start; rank r is device r of the plan.
        hosts: Where they are started; here if None.
        stall_s: Silence after which a rank is taken to hang; longer than any task.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The plan needs more devices than processes, was made for another model, or asks for what is
            not here; the data or the checkpoint do not fit.
        InfeasiblePlanError: The plan does not fit in memory.
        RankFailure: A rank died, hung, ran out of memory or met a loss that is not finite.
    """
    threads = threads_of(options.threads, processes)
    plan = load_plan(Path(options.plan))
    program = program_of(plan)
    check_program(program, processes)
    _check(options, program, processes)
    with scratch_folder() as folder:
        out = Path(options.out or folder)
        out.mkdir(parents=True, exist_ok=True)
        (out / MEASUREMENT).unlink(missing_ok=True)
        written = folder / "options.json"
        write_options(replace(options, threads=threads, out=str(out), plan=str(Path(options.plan).resolve())), written)
        launch(
            "executor.rank",
            [str(written)],
            processes=processes,
            threads=threads,
            folder=folder,
            hosts=hosts,
            stall_s=stall_s,
            progress=_reporter(progress, options.steps),
            task_name=program.name,
            log_folder=Path(options.out) / "log" if options.out else None,
        )
        if not (out / MEASUREMENT).exists():
            raise ConfigError(f"steps must be more than the checkpoint has behind it, got {options.steps}")
        return Run(plan=plan, program=program, measurement=read_measurement(out / MEASUREMENT))


def _check(options: RunOptions, program: Program, processes: int) -> None:
    """Find here what every rank would stumble over."""
    if options.device == "cuda":
        device_of("cuda", processes - 1)
    if not options.stand_in:
        dtype = DTYPES[program.graph.element_bytes]
        load_data(options.data, program.graph, seed=options.seed, dtype=dtype, device="cpu")
    if options.resume:
        Checkpoints(options, program.graph).latest_step()


def _reporter(progress: Progress, steps: int) -> Callable[[Sequence[RankRow]], None] | None:
    if progress is None:
        return None
    report = progress

    def show(rows: Sequence[RankRow]) -> None:
        done = min(row.step for row in rows)
        losses = [row.loss for row in rows if not math.isnan(row.loss)]
        label = "starting"
        if done > 0 and losses:
            label = f"loss {sum(losses):.4g}, {min(row.images_per_s for row in rows):.4g} images/s"
        report(label, max(done, 0), steps)

    return show
