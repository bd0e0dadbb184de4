"""A run of a plan by local processes, which are started here and supervised."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from executor.checks.program_check import check_program
from executor.measurement.measured_run import MEASUREMENT, Measurement, read_measurement
from executor.processes.launcher import LaunchSpec, RankHosts, launch, threads_of
from executor.processes.scratch_folders import scratch_folder
from executor.processes.status_board import RankRow
from executor.processes.status_progress import loss_of, reporter
from executor.run.input_check import check_inputs
from executor.runtime.lowered_programs import program_of
from executor.runtime.run_options import RunOptions, write_options
from groundwork.progress import Progress
from planner.lowering.program import Program
from planner.plan.plan import Plan
from planner.plan.plan_file import load_plan
from planner.simulation.program_replay import Replay, replay

LEAST_STALL_S = 20.0
"""Shortest silence after which a rank is taken to hang."""
TASKS_IN_STALL = 5
"""Predicted lengths of the longest task after which a rank is taken to hang."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanRun:
    """Plan that was run, with its measurement."""

    plan: Plan
    program: Program
    measurement: Measurement

    @property
    def samples_per_s(self) -> float:
        """Samples per second of the median iteration."""
        return self.plan.batch / self.measurement.iteration_s

    @cached_property
    def replayed(self) -> Replay:
        """Simulation of the same program on the model of its cluster."""
        return replay(self.program)


def default_stall_s(program: Program) -> float:
    """Return the silence after which a rank is taken to hang: 20 s, or 5 times the longest predicted task if more."""
    schedule = replay(program, iterations=1).schedule
    return max(LEAST_STALL_S, TASKS_IN_STALL * float(np.max(schedule.end_s - schedule.ready_s)))


def run_plan(
    options: RunOptions,
    *,
    processes: int | None = None,
    hosts: RankHosts | None = None,
    stall_s: float | None = None,
    measured: Path | None = None,
    progress: Progress | None = None,
) -> PlanRun:
    """Run a plan with one local process a rank.

    Args:
        options: Plan, data, optimizer and other settings.
        processes: Ranks to start; rank r is device r of the plan, and None starts as many as it has.
        hosts: Hosts that they are started on; this machine if None.
        stall_s: Silence after which a rank is taken to hang, in seconds, longer than any task; ``default_stall_s`` if
            None.
        measured: File for what is measured; in the folder of ``options.out`` if None.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        The plan with everything that all ranks measured.

    Raises:
        ConfigError: The plan needs more devices than processes, was made for another model, or needs what this
            machine does not have; the data or the checkpoint do not fit.
        InfeasiblePlanError: The plan does not fit in memory.
        RankFailure: A rank died, hung, ran out of memory or met a loss that is not finite.
    """
    plan = load_plan(Path(options.plan))
    program = program_of(plan)
    if processes is None:
        processes = 1 + max(int(space.devices.max()) for space in program.spaces)
    threads = threads_of(options.threads, processes)
    check_program(program, processes)
    check_inputs(options, program.graph, processes)
    stall_s = default_stall_s(program) if stall_s is None else stall_s
    with scratch_folder() as folder:
        out = Path(options.out or folder)
        out.mkdir(parents=True, exist_ok=True)
        measured = (measured or out / MEASUREMENT).absolute()
        written = folder / "options.json"
        # Twice the stall time: the supervisor then sees the silent rank before messages time out on the others.
        timeout_s = max(options.timeout_s, 2 * stall_s)
        write_options(replace(options, threads=threads, out=str(out), timeout_s=timeout_s), written)
        # Lowered once: ranks start sooner without the planner.
        lowered = folder / "program.pickle"
        lowered.write_bytes(pickle.dumps((program, plan.batch_norm == "reduced")))
        ranks = LaunchSpec(
            module="executor.run.rank_entry",
            arguments=[str(written), str(lowered), str(measured)],
            processes=processes,
            threads=threads,
            folder=folder,
            hosts=hosts,
            stall_s=stall_s,
            log_folder=Path(options.out) / "log" if options.out else None,
        )
        launch(
            ranks,
            progress=reporter(progress, lambda rows: _label(rows, program), options.steps),
            task_name=program.name,
        )
        return PlanRun(plan=plan, program=program, measurement=read_measurement(measured))


def _label(rows: Sequence[RankRow], program: Program) -> str:
    """Return the loss, and the speed of the slowest rank."""
    label, samples_per_s = loss_of(rows), min(row.samples_per_s for row in rows)
    return label if label == "starting" else f"{label}, {samples_per_s:.4g} {program.graph.samples_are}/s"
