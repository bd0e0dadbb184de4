"""Supervision of ranks, from their start to their end: all of them finish, or none is left."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from executor.supervision.diagnosis import Diagnosis, Ending, FailureDetector, Patience, ending
from executor.supervision.other_supervisors import REQUESTED, OtherSupervisors
from executor.supervision.rank_process import TERMINATE_S, RankProcess, end_all, out_of_memory_kills
from executor.supervision.status_board import BOARD_VARIABLE, RankRow, RankState, StatusBoard
from groundwork.errors import ConfigError

_CHECK_S = 0.05
"""Time between two checks of the ranks."""
_SIGNAL_CODE = 128
"""Exit code of a process that a signal has ended, before the signal's number is added."""
_AGREE_S = 6.0
"""Time after a request to end in which the supervisors of a run may agree on its cause."""


def supervise(
    commands: Sequence[Sequence[str]],
    *,
    environments: Sequence[Mapping[str, str]],
    board: StatusBoard,
    patience: Patience | None = None,
    progress: Callable[[Sequence[RankRow]], None] | None = None,
    task_name: Callable[[int], str] = str,
    log_folder: Path | None = None,
    others: OtherSupervisors | None = None,
) -> None:
    """Start one process a rank, watch them, and return when all have finished.

    However it ends, by the first failure, by an error of this program or by a signal, no process of any rank's group
    is left: they get SIGTERM, and are killed after 2 s.  If this process itself is killed, the ranks end because of
    ``executor.supervision.lifeline``.  While it runs in the main thread, SIGINT, SIGTERM and SIGHUP
    all end it as Ctrl-C does, unless the caller ignores them; a handler of the caller is called when no rank is left.

    Args:
        commands: Program and arguments of each rank; wrappers such as ``ip netns exec`` may stand before.
        environments: Variables that are added to the environment of this process, for each rank.
        board: A new board of all ranks; they find it by ``executor.supervision.status_board.own_status``.
        patience: Times for which ranks may be silent; those of ``Patience`` if None.
        progress: Called with the rows of the board about 20 times a second.
        task_name: Returns what users call a task, by its id.
        log_folder: Folder for ``rank-0.log`` and so on, with what the ranks print; made if missing.  Their output is
            not kept if None.
        others: Supervisors of the other ranks, where this one has one of the ranks alone.

    Raises:
        RankFailure: A rank has failed; the others have been ended.
        KeyboardInterrupt: A signal has requested the end.
        SystemExit: With others: a signal has done so, or another supervisor of this machine says why the run ends.
        ConfigError: A rank has refused its input; or commands, environments and rows are not equally many.
        OSError: A command cannot be started.
    """
    ranks = [others.rank] if others else range(board.ranks)
    if not len(commands) == len(environments) == len(ranks):
        counts = f"{len(commands)}, {len(environments)} and {len(ranks)}"
        raise ConfigError(f"commands, environments and rows of the board must be equally many, got {counts}")
    patience = patience or Patience()
    if log_folder is not None:
        log_folder.mkdir(parents=True, exist_ok=True)
    processes: dict[int, RankProcess] = {}
    with _interruption() as interrupted:
        try:
            for rank, command, environment in zip(ranks, commands, environments, strict=True):
                variables = {**os.environ, **environment, BOARD_VARIABLE: str(board.path.absolute())}
                # Added at once: it is ended even if the next cannot be started.
                processes[rank] = RankProcess(command, variables, log=log_folder and log_folder / f"rank-{rank}.log")
            diagnosis = _watch(processes, board, patience, interrupted, progress, others)
        finally:
            end_all([*processes.values()])
        if others and diagnosis:
            others.leave()
        if diagnosis and not (interrupted and diagnosis.reason == REQUESTED.reason):
            interrupted.clear()  # a failure says more than the interruption that came with it
        if others and interrupted:
            (number, _), *_ = interrupted
            interrupted.clear()
            raise SystemExit(_SIGNAL_CODE + number)  # torchrun, which has requested it, says why
        if others and diagnosis and not others.exchange.prints:
            raise SystemExit(1)  # another supervisor of this machine says why
    if diagnosis:
        raise diagnosis.error(board.rows()[diagnosis.rank], task_name)


def _watch(
    processes: Mapping[int, RankProcess],
    board: StatusBoard,
    patience: Patience,
    interrupted: Sequence[tuple[int, float]],
    progress: Callable[[Sequence[RankRow]], None] | None,
    others: OtherSupervisors | None,
) -> Diagnosis | None:
    """Check the ranks until one fails or all have ended; return the first failure, None if there is none."""
    detector = FailureDetector(board.ranks, patience, is_stopped=lambda rank: processes[rank].is_stopped())
    endings: list[Ending | None] = [None] * board.ranks
    kills_before = out_of_memory_kills()
    if others:
        others.exchange.start()
    while True:
        if interrupted:
            since_s = time.monotonic() - interrupted[0][1]
            if others is None:
                raise KeyboardInterrupt
            if since_s > _AGREE_S:
                return None
            # torchrun requests it where another rank has ended: the cause may still come.
            processes[others.rank].end(kill=since_s > TERMINATE_S)
        for rank, process in processes.items():
            process.drain()
            if endings[rank] is None and (code := process.exit_code()) is not None:
                memory_kill = out_of_memory_kills() > kills_before
                endings[rank] = ending(code, process.error_lines(), memory_kill=memory_kill)
        # After the processes: everything that a dead one has written is there by now.
        if others:
            is_stopped, requested = processes[others.rank].is_stopped, bool(interrupted)
            diagnosis = others.check(board, endings, time.monotonic(), is_stopped=is_stopped, requested=requested)
            finished = others.all_finished()
        else:
            rows = board.rows()
            diagnosis = detector.check(rows, endings, time.monotonic())
            finished = None not in endings and all(row.state == RankState.FINISHED for row in rows)
        if progress:
            progress(board.rows())
        if diagnosis or finished:
            return diagnosis
        time.sleep(_CHECK_S)


@contextmanager
def _interruption() -> Iterator[list[tuple[int, float]]]:
    """Yield the signals caught so far, and their times: none interrupts between the start of a process and its record.

    Raises:
        KeyboardInterrupt: One is left in the list; from the handler that was there before, which knows what the signal
            means.
    """
    caught: list[tuple[int, float]] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # None stands for a handler that Python did not set.
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, lambda number, _: caught.append((number, time.monotonic())))
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if caught:
            first = signal.Signals(caught[0][0])
            handler = before[first]
            if callable(handler):
                handler(first, None)
            raise KeyboardInterrupt
