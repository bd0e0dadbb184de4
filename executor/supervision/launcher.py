"""Start of the ranks of a job, whatever the job is."""

import os
import pickle
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from executor.rendezvous.rank_environment import (
    INTERFACE_VARIABLE,
    NO_SECRET_VARIABLE,
    SECRET_VARIABLE,
    held_port,
    local_environment,
)
from executor.supervision.diagnosis import Patience
from executor.supervision.other_supervisors import OtherSupervisors
from executor.supervision.status_board import RankRow, StatusBoard
from executor.supervision.supervisor import supervise
from groundwork.errors import ConfigError
from simulator.graph.memory_need import check_free_memory

KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2 * 2**30)}
"""Settings with which glibc keeps the memory that tensors release for the next step.

By default it returns large blocks to the system, which clears every page again: filling 32 MB of new tensors on one
core took 26 ms, in kept memory 3 ms.
"""
RESULT = "result"
"""Name of the file, beside that of the job, in which rank 0 leaves what it returns."""

_SECRET_BYTES = 32
_RANK_BYTES = 140 * 2**20
"""Memory of a rank of its own before it holds a tensor: of 148 MiB measured, as another torch may take less."""
_RANK_THREADS = 8
"""Threads that a rank starts, but for those that compute."""


class RankHosts(Protocol):
    """Hosts that ranks are started on in place of this machine."""

    def command(self, rank: int, command: Sequence[str]) -> Sequence[str]:
        """Return the command that runs another command on the host of a rank."""
        ...

    def environment(self, rank: int) -> Mapping[str, str]:
        """Return the environment variables that a rank needs there to find the others."""
        ...


def threads_of(threads: int, processes: int) -> int:
    """Return the threads of each of a machine's processes.

    Args:
        threads: Requested number; 0 shares the machine's cores equally.
        processes: Number of processes.

    Raises:
        ConfigError: There is no process.
    """
    if processes < 1:
        raise ConfigError(f"processes must be >= 1, got {processes}")
    return threads or max(len(os.sched_getaffinity(0)) // processes, 1)


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """The local ranks of a job: what each runs, where, and how long it may be silent."""

    module: str
    """Module that every rank runs, as ``python -m MODULE FILE``: it calls ``executor.supervision.rank_work.serve_job``,
    and finds its rank in the environment."""
    job: Any
    """What all ranks get, in a file."""
    processes: int
    threads: int
    folder: Path
    hosts: RankHosts | None = None
    """Hosts that the ranks are started on; this machine if None."""
    others: OtherSupervisors | None = None
    """Supervisors of the other ranks, where this process is one of several that each start a rank."""
    patience: Patience = field(default_factory=Patience)
    log_folder: Path | None = None
    """Folder for ``rank-0.log`` and so on, with what the ranks print; they are not kept if None."""


def launch(
    spec: LaunchSpec,
    *,
    progress: Callable[[Sequence[RankRow]], None] | None = None,
    task_name: Callable[[int], str] = str,
) -> Any:
    """Run a job with one process a rank; return what rank 0 has made of it when all have finished.

    Raises:
        InfeasiblePlanError: So many processes do not fit in memory.
        RuntimeError: The system does not let so many processes start threads.
        RankFailure: A rank has failed; the others have been ended.
    """
    check_free_memory(spec.processes * _RANK_BYTES, f"{spec.processes:,} processes")
    # Start and end as many threads as the ranks will: where that fails, ranks fail too, in many ways or not at all.
    gate = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(spec.processes * (_RANK_THREADS + spec.threads)):
            started.append(threading.Thread(target=gate.wait))
            started[-1].start()
    except RuntimeError:
        started.pop()
        raise
    finally:
        gate.set()
        for thread in started:
            thread.join()
    job = spec.folder / "job"
    job.write_bytes(pickle.dumps(spec.job))
    command = [sys.executable, "-m", "executor.supervision.lifeline", spec.module, str(job)]
    commands: list[Sequence[str]] = [command] * spec.processes
    with held_port() as port:  # the ranks take seconds to come to it
        environments = _environments(spec, port)
        if spec.hosts is not None:
            environments = [{**row, **spec.hosts.environment(rank)} for rank, row in enumerate(environments)]
            commands = [spec.hosts.command(rank, command) for rank in range(spec.processes)]
        supervise(
            commands,
            environments=environments,
            board=StatusBoard.create(spec.folder / "status", spec.others.ranks if spec.others else spec.processes),
            patience=spec.patience,
            progress=progress,
            task_name=task_name,
            log_folder=spec.log_folder,
            others=spec.others,
        )
    result = job.with_name(RESULT)
    return pickle.loads(result.read_bytes()) if result.exists() else None


def _environments(spec: LaunchSpec, port: int) -> list[dict[str, str]]:
    """Return the variables of every rank; on several hosts ranks have a secret of their own."""
    if spec.others:  # in the environment that its launcher has made
        return [KEPT_MEMORY]
    # empty ones too: those of this process are for ranks that others start
    network = dict.fromkeys((INTERFACE_VARIABLE, SECRET_VARIABLE, NO_SECRET_VARIABLE), "")
    if spec.hosts is not None:
        handle, network[SECRET_VARIABLE] = tempfile.mkstemp(prefix="secret-", dir=spec.folder)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(_SECRET_BYTES))
    return [
        KEPT_MEMORY | network | local_environment(rank, spec.processes, port, spec.threads)
        for rank in range(spec.processes)
    ]
