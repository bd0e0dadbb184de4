"""A watchdog beside every rank that no supervisor has started: torchrun ends ranks, but does not see one that hangs.

The watchdog is a fork of its rank.  It sees a rank that a signal has stopped and one that holds the interpreter's
lock, takes no time from the threads that train, and can end a rank that does not respond.  All watchdogs publish
heartbeats of their ranks at the store where the ranks meet; that of rank 0 diagnoses failures by the supervisor's
rules, and the others check that its heartbeat goes on.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import NoReturn

from executor.processes.diagnosis import HANG_CHECKS, Diagnosis, Patience
from executor.processes.rank_environment import RankEnvironment
from executor.processes.rank_process import failed
from executor.processes.signed_store import SignatureError
from executor.processes.status_board import NEW_ROW, RankStatus, read_row
from executor.processes.system_processes import out_of_memory_kills
from executor.watchdog.heartbeats import Heartbeat, RunEnd, RunMonitor, SilenceMonitor, end_of_own_rank, run_end
from executor.watchdog.rendezvous import STORE_LOST, Rendezvous
from executor.watchdog.watched_process import WatchedProcess, launcher_of

_NAME = "orrery-watchdog"
"""Name of the process, which Linux keeps to 15 characters."""
_BEAT_S = 0.5
"""Time between two heartbeats; less where ranks may be silent for a short time only."""
_END_S = 1.0
"""Time for a rank to end when its watchdog tells it to."""
_TERMINATE_S = 2.0
"""Time for a rank to end when torchrun has told it to."""
_LEAVE_S = 5.0
"""Time in which the end of the run must be published, and in which ranks may end after the store has gone."""
_YIELD_S, _PRINTED_S = 0.5, 1.0
"""Time for which a watchdog lets others print whose ranks may be the cause, and for which it keeps them from it."""
_UNHEARD_S = 40.0
"""Time until the first heartbeat of every rank under torchrun, which starts all at about the same time: one lost before
would else keep the others for as long as a start may take."""
_TERMINATING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def watched(
    where: RankEnvironment, status: RankStatus, patience: Patience, task_name: Callable[[int], str]
) -> Iterator[None]:
    """Start a watchdog beside this process, which ends it when any rank of the run has failed or hangs.

    Then one line on each machine says rank, step, task and reason, as the supervisor does.  An error in the block
    ends the process at once; the watchdog prints the line.

    Args:
        where: Rank of this process.
        status: Its row, from ``own_status`` without a supervisor.
        patience: Times for which ranks may be silent, the same for all ranks.
        task_name: Returns what users call a task, by its id.
    """
    # The rank holds the write end of one pipe, the watchdog that of the other: each sees when the other ends.
    (alive, held), (received, orders) = os.pipe(), os.pipe()
    rank = WatchedProcess(os.getpid(), alive=alive, orders=orders)
    launcher = os.getppid()
    if os.fork() == 0:
        os.close(held)
        os.close(received)
        _Watchdog(where, status, patience, task_name, rank, launcher).serve()
    os.close(alive)
    os.close(orders)
    Thread(target=_end_on_order, args=(received, where), name="watchdog", daemon=True).start()
    try:
        yield
    except Exception as error:
        code = failed(status, error)
        sys.stdout.flush()
        os._exit(code)


def _end_on_order(received: int, where: RankEnvironment) -> None:
    """End this process when its watchdog orders it, or has ended."""
    if not os.read(received, 1):
        _print_line(
            f"rank {where.rank}: its watchdog has ended, or got no reply from the store at "
            f"{where.address}:{where.port}, where the ranks meet"
        )
    os._exit(1)


def _print_line(line: str, descriptor: int = 2) -> None:
    os.write(descriptor, f"orrery: {line}\n".encode(errors="replace"))


class _Watchdog:
    """Process beside a rank."""

    def __init__(
        self,
        where: RankEnvironment,
        status: RankStatus,
        patience: Patience,
        task_name: Callable[[int], str],
        rank: WatchedProcess,
        launcher: int,
    ) -> None:
        self._where, self._status, self._patience, self._task_name = where, status, patience, task_name
        self._rank, self._launcher = rank, launcher
        self._beat_s = min(_BEAT_S, patience.stall_s / HANG_CHECKS)
        self._beats, self._terminated_s, self._ended_s = 0, 0.0, 0.0
        self._kills_before = out_of_memory_kills()
        self._rendezvous: Rendezvous | None = None
        self._unheard_s = min(_UNHEARD_S, patience.start_s) if "TORCHELASTIC_RUN_ID" in os.environ else patience.start_s
        self._monitor = RunMonitor(where.ranks, patience, task_name, self._unheard_s)
        self._rank_0_monitor = SilenceMonitor(1, patience, self._unheard_s)
        self._stderr, self._print_lock = os.dup(2), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._home = f"{launcher} on {socket.gethostname()}"

    def serve(self) -> NoReturn:
        """Watch until the rank or the run has ended, and end this process."""
        try:
            self._prepare()
            if end := self._watch():
                self._finish(end)
        except BaseException:
            os.dup2(self._stderr, 2)
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)

    def _prepare(self) -> None:
        """Handle signals, close the rank's output, and take a name of its own."""
        for number in _TERMINATING:
            signal.signal(number, self._note_termination)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The rank's output ends with the rank; torch would print a trace when the store ends.
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
            file.write(_NAME)

    def _note_termination(self, *_: object) -> None:
        self._terminated_s = self._terminated_s or time.monotonic()

    def _watch(self) -> RunEnd | None:
        """Find the store and exchange heartbeats until the run ends; return its end, None if it is well."""
        try:
            deadline_s = time.monotonic() + self._unheard_s
            while (rendezvous := Rendezvous.reached(self._where, self._beat_s)) is None:
                if self._wait(self._beat_s):
                    return self._end_of_rank()
                if time.monotonic() > deadline_s:
                    return self._end_without_store(f"has found no store for {self._unheard_s:.0f} s")
            self._rendezvous = rendezvous
            return self._exchange(rendezvous)
        except STORE_LOST:
            return self._end_without_store("has lost the store, so the run has ended elsewhere")
        except SignatureError as error:
            return self._end_without_store(str(error), cause=True)

    def _exchange(self, rendezvous: Rendezvous) -> RunEnd | None:
        """Publish and check heartbeats, until the run ends or nothing is left to watch."""
        while True:
            # The first one at once: what is not heard of cannot be missed soon, nor be killed when it is silent.
            heartbeat = self._heartbeat()
            rendezvous.publish(heartbeat)
            if end := rendezvous.end():
                return end
            if end := self._diagnosed(rendezvous):
                return rendezvous.publish_end(end)
            if heartbeat.ended_well and (self._where.rank > 0 or self._all_ended_well(rendezvous)):
                return None
            if heartbeat.ended and not heartbeat.ended_well and time.monotonic() - self._ended_s > _LEAVE_S:
                return self._end_of_rank()
            self._wait(self._beat_s)

    def _wait(self, seconds: float) -> bool:
        """Wait for the rank's end, at most ``seconds``; return whether it has ended."""
        # If the store does not reply for as long as a rank may be silent, the alarm ends this process, and so the rank.
        signal.setitimer(signal.ITIMER_REAL, max(self._patience.stall_s, _END_S) + seconds)
        ended_before = self._rank.ended
        if self._rank.wait(seconds) and not ended_before:
            self._ended_s = time.monotonic()
        if self._terminated_s and time.monotonic() - self._terminated_s > _TERMINATE_S:
            self._rank.end(_END_S)
        return self._rank.ended

    def _heartbeat(self) -> Heartbeat:
        self._beats += 1
        return Heartbeat(
            beat=self._beats,
            row=self._status.row(),
            stopped=self._rank.is_stopped(),
            ended=self._rank.ended,
            code=self._rank.code,
            memory_kill=self._rank.ended and out_of_memory_kills() > self._kills_before,
            terminated=self._terminated_s > 0,
            pids=(self._rank.pid, os.getpid()),
            launcher=self._home,
        )

    def _diagnosed(self, rendezvous: Rendezvous) -> RunEnd | None:
        """Return how the run ends: on rank 0 by all heartbeats, on other ranks by that of rank 0 alone."""
        if self._where.rank == 0:
            return self._monitor.check(rendezvous.heartbeats(range(self._where.ranks)), time.monotonic())
        of_rank_0 = rendezvous.heartbeats(range(1))
        diagnosis = self._rank_0_monitor.check(of_rank_0, time.monotonic())
        if diagnosis is None:
            return None
        row = read_row(of_rank_0[0].row) if of_rank_0 else NEW_ROW
        return run_end(diagnosis, row, self._task_name, receivers=self._where.ranks - 1, silent=True)

    def _all_ended_well(self, rendezvous: Rendezvous) -> bool:
        heartbeats = rendezvous.heartbeats(range(self._where.ranks))
        return len(heartbeats) == self._where.ranks and all(each.ended_well for each in heartbeats.values())

    def _end_of_rank(self) -> RunEnd | None:
        """Return how the run ends by the own rank alone, which has ended."""
        heartbeat = self._heartbeat()
        if read_row(heartbeat.row).consequence:
            time.sleep(_YIELD_S)
        return end_of_own_rank(self._where.rank, heartbeat, self._patience, self._task_name)

    def _end_without_store(self, reason: str, *, cause: bool = False) -> RunEnd | None:
        """Let the rank end by itself, as all ranks do in some order at the end of a run; else end it.

        Args:
            reason: Reason that the watchdog has.
            cause: The reason also explains the end of a rank that only knows that it has lost the others.
        """
        self._rendezvous = None
        ended = self._rank.ended or self._wait(_LEAVE_S)
        if ended and not (cause and read_row(self._status.row()).consequence):
            return self._end_of_rank()
        where = self._where
        diagnosis = Diagnosis(rank=where.rank, reason=f"{reason}: {where.address}:{where.port}, where the ranks meet")
        return run_end(diagnosis, read_row(self._status.row()), self._task_name)

    def _finish(self, end: RunEnd) -> None:
        """Print how the run ends, once on a machine, and end the rank."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        prints = bool(end.line) and self._may_print()
        if prints:
            _print_line(end.line, self._stderr)
        with contextlib.suppress(STORE_LOST):
            if self._rendezvous:
                self._rendezvous.leave(end)
                if end.silent:
                    self._kill_silent(self._rendezvous, end.rank)
        self._rank.end(_END_S)
        if prints:
            time.sleep(_PRINTED_S)  # the name of the socket stays in use meanwhile

    def _may_print(self) -> bool:
        """Return whether no other watchdog of this machine has printed.

        The name of a socket serves as a lock on the machine: the store may be gone, so it cannot be one.
        """
        try:
            self._print_lock.bind(f"\0{_NAME} {self._home} {self._where.port}")
        except OSError:
            return False
        return True

    def _kill_silent(self, rendezvous: Rendezvous, rank: int) -> None:
        """Kill a rank of this machine and its watchdog where that is silent: a signal may have stopped both."""
        heartbeat = rendezvous.heartbeats(range(rank, rank + 1)).get(rank)
        if heartbeat is None or heartbeat.ended or rank == self._where.rank or heartbeat.launcher != self._home:
            return
        parents = (self._launcher, heartbeat.pids[0])
        # The id may belong to another process by now: its parent shows that it does not.  The watchdog goes first: it
        # has another parent as soon as its rank has ended.
        for pid, parent in reversed(list(zip(heartbeat.pids, parents, strict=True))):
            if launcher_of(pid) == parent:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
