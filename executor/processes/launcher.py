"""Start of the local ranks of a job, whatever the job is."""

import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from executor.processes.rank_environment import (
    INTERFACE_VARIABLE,
    NO_SECRET_VARIABLE,
    SECRET_VARIABLE,
    held_port,
    local_environment,
)
from executor.processes.status_board import RankRow, StatusBoard
from executor.processes.supervisor import supervise
from groundwork.errors import ConfigError
from simulator.graph.memory_need import check_free_memory

KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2 * 2**30)}
"""Settings with which glibc keeps the memory that tensors release for the next step.

By default it returns large blocks to the system, which clears every page again: filling 32 MB of new tensors on one
core took 26 ms, in kept memory 3 ms.
"""
_SECRET_BYTES = 32
_RANK_BYTES = 140 * 2**20
"""Memory of a rank of its own before it holds a tensor: of 148 MiB measured, as another torch may take less."""


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
    """Module that every rank runs, as ``python -m MODULE ARGUMENTS``."""
    arguments: Sequence[str]
    """Arguments, the same for all ranks; each finds its rank in the environment."""
    processes: int
    """Number of ranks."""
    threads: int
    """Threads that each rank computes with."""
    folder: Path
    """Folder that holds the status board."""
    hosts: RankHosts | None = None
    """Hosts that the ranks are started on; this machine if None."""
    stall_s: float = 20.0
    """Silence after which a rank is taken to hang, in seconds; longer than any task takes."""
    log_folder: Path | None = None
    """Folder for ``rank-0.log`` and so on, with what the ranks print; they are not kept if None."""


def launch(
    spec: LaunchSpec,
    *,
    progress: Callable[[Sequence[RankRow]], None] | None = None,
    task_name: Callable[[int], str] = str,
) -> None:
    """Run a job with one process a rank, and return when all have finished.

    Args:
        spec: The ranks.
        progress: Called with the status board about 20 times a second.
        task_name: Returns what users call a task, by its id.

    Raises:
        InfeasiblePlanError: So many processes do not fit in memory.
        RankFailure: A rank has failed; the others have been ended.
    """
    check_free_memory(spec.processes * _RANK_BYTES, f"{spec.processes:,} processes")
    command = [sys.executable, "-m", "executor.processes.supervised_rank", spec.module, *spec.arguments]
    ranks = range(spec.processes)
    with held_port() as port:  # the ranks take seconds to come to it
        common = KEPT_MEMORY | _network(spec)
        environments = [common | local_environment(rank, spec.processes, port, spec.threads) for rank in ranks]
        commands: list[Sequence[str]] = [command for _ in ranks]
        if spec.hosts is not None:
            environments = [{**row, **spec.hosts.environment(rank)} for rank, row in enumerate(environments)]
            commands = [spec.hosts.command(rank, command) for rank in ranks]
        supervise(
            commands,
            environments=environments,
            board=StatusBoard.create(spec.folder / "status", spec.processes),
            stall_s=spec.stall_s,
            progress=progress,
            task_name=task_name,
            log_folder=spec.log_folder,
        )


def _network(spec: LaunchSpec) -> dict[str, str]:
    """Return the variables of the ranks' network: a secret of their own where they are on several hosts."""
    # empty ones too: those of this process are for ranks that others start
    values = dict.fromkeys((INTERFACE_VARIABLE, SECRET_VARIABLE, NO_SECRET_VARIABLE), "")
    if spec.hosts is None:
        return values
    handle, file = tempfile.mkstemp(prefix="secret-", dir=spec.folder)
    with os.fdopen(handle, "w") as opened:
        opened.write(secrets.token_hex(_SECRET_BYTES))
    return values | {SECRET_VARIABLE: file}
