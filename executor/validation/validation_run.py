"""A validation from its request to its result: plan the strategies, run all plans in turns, predict, and compare."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from executor.checks.program_check import check_program
from executor.lab.wiring import lab_cluster
from executor.probe.probe_run import probe
from executor.probe.probe_settings import ProbeSettings
from executor.program.buckets import largest_bucket_bytes
from executor.run.plan_run import default_stall_s
from executor.runtime.run_options import RunOptions
from executor.supervision.diagnosis import Patience
from executor.supervision.launcher import LaunchSpec, RankHosts, launch, threads_of
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_board import RankRow
from executor.validation.evaluate import evaluated
from executor.validation.planned_variants import PlannedVariants, Variant, plan_variants, variants_of
from executor.validation.validation_job import FinishedRound, ValidationJob, read_rounds
from executor.validation.validation_request import ValidationRequest
from executor.validation.validation_result import Validation
from groundwork.errors import ConfigError
from groundwork.progress import Progress, keeping
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.graph.computation_graph import ComputationGraph
from planner.models.registry import load_model
from planner.strategies.named_strategies import is_searched

_JOIN_BYTES = 2.0**20
"""Gradients are joined into smaller buffers than in other runs: the simulation reduces every layer by itself."""


def validate(
    model: str,
    request: ValidationRequest,
    *,
    hosts: RankHosts | None = None,
    out: Path | None = None,
    progress: Progress | None = None,
) -> Validation:
    """Predict the iteration times of strategies, run them, and compare.

    Args:
        model: Name and parameters of the model.
        request: Strategies, cluster and settings; ``processes`` must be given, as many as the cluster has devices.
        hosts: Hosts of a lab, where the ranks run; here if None.
        out: Folder in which a probed cluster is kept; made if missing.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: A model, strategy, scheme, order or data type is unknown, the processes are not as many as the
            devices, waits stand in for arithmetic without a cluster that says how long they are, or GPUs are
            requested in a lab.
        InfeasiblePlanError: No strategy fits in memory.
        RankFailure: A rank has failed.
        Interrupted: After Ctrl-C, with what the finished rounds measured; before the first, KeyboardInterrupt.
    """
    if request.processes is None:
        raise ConfigError("processes must be given where there is no lab, got none")
    options, load_before = _options(request, request.processes, hosts), load_average()
    graph = load_model(model, batch=request.batch)
    variants = variants_of(
        graph,
        request.strategies,
        request.gradient_sync,
        gradients=request.compress_gradients,
        activations=request.compress_activations,
        orders=request.gradient_sync_orders,
    )
    with scratch_folder() as folder:
        cluster = request.cluster
        if cluster is None:
            cluster = _probed_cluster_file(model, request, options, out or folder, progress)
        job = _Job(
            request=request,
            graph=graph,
            cluster=_cluster(cluster, request.processes, hosts),
            hosts=hosts,
            options=replace(options, out=str(folder)),
            progress=progress,
        )
        return _validated(job, variants, load_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A validation with everything that its request names loaded."""

    request: ValidationRequest
    graph: ComputationGraph
    cluster: DeviceGraph
    hosts: RankHosts | None
    options: RunOptions
    """``out`` is a folder that is gone afterwards."""
    progress: Progress | None

    @property
    def folder(self) -> Path:
        """Folder that the ranks share."""
        return Path(self.options.out)

    @property
    def processes(self) -> int:
        """Number of ranks: one a device of the cluster."""
        return len(self.cluster.devices)


def _options(request: ValidationRequest, processes: int, hosts: RankHosts | None) -> RunOptions:
    """Return how plans are run.

    Raises:
        ConfigError: GPUs are requested in a lab: their messages would pass its network by.
    """
    options = request.run_options
    if hosts is not None:
        if options.device == "cuda":
            raise ConfigError(
                "device must be auto or cpu in a lab, whose network messages between GPUs pass by, got cuda"
            )
        options = replace(options, device="cpu")
    return replace(
        options, threads=threads_of(options.threads, processes), join_bytes=_JOIN_BYTES * (2 / max(processes, 2)) ** 2
    )


def _cluster(name: str, processes: int, hosts: RankHosts | None) -> DeviceGraph:
    """Return the cluster that is planned for: as described, or as a lab makes it."""
    described = load_cluster(name)
    if processes != len(described.devices):
        raise ConfigError(f"processes must be the {len(described.devices)} devices of {name}, got {processes}")
    return described if hosts is None else lab_cluster(described)


def _probed_cluster_file(
    model: str, request: ValidationRequest, options: RunOptions, out: Path, progress: Progress | None
) -> str:
    """Measure this machine, and return the cluster file."""
    if options.stand_in:
        raise ConfigError("cluster must be given where waits stand in for arithmetic: it says how long they are")
    assert request.processes is not None
    settings = ProbeSettings(
        batch=request.batch,
        processes=request.processes,
        # searches use the measured times, so that a probe cannot know their parts
        strategies=tuple(name for name in request.strategies if not is_searched(name)) or ("data",),
        device=options.device,
        threads=options.threads,
        codecs=tuple(sorted({*request.compress_gradients, *request.compress_activations})),
    )
    return str(probe([model], settings, out=out, progress=progress).cluster_file)


def _validated(job: _Job, variants: Sequence[Variant], load_before: str) -> Validation:
    """Plan and run the variants, and compare what was measured with what is predicted."""
    planned = plan_variants(job.graph, job.cluster, variants, job.progress)
    for program in planned.programs.values():
        check_program(program, job.processes)
    stall_s = max(default_stall_s(program) for program in planned.programs.values())
    work = ValidationJob(
        request=job.request,
        programs={name: (planned.programs[name], plan.batch_norm == "reduced") for name, plan in planned.plans.items()},
        types=planned.compressed_types(job.options),
        run=replace(job.options, timeout_s=max(job.options.timeout_s, 2 * stall_s)),
    )
    turns = _TurnProgress(work, job.progress)
    ranks = LaunchSpec(
        module="executor.validation.validation_rank",
        job=work,
        processes=job.processes,
        threads=work.run.threads,
        folder=job.folder,
        hosts=job.hosts,
        patience=Patience(stall_s=stall_s),
    )

    def finished() -> Validation | None:
        rounds = read_rounds(job.folder)
        count = f"{len(rounds)} round{'s' * (len(rounds) != 1)}"
        said = f"Interrupted after {count}; at most {job.request.rounds} were to be run."
        return _compared(job, planned, variants, rounds, load_before, said) if rounds else None

    with keeping(finished):
        launch(ranks, progress=turns.show, task_name=turns.task_name)
    return _compared(job, planned, variants, read_rounds(job.folder), load_before)


def _compared(
    job: _Job,
    planned: PlannedVariants,
    variants: Sequence[Variant],
    rounds: Sequence[FinishedRound],
    load_before: str,
    *said: str,
) -> Validation:
    """Join what was measured in the finished rounds with what the samples between the turns predict."""
    place = rounds[-1].place
    planned = planned.priced_by(rounds[-1].samples, job.folder, place["device"])
    loads = {"load average before": load_before, "load average after": load_average()}
    return Validation(
        model=job.graph.name,
        batch=job.graph.batch,
        cluster=job.cluster.name,
        devices=tuple(job.cluster.devices.names),
        stand_in=job.options.stand_in,
        stand_in_compression=job.options.stand_in_compression,
        lab=job.hosts is not None,
        strategies=tuple(
            evaluated(
                name,
                planned.programs[name],
                [each.measured[name] for each in rounds],
                computed=not job.options.stand_in,
                plain=variant.plain,
            )
            for variant in variants
            if (name := variant.name) in planned.programs
        ),
        refused=planned.refused,
        environment={**environment_of(job.options, job.processes, place), **loads},
        notes=tuple(dict.fromkeys([*said, *(note for plan in planned.plans.values() for note in plan.notes)])),
    )


@dataclass
class _TurnProgress:
    """Progress of a validation, by the status board: the steps of its ranks are turns."""

    job: ValidationJob
    progress: Progress | None
    turn: int = 0

    def show(self, rows: Sequence[RankRow]) -> None:
        """Note which turn it is, and report it."""
        self.turn = max(0, *(row.step for row in rows))
        if self.progress:
            total = self.job.request.rounds * len(self.job.programs)
            self.progress(f"running {self._name}", self.turn, total)

    @property
    def _name(self) -> str:
        turn, place = divmod(self.turn, len(self.job.programs))
        return self.job.order(turn)[place]

    def task_name(self, task: int) -> str:
        """Return what a task of the plan whose turn it is is called."""
        return f"{self.job.programs[self._name][0].name(task)} of {self._name}"


def load_average() -> str:
    """Return the load of the machine over the last 1, 5 and 15 minutes."""
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def environment_of(options: RunOptions, processes: int, place: dict[str, str]) -> dict[str, str]:
    """Return when, where and with what a validation was measured."""
    sizes = options.join_bytes, RunOptions().join_bytes
    joined = [f"{largest_bucket_bytes(size, max(processes, 2)) / 2**20:g}" for size in sizes]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **place,
        "cores": str(len(os.sched_getaffinity(0))),
        "threads per process": str(options.threads),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "gradients joined up to": f"{joined[0]} MiB (orrery run: {joined[1]} MiB)",
        "seed": str(options.seed),
    }
