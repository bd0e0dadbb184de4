"""A validation from its question to its answer: plan, run all plans in turns, predict, join."""

import os
import pickle
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

import torch

from executor.lab import lab_cluster
from executor.measurement import Measurement, read_measurement
from executor.probe import probe
from executor.processes import Hosts, RankRow, launch, scratch_folder, threads_of
from executor.program import longest_bytes
from executor.run import default_stall_s
from executor.runtime import RunOptions, check_program
from executor.validation.evaluate import evaluated
from executor.validation.prediction import with_coding, with_samples
from executor.validation.validation_result import Validation
from executor.validation.validation_spec import (
    Spec,
    check_bounds,
    measurement_path,
    order_of,
    read_place,
    read_samples,
    write_spec,
)
from executor.validation.variants import Variant, variants_of
from hwprofiles import ConfigError, InfeasiblePlanError, Progress
from hwprofiles.catalogue import load_cluster
from hwprofiles.devices import DeviceGraph
from planner.graph import ComputationGraph
from planner.lowering import Program
from planner.models import load_model
from planner.parallel import SEARCHED
from planner.plan import Plan, lower_plan, make_plan
from planner.search import HYBRID

__all__ = ["validate"]

_JOIN_BYTES = 2.0**20
"""Sums of gradients are joined less than in other runs: the simulation sums every layer by itself."""


def validate(
    model: str, *, batch: int, strategies: Sequence[str], processes: int, cluster: str | None = None,
    hosts: Hosts | None = None, run: RunOptions | None = None, rounds: int = 12, turn_s: float = 2.0,
    spread: float = 0.02, budget_s: float = 300.0, gradient_sync: str = "ring", compress_gradients: Sequence[str] = (),
    compress_activations: Sequence[str] = (), gradient_sync_orders: Sequence[str] = (), out: Path | None = None,
    progress: Progress | None = None,
) -> Validation:  # fmt: skip
    """Predict the iteration times of strategies, run them, and compare.

    Args:
        model: Name and parameters of the model.
        batch: Samples in a mini-batch.
        strategies: Names of ``planner.parallel.strategies.strategy_names``, or strategy files.
        processes: Ranks; as many as the cluster has devices.
        cluster: Catalogue entry or file that describes the devices; the wire rates of a lab if there are hosts.  Probed
            if None.
        hosts: Hosts of a lab, where the ranks run; here if None.
        run: How plans are run; its plan, steps, folder and ``join_bytes`` are not read.
        rounds, turn_s, spread, budget_s: As for ``executor.validation.validation_spec.Spec``.
        exchange, compress_gradients, compress_activations, gradient_sync_orders: As for
            ``executor.validation.variants.variants_of``.
        out: Folder in which a probed cluster is kept; made if missing.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: An unknown name, exchange or data type, a bound that is not positive, processes and devices that
            are not equally many, waits to stand in for arithmetic without a cluster that says how long they are, or
            GPUs in a lab.
        InfeasiblePlanError: No strategy fits in memory.
        RankFailure: A rank has failed.
    """
    bounds = _Bounds(rounds=rounds, turn_s=turn_s, spread=spread, budget_s=budget_s)
    check_bounds(**bounds)
    options, before = _options(run, processes, hosts), _load()
    graph = load_model(model, batch=batch)
    variants = variants_of(
        graph, strategies, gradient_sync, gradients=compress_gradients, activations=compress_activations,
        orders=gradient_sync_orders,
    )  # fmt: skip
    with scratch_folder() as folder:
        if cluster is None:
            types = {*compress_gradients, *compress_activations}
            cluster = _probed(model, batch, strategies, processes, options, out or folder, types, progress)
        job = _Job(graph, _cluster(cluster, processes, hosts), hosts, replace(options, out=str(folder)), bounds)
        return _validated(job, variants, before, progress)


class _Bounds(TypedDict):
    """When it is enough, as ``executor.validation.validation_spec.Spec`` says."""

    rounds: int
    turn_s: float
    spread: float
    budget_s: float


@dataclass(frozen=True, slots=True)
class _Job:
    """What is validated, where and for how long."""

    graph: ComputationGraph
    cluster: DeviceGraph
    hosts: Hosts | None
    options: RunOptions
    """``out`` is a folder that is gone afterwards."""
    bounds: _Bounds

    @property
    def processes(self) -> int:
        """As many as the cluster has devices."""
        return len(self.cluster.devices)


def _options(run: RunOptions | None, processes: int, hosts: Hosts | None) -> RunOptions:
    """How plans are run."""
    options = run or RunOptions(plan="")
    if hosts is not None:
        options = _in_lab(options)
    return replace(
        options, threads=threads_of(options.threads, processes), join_bytes=_JOIN_BYTES * (2 / max(processes, 2)) ** 2
    )


def _cluster(name: str, processes: int, hosts: Hosts | None) -> DeviceGraph:
    """What is planned for: the cluster as described, or as a lab makes it."""
    described = load_cluster(name)
    if processes != len(described.devices):
        raise ConfigError(f"processes must be the {len(described.devices)} devices of {name}, got {processes}")
    return described if hosts is None else lab_cluster(described)


def _validated(job: _Job, variants: Sequence[Variant], load_before: str, progress: Progress | None) -> Validation:
    """Plan, run, and join what was measured with what the samples between the turns predict."""
    plans, refused = _plans(job.graph, job.cluster, variants, progress)
    programs = {name: lower_plan(plan, job.graph, job.cluster) for name, plan in plans.items()}
    for program in programs.values():
        check_program(program, job.processes)
    stall_s = max(default_stall_s(program) for program in programs.values())
    options, folder = replace(job.options, timeout_s=max(job.options.timeout_s, 2 * stall_s)), Path(job.options.out)
    paths = _saved(plans, programs, folder)
    spec = Spec(plans=paths, types=_types(programs, options), run=options, **job.bounds)
    measured = _measured(spec, programs, folder, job.processes, job.hosts, stall_s, progress)
    place = read_place(spec)
    programs = _sampled(spec, plans, programs, job, place["device"])
    loads = {"load average before": load_before, "load average after": _load()}
    return Validation(
        model=job.graph.name,
        batch=job.graph.batch,
        cluster=job.cluster.name,
        devices=tuple(device.name for device in job.cluster.devices),
        stand_in=options.stand_in,
        stand_in_codes=options.stand_in_codes,
        lab=job.hosts is not None,
        strategies=tuple(
            evaluated(name, programs[name], measured[name], computed=not options.stand_in, plain=variant.plain)
            for variant in variants
            if (name := variant.name) in programs
        ),
        refused=refused,
        environment={**_environment(options, job.processes, place), **loads},
        notes=tuple(dict.fromkeys(note for plan in plans.values() for note in plan.notes)),
    )


def _sampled(
    spec: Spec, plans: Mapping[str, Plan], programs: Mapping[str, Program], job: _Job, device: str
) -> dict[str, Program]:
    """The programs with the times that were sampled between their turns, of arithmetic and of coding."""
    found = dict(programs)
    for number, (name, plan) in enumerate(plans.items()):
        samples = read_samples(spec, name)
        if samples.coding:
            coded = with_coding(job.cluster, samples.coding, Path(job.options.out) / f"coding-{number}", device)
            found[name] = lower_plan(plan, job.graph, coded)
        found[name] = with_samples(found[name], samples.parts)
    return found


def _in_lab(options: RunOptions) -> RunOptions:
    """Ranks on processors: between GPUs of one machine, messages would pass the lab's network by."""
    if options.device == "cuda":
        raise ConfigError("device must be auto or cpu in a lab, whose network messages between GPUs pass by, got cuda")
    return replace(options, device="cpu")


def _probed(
    model: str, batch: int, strategies: Sequence[str], processes: int, options: RunOptions, out: Path,
    types: Collection[str], progress: Progress | None,
) -> str:  # fmt: skip
    """Measure this machine; returns the cluster file."""
    if options.stand_in:
        raise ConfigError("cluster must be given where waits stand in for arithmetic: it says how long they are")
    searched = ("layerwise", HYBRID)
    known = [name for name in strategies if name not in searched] or ["data"]
    return str(
        probe(
            [model], batch=batch, processes=processes, out=out, strategies=known, device=options.device,
            threads=options.threads, codings=sorted(types), progress=progress,
        ).cluster_file
    )  # fmt: skip


def _plans(
    graph: ComputationGraph, cluster: DeviceGraph, variants: Sequence[Variant], progress: Progress | None
) -> tuple[dict[str, Plan], dict[str, str]]:
    plans: dict[str, Plan] = {}
    refused: dict[str, str] = {}
    for done, variant in enumerate(variants):
        if progress:
            progress(f"planning {variant.name}", done, len(variants))
        if variant.order != "end" and variant.strategy in SEARCHED:
            refused[variant.name] = "its search knows no order of sums"
            continue
        if variant.compressed and variant.strategy == "layerwise":
            refused[variant.name] = "its search knows no compression"
            continue
        try:
            plans[variant.name] = make_plan(
                graph,
                cluster,
                strategy=variant.strategy,
                gradient_sync=variant.gradient_sync,
                gradient_sync_order=variant.order,
                compressed=variant.compressed,
            )
        except InfeasiblePlanError as error:
            refused[variant.name] = str(error)
    if not plans:
        raise InfeasiblePlanError("; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "no strategy")
    return plans, refused


def _saved(plans: dict[str, Plan], programs: dict[str, Program], folder: Path) -> dict[str, str]:
    """Programs as they are run, with whose statistics normalise: ranks start sooner without the planner."""
    paths = {name: folder / f"plan-{number}.pickle" for number, name in enumerate(plans)}
    for name, plan in plans.items():
        paths[name].write_bytes(pickle.dumps((programs[name], plan.batch_norm == "reduced")))
    return {name: str(path) for name, path in paths.items()}


def _types(programs: dict[str, Program], options: RunOptions) -> dict[str, tuple[str, ...]]:
    """By plan, the types that are really encoded, if any."""
    kinds = {name: (program.compressed.gradients, program.compressed.activations) for name, program in programs.items()}
    used = {name: tuple(dict.fromkeys(kind for kind in pair if kind)) for name, pair in kinds.items()}
    return {name: types for name, types in used.items() if types and not options.stand_in_codes}


def _measured(
    spec: Spec,
    programs: dict[str, Program],
    folder: Path,
    processes: int,
    hosts: Hosts | None,
    stall_s: float,
    progress: Progress | None,
) -> dict[str, list[Measurement]]:
    """Run all plans in turns; what was measured, by strategy."""
    seen = _Seen(spec, programs, progress)
    write_spec(spec, folder / "spec.json")
    launch(
        "executor.validation.validation_rank", [str(folder / "spec.json")], processes=processes,
        threads=spec.run.threads,
        folder=folder, hosts=hosts, stall_s=stall_s, progress=seen.look, task_name=seen.task_name,
    )  # fmt: skip
    paths = {name: [measurement_path(spec, name, turn) for turn in range(spec.rounds)] for name in spec.plans}
    return {name: [read_measurement(path) for path in rows if path.exists()] for name, rows in paths.items()}


@dataclass
class _Seen:
    """What the status board says, in the words of the validation: its steps are turns."""

    spec: Spec
    programs: dict[str, Program]
    progress: Progress | None
    turn: int = 0

    def look(self, rows: Sequence[RankRow]) -> None:
        """Note which turn it is, and tell."""
        self.turn = max(0, *(row.step for row in rows))
        if self.progress:
            total = self.spec.rounds * len(self.spec.plans)
            self.progress(f"running {self._name}", self.turn, total)

    @property
    def _name(self) -> str:
        turn, place = divmod(self.turn, len(self.spec.plans))
        return order_of(self.spec, turn)[place]

    def task_name(self, task: int) -> str:
        """A task of the plan whose turn it is."""
        return f"{self.programs[self._name].name(task)} of {self._name}"


def _load() -> str:
    return " ".join(f"{load:.2f}" for load in os.getloadavg())


def _environment(options: RunOptions, processes: int, place: dict[str, str]) -> dict[str, str]:
    """When and where it was measured; the place is what the ranks say of it."""
    sizes = options.join_bytes, RunOptions(plan="").join_bytes
    joined = [f"{longest_bytes(size, max(processes, 2)) / 2**20:g}" for size in sizes]
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
