"""Runs of a plan: by local processes that are started and watched, or by those that torchrun has started."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from executor.measurement import MEASUREMENT, Measurement, read_measurement
from executor.processes import Hosts, RankRow, launch, loss_of, reporter, scratch_folder, threads_of
from executor.runtime import RunOptions, check_program, program_of, write_options
from hwprofiles import Progress
from planner.lowering import Program
from planner.plan import Plan, load_plan
from planner.simulation import Replay, replay

__all__ = ["Hosts", "PlanRun", "default_stall_s", "run_plan"]

LEAST_STALL_S = 20.0
TASKS_IN_STALL = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanRun:
    """A plan that was run."""

    plan: Plan
    program: Program
    measurement: Measurement

    @property
    def images_per_s(self) -> float:
        """Samples a second, from the median iteration."""
        return self.plan.batch / self.measurement.iteration_s

    @cached_property
    def replayed(self) -> Replay:
        """The same program on the model of its cluster."""
        return replay(self.program)


def default_stall_s(program: Program) -> float:
    """Seconds of silence after which a rank is taken to hang: 20, or 5 times the longest predicted task if more."""
    schedule = replay(program, iterations=1).schedule
    return max(LEAST_STALL_S, TASKS_IN_STALL * float(np.max(schedule.end_s - schedule.ready_s)))


def run_plan(
    options: RunOptions,
    *,
    processes: int | None = None,
    hosts: Hosts | None = None,
    stall_s: float | None = None,
    progress: Progress | None = None,
) -> PlanRun:
    """Run a plan with one local process a rank.

    Args:
        options: Plan, data, optimizer and the rest.
        processes: Ranks to start; rank r is device r of the plan, and None starts as many as it has.
        hosts: Where they are started; here if None.
        stall_s: Silence after which a rank is taken to hang, longer than any task; ``default_stall_s`` if None.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The plan needs more devices than processes, was made for another model, or asks for what is
            not here; the data or the checkpoint do not fit.
        InfeasiblePlanError: The plan does not fit in memory.
        RankFailure: A rank died, hung, ran out of memory or met a loss that is not finite.
    """
    plan = load_plan(Path(options.plan))
    program = program_of(plan)
    if processes is None:
        processes = 1 + max(int(space.devices.max()) for space in program.spaces)
    threads = threads_of(options.threads, processes)
    check_program(program, processes)
    stall_s = default_stall_s(program) if stall_s is None else stall_s
    with scratch_folder() as folder:
        out = Path(options.out or folder)
        out.mkdir(parents=True, exist_ok=True)
        written = folder / "options.json"
        # The supervisor sees a silent rank first, and who is to blame.
        timeout_s = max(options.timeout_s, 2 * stall_s)
        write_options(replace(options, threads=threads, out=str(out), timeout_s=timeout_s), written)
        # Lowered once: ranks start sooner without the planner.
        lowered = folder / "program.pickle"
        lowered.write_bytes(pickle.dumps((program, plan.batch_norm == "reduced")))
        launch(
            "executor.run.rank_entry",
            [str(written), str(lowered)],
            processes=processes,
            threads=threads,
            folder=folder,
            hosts=hosts,
            stall_s=stall_s,
            progress=reporter(progress, _label, options.steps),
            task_name=program.name,
            log_folder=Path(options.out) / "log" if options.out else None,
        )
        return PlanRun(plan=plan, program=program, measurement=read_measurement(out / MEASUREMENT))


def _label(rows: Sequence[RankRow]) -> str:
    """The loss, and the speed of the slowest rank."""
    label = loss_of(rows)
    return label if label == "starting" else f"{label}, {min(row.images_per_s for row in rows):.4g} images/s"
