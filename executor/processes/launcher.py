"""Starts the local ranks of a job, whatever the job is."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from executor.processes.rank_environment import held_port, local_environment
from executor.processes.status_board import RankRow, StatusBoard
from executor.processes.supervisor import supervise
from hwprofiles import ConfigError

__all__ = ["KEPT_MEMORY", "Hosts", "launch", "scratch_folder", "threads_of"]

KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2 * 2**30)}
"""Lets glibc keep what tensors give back for the next step.  By default it returns large blocks to the system, which
clears every page again: filling 32 MB of new tensors on one core took 26 ms, in kept memory 3 ms."""


class Hosts(Protocol):
    """Where ranks are started, if not here."""

    def command(self, rank: int, command: Sequence[str]) -> Sequence[str]:
        """The command that runs another on the host of a rank."""
        ...

    def environment(self, rank: int) -> Mapping[str, str]:
        """What the back end needs to know there."""
        ...


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for what the ranks of one job share, gone afterwards; no disk is behind it where that can be."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="orrery-", dir=memory) as folder:
        yield Path(folder)


def threads_of(threads: int, processes: int) -> int:
    """Threads of one of so many processes: as asked for, or with 0 the machine's cores, shared equally.

    Raises:
        ConfigError: There is no process.
    """
    if processes < 1:
        raise ConfigError(f"processes must be >= 1, got {processes}")
    return threads or max(len(os.sched_getaffinity(0)) // processes, 1)


def launch(
    module: str,
    arguments: Sequence[str],
    *,
    processes: int,
    threads: int,
    folder: Path,
    hosts: Hosts | None = None,
    stall_s: float = 20.0,
    progress: Callable[[Sequence[RankRow]], None] | None = None,
    task_name: Callable[[int], str] = str,
    log_folder: Path | None = None,
) -> None:
    """Run ``python -m MODULE ARGUMENTS`` once a rank, and return when all have finished.

    Args:
        module: What every rank runs.
        arguments: Of all ranks alike; each finds its place in the environment.
        processes: Ranks to start.
        threads: Threads that each computes with.
        folder: Holds the status board.
        hosts: Where they are started; here if None.
        stall_s, progress, task_name, log_folder: As for ``executor.processes.supervisor.supervise``.

    Raises:
        RankFailure: A rank has failed; the others have been ended.
    """
    command = [sys.executable, "-m", module, *arguments]
    with held_port() as port:  # the ranks take seconds to come to it
        places = [KEPT_MEMORY | local_environment(rank, processes, port, threads) for rank in range(processes)]
        commands: list[Sequence[str]] = [command] * processes
        if hosts is not None:
            places = [{**row, **hosts.environment(rank)} for rank, row in enumerate(places)]
            commands = [hosts.command(rank, command) for rank in range(processes)]
        supervise(
            commands,
            environments=places,
            board=StatusBoard.create(folder / "status", processes),
            stall_s=stall_s,
            progress=progress,
            task_name=task_name,
            log_folder=log_folder,
        )
