"""A probe run by processes of its own: started, supervised, and their measurements written to files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from executor.probe.probe_request import Portion, ProbeRequest, ProbeResult, portions_of
from executor.probe.probe_settings import ProbeSettings
from executor.probe.probed_cluster import cluster_content, gpu_topology, topology_content, write_cluster
from executor.probe.probed_profile import write_profile
from executor.runtime.devices import device_of
from executor.supervision.diagnosis import Patience
from executor.supervision.launcher import LaunchSpec, launch, threads_of
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_board import RankRow, reporter
from groundwork.input_files import reserved_output
from groundwork.progress import Progress

CLUSTER, PROFILE = "cluster.yaml", "profile.yaml"
_STALL_S = 120.0
"""Silence after which a rank is taken to hang: a single kernel of a large layer on one core may take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """Measurements of a probe, and the files that hold them."""

    cluster_file: Path
    """File for ``load_cluster``; its devices name the profile by its absolute path."""
    profile_file: Path
    """File for ``load_profile``."""
    summary: ProbeResult
    """Samples of all parts, the device, and the links."""


def probe(
    models: Sequence[str],
    settings: ProbeSettings,
    *,
    out: Path,
    progress: Progress | None = None,
) -> Probed:
    """Measure the parts of models' layers and the links between processes, and write both as files.

    As many processes as will train compute the same parts at the same time, so that they share caches, memory and
    clock as in training; times are medians over them.

    Args:
        models: Names with parameters, as for ``load_model``.
        settings: Parts, processes and samples.
        out: Folder for ``cluster.yaml`` and ``profile.yaml``; made if missing.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: A model or strategy is unknown, there are too many parts, or this machine has no such device.
        RankFailure: A rank died, hung or ran out of memory.
        OSError: The files cannot be written.
    """
    threads = threads_of(settings.threads, settings.processes)
    request = ProbeRequest(models=tuple(models), settings=replace(settings, threads=threads))
    if settings.device != "auto":
        device_of(settings.device, settings.processes - 1)
    with reserved_output((out / PROFILE).resolve()), reserved_output((out / CLUSTER).resolve()):
        work = portions_of(request)
        out.mkdir(parents=True, exist_ok=True)
        with scratch_folder() as folder:
            ranks = LaunchSpec(
                module="executor.probe.probe_rank",
                job=request,
                processes=settings.processes,
                threads=threads,
                folder=folder,
                patience=Patience(stall_s=_STALL_S),
            )
            result = launch(
                ranks,
                progress=reporter(progress, lambda rows: _label(rows, work), len(work) + 1),
                task_name=lambda task: _part_name(work, task),
            )
        return _written(result, out, request)


def _written(result: ProbeResult, out: Path, request: ProbeRequest) -> Probed:
    """Write the compute profile and the cluster file."""
    profile, cluster = (out / PROFILE).resolve(), (out / CLUSTER).resolve()
    processes = request.settings.processes
    note = f"{processes} processes computing at the same time, batch {request.settings.batch}"
    write_profile(result.rows, profile, device=result.device, codecs=result.codecs, note=note)
    links, facts, name = result.links, result.device, f"{out.resolve().name or 'probed'}"
    local = len(set(links.machines)) == 1 and "NCCL" in facts.software
    topology = gpu_topology(facts, str(profile), processes) if local else None
    if topology is None:
        content = cluster_content(links, str(profile), facts, name)
    else:
        content = topology_content(topology, links, facts, name)
    write_cluster(cluster, content)
    return Probed(cluster_file=cluster, profile_file=profile, summary=result)


def _part_name(work: Sequence[Portion], task: int) -> str:
    """Return a description of a part, by its number among all parts."""
    portion = next(row for row in reversed(work) if row.first <= task)
    part = portion.parts[task - portion.first]
    return f"{part.layers[0]} of {portion.graph.name}, part {' x '.join(map(str, part.sizes))}"


def _label(rows: Sequence[RankRow], work: Sequence[Portion]) -> str:
    """Return a description of what the ranks measure now."""
    task = max(row.task for row in rows)
    if rows[0].step >= len(work):
        return "data types and links"
    return _part_name(work, task) if task >= 0 else "starting"
