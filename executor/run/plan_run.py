"""A run of a plan by local processes, which are started here and supervised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from executor.checks.program_check import check_program
from executor.measurement.measured_run import MEASUREMENT, Measurement
from executor.rendezvous.rank_environment import RankEnvironment, local_ranks
from executor.run.input_check import check_inputs
from executor.runtime.run_options import RunOptions
from executor.supervision.diagnosis import Patience
from executor.supervision.launcher import LaunchSpec, RankHosts, launch, threads_of
from executor.supervision.other_supervisors import OtherSupervisors
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_board import RankRow, loss_of, reporter
from groundwork.progress import Progress
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.lowering.program import Program
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
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
        measured: File for what is measured; in the folder of ``options.out``, if that is given, if None.
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
    patience = Patience(stall_s=default_stall_s(program) if stall_s is None else stall_s)
    measurement = _measured(
        options, plan, program, progress, processes=processes, threads=threads, patience=patience, hosts=hosts
    )
    assert measurement is not None
    _keep(measurement, options, measured)
    return PlanRun(plan=plan, program=program, measurement=measurement)


def run_rank_of_plan(
    options: RunOptions,
    where: RankEnvironment,
    *,
    stall_s: float | None = None,
    measured: Path | None = None,
    progress: Progress | None = None,
) -> PlanRun | None:
    """Run one rank of a plan, together with processes that do so for the other ranks; arguments as for ``run_plan``.

    Returns:
        On rank 0 the plan with everything that all ranks measured; elsewhere None.
    """
    plan = load_plan(Path(options.plan))
    program = program_of(plan)
    check_program(program, where.ranks)
    patience = Patience(stall_s=default_stall_s(program) if stall_s is None else stall_s)
    threads = threads_of(options.threads, local_ranks(where))
    others = OtherSupervisors(where, patience)
    measurement = _measured(
        options, plan, program, progress, processes=1, threads=threads, patience=patience, others=others
    )
    if measurement is None:
        return None
    _keep(measurement, options, measured)
    return PlanRun(plan=plan, program=program, measurement=measurement)


def _measured(
    options: RunOptions,
    plan: Plan,
    program: Program,
    progress: Progress | None,
    *,
    processes: int,
    threads: int,
    patience: Patience,
    hosts: RankHosts | None = None,
    others: OtherSupervisors | None = None,
) -> Measurement | None:
    """Run the ranks that are started here, and return what all measured, None where rank 0 is started elsewhere."""
    # Twice the stall time: the supervisor then sees the silent rank before messages time out on the others.
    timeout_s = max(options.timeout_s, 2 * patience.stall_s)
    with scratch_folder() as folder:
        measurement: Measurement | None = launch(
            LaunchSpec(
                module="executor.run.rank_entry",
                # Lowered once: ranks start sooner without the planner.
                job=(replace(options, threads=threads, timeout_s=timeout_s), program, plan.batch_norm == "reduced"),
                processes=processes,
                threads=threads,
                folder=folder,
                hosts=hosts,
                others=others,
                patience=patience,
                log_folder=Path(options.out) / "log" if options.out else None,
            ),
            progress=reporter(progress, lambda rows: _label(rows, program), options.steps),
            task_name=program.name,
        )
    return measurement


def _keep(measurement: Measurement, options: RunOptions, measured: Path | None) -> None:
    """Write what was measured to its file; nothing where neither a file nor a folder is given."""
    if measured or options.out:
        measurement.write(measured or Path(options.out) / MEASUREMENT)


def _label(rows: Sequence[RankRow], program: Program) -> str:
    """Return the loss, and the speed of the slowest rank."""
    label, samples_per_s = loss_of(rows), min(row.samples_per_s for row in rows)
    return label if label == "starting" else f"{label}, {samples_per_s:.4g} {program.graph.samples_are}/s"


def program_of(plan: Plan) -> Program:
    """Lower a plan on its model and cluster, with collectives as activities.

    Raises:
        ConfigError: The plan was made for another model.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    graph = load_model(plan.model, batch=plan.batch, element_bytes=plan.element_bytes)
    return lower_plan(plan, graph, load_cluster(plan.cluster))
