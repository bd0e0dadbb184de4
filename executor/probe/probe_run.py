"""Probing by processes of its own: started, watched, and what they found written to files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from executor.probe.codec_probe import CODED_TYPES
from executor.probe.probe_request import ANSWER, Portion, ProbeAnswer, ProbeRequest, portions_of, read_answer, write
from executor.probe.probed_cluster import cluster_content, gpu_topology, topology_content, write_cluster
from executor.probe.probed_profile import write_profile
from executor.processes import Hosts, RankRow, launch, reporter, scratch_folder, threads_of
from executor.runtime import device_of
from hwprofiles import Progress

__all__ = ["Probed", "probe"]

CLUSTER, PROFILE = "cluster.yaml", "profile.yaml"
STALL_S = 120.0
"""A single kernel of a large layer on one core may take long."""
_LEAST = 5
_PORTION_BYTES = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What was measured, and the files that hold it."""

    cluster_file: Path
    """For ``load_cluster``; its devices name the profile by its absolute path."""
    profile_file: Path
    """For ``load_profile``."""
    summary: ProbeAnswer
    """Samples of all parts, the device, and the links."""


def probe(
    models: Sequence[str],
    *,
    batch: int,
    processes: int,
    out: Path,
    strategies: Sequence[str] = ("data", "model", "owt", "spatial"),
    device: str = "auto",
    threads: int = 0,
    repetitions: int = 25,
    uncertainty: float = 0.01,
    max_parts: int = 400,
    codings: Sequence[str] = CODED_TYPES,
    hosts: Hosts | None = None,
    stall_s: float = STALL_S,
    progress: Progress | None = None,
) -> Probed:
    """Measure the parts of models' layers and the links between processes, and write both as files.

    As many processes as will train compute the same parts at the same time, so that they share caches, memory and
    clock as in training; times are medians over them.

    Args:
        models: Names with parameters, as for ``load_model``.
        batch: Samples in a mini-batch, all ranks.
        processes: Ranks to start.
        out: Folder for ``cluster.yaml`` and ``profile.yaml``; made if missing.
        strategies: Whose parts are measured, by name or file; ``all`` among them: every configuration that divides.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: Threads that a rank computes with; 0: the machine's cores, shared equally.
        repetitions: Samples of every part at most; at least 5 are taken.
        uncertainty: Share of the median at which the standard error of a sample's total is small enough to stop.
        max_parts: Most parts of one model.
        codings: Data types whose encoding and decoding are measured.
        hosts: Where ranks are started; here if None.
        stall_s: Silence after which a rank is taken to hang.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: A model, strategy or number breaks a rule, or there is no such device here.
        RankFailure: A rank died, hung or ran out of memory.
        OSError: The files cannot be written.
    """
    request = ProbeRequest(
        models=tuple(models), batch=batch, strategies=tuple(strategies), processes=processes, device=device,
        threads=threads_of(threads, processes), least=min(_LEAST, repetitions), most=repetitions,
        uncertainty=uncertainty, max_parts=max_parts, portion_bytes=_PORTION_BYTES,
        codings=tuple(codings),
    )  # fmt: skip
    if device != "auto":
        device_of(device, processes - 1)
    work = portions_of(request)
    out.mkdir(parents=True, exist_ok=True)
    return _written(_answer(request, work, hosts, stall_s, progress), out, request)


def _answer(
    request: ProbeRequest, work: Sequence[Portion], hosts: Hosts | None, stall_s: float, progress: Progress | None
) -> ProbeAnswer:
    """Start the ranks; what they have found."""
    with scratch_folder() as folder:
        write(request, folder / "request.json")
        launch(
            "executor.probe.probe_rank",
            [str(folder / "request.json")],
            processes=request.processes,
            threads=request.threads,
            folder=folder,
            hosts=hosts,
            stall_s=stall_s,
            progress=reporter(progress, lambda rows: _label(rows, work), len(work) + 1),
            task_name=lambda task: _name(work, task),
        )
        return read_answer(folder / ANSWER)


def _written(answer: ProbeAnswer, out: Path, request: ProbeRequest) -> Probed:
    profile, cluster = (out / PROFILE).resolve(), (out / CLUSTER).resolve()
    note = f"{request.processes} processes computing at the same time, batch {request.batch}"
    write_profile(answer.rows, profile, device=answer.device, coding=answer.coding, note=note)
    links, facts, name = answer.links, answer.device, f"{out.resolve().name or 'probed'}"
    local = len(set(links.machines)) == 1 and "NCCL" in facts.software
    topology = gpu_topology(facts, str(profile), request.processes) if local else None
    if topology is None:
        content = cluster_content(links, str(profile), facts, name)
    else:
        content = topology_content(topology, links, facts, name)
    write_cluster(cluster, content)
    return Probed(cluster_file=cluster, profile_file=profile, summary=answer)


def _name(work: Sequence[Portion], task: int) -> str:
    """What a part is called."""
    portion = next(row for row in reversed(work) if row.first <= task)
    part = portion.parts[task - portion.first]
    return f"{part.layers[0]} of {portion.graph.name}, part {' x '.join(map(str, part.sizes))}"


def _label(rows: Sequence[RankRow], work: Sequence[Portion]) -> str:
    """What is measured now."""
    task = max(row.task for row in rows)
    if rows[0].step >= len(work):
        return "data types and links"
    return _name(work, task) if task >= 0 else "starting"
