"""Supervision of the local ranks of a run, from their start to their end: all of them finish, or none is left."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from executor.processes.diagnosis import Ending, FailureDetector, Patience, ending
from executor.processes.status_board import BOARD_VARIABLE, RankRow, RankState, StatusBoard
from executor.processes.system_processes import RankProcess, end_all, out_of_memory_kills
from groundwork.errors import ConfigError, OrreryError

_CHECK_S = 0.05
"""Time between two checks of the ranks."""


class RankFailure(OrreryError):  # noqa: N818 - an event of the run, not a mistake of the caller
    """Failure of a rank, which died, hung or ran out of memory; the run has been ended for it."""

    exit_code = 1

    def __init__(self, *, rank: int, step: int, task: int, task_name: str, reason: str) -> None:
        """Make the message of rank, step, task and reason.

        Args:
            rank: Rank that failed first.
            step: Training step, -1 before the first.
            task: Id in the program, -1 outside of tasks.
            task_name: Name of the task, as users know it; empty outside of tasks.
            reason: Reason of the failure; put on one line.
        """
        self.rank, self.step, self.task, self.reason = rank, step, task, " ".join(reason.split())
        when = f"step {step}" if step >= 0 else "before the first step"
        what = f", task {task} ({task_name})" if task >= 0 else ""
        super().__init__(f"rank {rank}, {when}{what}: {self.reason}")


def supervise(
    commands: Sequence[Sequence[str]],
    *,
    environments: Sequence[Mapping[str, str]],
    board: StatusBoard,
    stall_s: float = 20.0,
    start_s: float = 120.0,
    save_s: float = 300.0,
    progress: Callable[[Sequence[RankRow]], None] | None = None,
    task_name: Callable[[int], str] = str,
    log_folder: Path | None = None,
) -> None:
    """Start one process a rank, watch them, and return when all have finished.

    However it ends, by the first failure, by an error of this program or by a signal, no process of any rank's group
    is left: they get SIGTERM, and are killed after 2 s.  If this process itself is killed, the ranks end because of
    ``executor.processes.parent_watch``.  While it runs in the main thread, SIGINT, SIGTERM and SIGHUP
    all end it as Ctrl-C does, unless the caller ignores them; a handler of the caller is called when no rank is left.

    Args:
        commands: Program and arguments of each rank; wrappers such as ``ip netns exec`` may stand before.
        environments: Variables that are added to the environment of this process, for each rank.
        board: A new board of as many rows; the ranks find it by ``executor.processes.status_board.own_status``.
        stall_s: Silence after which a rank in a task hangs, and after which ranks that all wait do; longer than any
            task takes.
        start_s: Time allowed until every rank has left ``STARTING``.
        save_s: Time allowed for one checkpoint.
        progress: Called with the rows of the board about 20 times a second.
        task_name: Returns what users call a task, by its id.
        log_folder: Folder for ``rank-0.log`` and so on, with what the ranks print; made if missing.  Their output is
            not kept if None.

    Raises:
        RankFailure: A rank has failed; the others have been ended.
        KeyboardInterrupt: A signal has requested the end.
        ConfigError: A rank has refused its input; commands, environments and rows are not equally many; or a time is
            not > 0.
        OSError: A command cannot be started.
    """
    if not len(commands) == len(environments) == board.ranks:
        counts = f"{len(commands)}, {len(environments)} and {board.ranks}"
        raise ConfigError(f"commands, environments and rows of the board must be equally many, got {counts}")
    detector = FailureDetector(
        board.ranks,
        Patience(stall_s=stall_s, start_s=start_s, save_s=save_s),
        is_stopped=lambda rank: processes[rank].is_stopped(),
    )
    processes: list[RankProcess] = []
    with _interruption() as interrupted:
        try:
            _start(processes, commands, environments, board, log_folder)
            failure = _watch(processes, board, detector, interrupted, progress, task_name)
        finally:
            end_all(processes)
    if failure:
        raise failure


def _start(
    processes: list[RankProcess],
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    board: StatusBoard,
    log_folder: Path | None,
) -> None:
    """Start the ranks, and add each to the list at once: it is ended even if the next cannot be started."""
    if log_folder is not None:
        log_folder.mkdir(parents=True, exist_ok=True)
    ours = {BOARD_VARIABLE: str(board.path.absolute())}
    for rank, (command, environment) in enumerate(zip(commands, environments, strict=True)):
        log = log_folder and log_folder / f"rank-{rank}.log"
        processes.append(RankProcess(command, {**os.environ, **environment, **ours}, log=log))


def _watch(
    processes: Sequence[RankProcess],
    board: StatusBoard,
    detector: FailureDetector,
    interrupted: Sequence[int],
    progress: Callable[[Sequence[RankRow]], None] | None,
    task_name: Callable[[int], str],
) -> OrreryError | None:
    """Check the ranks until one fails or all have ended; return the first failure, None if there is none."""
    endings: list[Ending | None] = [None] * len(processes)
    kills_before = out_of_memory_kills()
    while True:
        if interrupted:
            raise KeyboardInterrupt
        for rank, process in enumerate(processes):
            process.drain()
            if endings[rank] is None and (code := process.exit_code()) is not None:
                memory_kill = out_of_memory_kills() > kills_before
                endings[rank] = ending(code, process.error_lines(), memory_kill=memory_kill)
        # After the processes: everything that a dead one has written is there by now.
        rows = board.rows()
        if progress:
            progress(rows)
        if diagnosis := detector.check(rows, endings, time.monotonic()):
            step, task = rows[diagnosis.rank].step, rows[diagnosis.rank].task
            if rows[diagnosis.rank].refused:
                return ConfigError(diagnosis.reason)
            name = task_name(task) if task >= 0 else ""
            return RankFailure(rank=diagnosis.rank, step=step, task=task, task_name=name, reason=diagnosis.reason)
        if None not in endings and all(row.state == RankState.FINISHED for row in rows):
            return None
        time.sleep(_CHECK_S)


@contextmanager
def _interruption() -> Iterator[Sequence[int]]:
    """Yield the list of signals caught so far: none then interrupts between the start of a process and its record.

    Raises:
        KeyboardInterrupt: One was caught; from the handler that was there before, which knows what the signal means.
    """
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # None stands for a handler that Python did not set.
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: caught.append(number))
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if caught:
            handler = before[signal.Signals(caught[0])]
            if callable(handler):
                handler(caught[0], None)
            raise KeyboardInterrupt
