"""A guard beside every rank that no supervisor has started: torchrun ends ranks, but does not see one that hangs.

The guard is a fork of its rank.  It sees a rank that a signal has stopped and one that holds the interpreter's lock,
takes no time from the threads that train, and can end a rank that does not listen.  All guards tell at the store where
the ranks meet what they see; that of rank 0 judges by the supervisor's rules, and the others judge it by its
heartbeat.
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

from executor.processes import (
    HANG_LOOKS,
    NEW_ROW,
    Diagnosis,
    Patience,
    RankEnvironment,
    RankStatus,
    failed,
    out_of_memory_kills,
    read_row,
)
from executor.watchdog.heartbeats import Bench, Heartbeat, Heartbeats, Judgement, judgement, own_failure
from executor.watchdog.rendezvous import LOST, Rendezvous
from executor.watchdog.watched_process import WatchedProcess, launcher_of

__all__ = ["guarded"]

_BEAT_S = 0.5
"""Between two sightings; less where patience is short."""
_END_S = 1.0
"""Time for a rank to end when told to."""
_ASKED_S = 2.0
"""Time for a rank to end that torchrun has asked to."""
_PARTING_S = 5.0
"""Time in which the others' judgement must come, and in which ranks may end after the meeting."""
_YIELD_S, _VOICE_S = 0.5, 1.0
"""How long a guard lets others tell whose ranks may be the cause; and how long it keeps them from telling again."""
_TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def guarded(
    where: RankEnvironment, status: RankStatus, patience: Patience, task_name: Callable[[int], str]
) -> Iterator[None]:
    """Watch over this process from now on, and end it when any rank of the run is to blame for something.

    Then one line on each machine says rank, step, task and reason, as the supervisor does.  An error in the block
    ends the process at once; the guard tells.

    Args:
        where: Which rank this is.
        status: Where it says what it does; from ``own_status`` without a supervisor.
        patience: How long ranks may be silent, the same for all.
        task_name: What users call a task, by its id.
    """
    (alive, held), (heard, orders) = os.pipe(), os.pipe()
    rank = WatchedProcess(os.getpid(), alive=alive, orders=orders)
    launcher = os.getppid()
    if os.fork() == 0:
        os.close(held)
        os.close(heard)
        _Guard(where, status, patience, task_name, rank, launcher).serve()
    os.close(alive)
    os.close(orders)
    Thread(target=_obey, args=(heard, where), name="guard", daemon=True).start()
    try:
        yield
    except Exception as error:
        code = failed(status, error)
        sys.stdout.flush()
        os._exit(code)


def _obey(heard: int, where: RankEnvironment) -> None:
    """End this process when its guard says so, or is no more."""
    if not os.read(heard, 1):
        _say(
            f"rank {where.rank}: its guard has ended, or had no answer from {where.address}:{where.port}, "
            "where the ranks meet"
        )
    os._exit(1)


def _say(line: str, descriptor: int = 2) -> None:
    os.write(descriptor, f"orrery: {line}\n".encode(errors="replace"))


class _Guard:
    """The process beside a rank."""

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
        self._beat_s = min(_BEAT_S, patience.stall_s / HANG_LOOKS)
        self._beats, self._asked_s, self._ended_s = 0, 0.0, 0.0
        self._kills = out_of_memory_kills()
        self._meeting: Rendezvous | None = None
        self._bench = Bench(where.ranks, patience, task_name)
        self._first_beats = Heartbeats(1, patience)
        self._told, self._voice = os.dup(2), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._home = f"{launcher} on {socket.gethostname()}"

    def serve(self) -> NoReturn:
        """Watch until the rank or the run has ended; ends this process."""
        try:
            self._prepare()
            found = self._watched()
            if found:
                self._close(found)
        except BaseException:
            os.dup2(self._told, 2)
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(0)

    def _prepare(self) -> None:
        for number in _TOLD:
            signal.signal(number, self._ask)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        # The rank's output ends with the rank; torch would trace the end of the store.
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
            file.write("orrery-guard")

    def _ask(self, *_: object) -> None:
        self._asked_s = self._asked_s or time.monotonic()

    def _watched(self) -> Judgement | None:
        try:
            deadline_s = time.monotonic() + self._patience.start_s
            while self._meeting is None:
                if self._round(self._beat_s):
                    return self._own()
                if time.monotonic() > deadline_s:
                    return self._apart(f"has found no store for {self._patience.start_s:.0f} s")
                self._meeting = Rendezvous.reached(self._where, self._beat_s)
            return self._met(self._meeting)
        except LOST:
            return self._apart("has lost the store, so the run has ended elsewhere")

    def _met(self, meeting: Rendezvous) -> Judgement | None:
        """Tell and look, until there is a judgement or nothing left to see."""
        while True:
            self._round(self._beat_s)
            seen = self._sighting()
            meeting.tell(seen)
            if found := meeting.judgement():
                return found
            if found := self._judged(meeting):
                return meeting.decide(found)
            if seen.ended_well and (self._where.rank > 0 or self._all_ended_well(meeting)):
                return None
            if seen.ended and not seen.ended_well and time.monotonic() - self._ended_s > _PARTING_S:
                return self._own()

    def _round(self, seconds: float) -> bool:
        """Wait for the rank's end, for so long; returns whether it has ended."""
        # If the store does not answer for as long as a rank may be silent, the system ends the guard, and so the rank.
        signal.setitimer(signal.ITIMER_REAL, max(self._patience.stall_s, _END_S) + seconds)
        before = self._rank.ended
        if self._rank.wait(seconds) and not before:
            self._ended_s = time.monotonic()
        if self._asked_s and time.monotonic() - self._asked_s > _ASKED_S:
            self._rank.end(_END_S)
        return self._rank.ended

    def _sighting(self) -> Heartbeat:
        self._beats += 1
        return Heartbeat(
            beat=self._beats,
            row=self._status.row(),
            stopped=self._rank.is_stopped(),
            ended=self._rank.ended,
            code=self._rank.code,
            memory_kill=self._rank.ended and out_of_memory_kills() > self._kills,
            asked=self._asked_s > 0,
            pids=(self._rank.pid, os.getpid()),
            launcher=self._home,
        )

    def _judged(self, meeting: Rendezvous) -> Judgement | None:
        if self._where.rank == 0:
            return self._bench.look(meeting.sightings(range(self._where.ranks)), time.monotonic())
        first = meeting.sightings(range(1))
        verdict = self._first_beats.look(first, time.monotonic())
        row = read_row(first[0].row) if first else NEW_ROW
        listeners = self._where.ranks - 1
        return judgement(verdict, row, self._task_name, listeners=listeners, unheard=True) if verdict else None

    def _all_ended_well(self, meeting: Rendezvous) -> bool:
        sightings = meeting.sightings(range(self._where.ranks))
        return len(sightings) == self._where.ranks and all(one.ended_well for one in sightings.values())

    def _own(self) -> Judgement | None:
        """What can be said of the own rank alone, which has ended."""
        seen = self._sighting()
        if read_row(seen.row).consequence:
            time.sleep(_YIELD_S)
        return own_failure(self._where.rank, seen, self._patience, self._task_name)

    def _apart(self, reason: str) -> Judgement | None:
        """Without the meeting: let the rank end by itself, as all do in some order at the end; else end it."""
        self._meeting = None
        if self._rank.ended or self._round(_PARTING_S):
            return self._own()
        where = self._where
        verdict = Diagnosis(rank=where.rank, reason=f"{reason}: {where.address}:{where.port}, where the ranks meet")
        return judgement(verdict, read_row(self._status.row()), self._task_name)

    def _close(self, found: Judgement) -> None:
        """Tell how the run ends, once on a machine, and end the rank."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        speaks = bool(found.line) and self._speaks()
        if speaks:
            _say(found.line, self._told)
        with contextlib.suppress(LOST):
            if self._meeting:
                self._meeting.part(found)
                if found.unheard:
                    self._end_unheard(self._meeting, found.rank)
        self._rank.end(_END_S)
        if speaks:
            time.sleep(_VOICE_S)

    def _speaks(self) -> bool:
        """Whether no other guard of this machine has told; the store may be gone, so it cannot say."""
        try:
            self._voice.bind(f"\0orrery-guard {self._home} {self._where.port}")
        except OSError:
            return False
        return True

    def _end_unheard(self, meeting: Rendezvous, rank: int) -> None:
        """Kill the rank to blame where its own guard cannot, and we can: a signal may have stopped both."""
        seen = meeting.sightings(range(rank, rank + 1)).get(rank)
        if seen is None or seen.ended or rank == self._where.rank or seen.launcher != self._home:
            return
        for pid, parent in zip(seen.pids, (self._launcher, seen.pids[0]), strict=True):
            if launcher_of(pid) == parent:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
