"""Heartbeats that the watchdogs of a run exchange, and the diagnosis from them by ``executor.processes.diagnosis``.

Machines have clocks of their own: ages are taken by the reader's clock, from when a count last changed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from executor.processes.diagnosis import Diagnosis, Ending, FailureDetector, Patience, ending
from executor.processes.status_board import NEW_ROW, RankRow, RankState, read_row
from executor.processes.supervisor import RankFailure

_TERMINATED = "was requested to end"
_SILENT = "its process and its watchdog have been silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """State of one rank, as its watchdog sees it."""

    beat: int
    """Count that grows with every heartbeat of the rank."""
    row: bytes
    """Row of the status board, as ``RankStatus.row`` returns it."""
    stopped: bool = False
    """True where a signal has stopped the rank's process."""
    ended: bool = False
    """True where the rank's process has ended."""
    code: int | None = None
    """Its exit code, minus the number of a signal that ended it; None if it is not known."""
    memory_kill: bool = False
    """True where the system has meanwhile killed a process of the control group because memory ran out."""
    terminated: bool = False
    """True where the process that started the rank has requested its end by a signal."""
    pids: tuple[int, int] = (0, 0)
    """Ids of the processes of the rank and of its watchdog."""
    launcher: str = ""
    """Process that started the rank, and its machine, on which the ids are valid."""

    @property
    def ended_well(self) -> bool:
        """True where the rank has ended with nothing left to do."""
        return self.ended and not self.code and read_row(self.row).state == RankState.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """End of a run, on which all watchdogs agree."""

    rank: int
    """Rank that failed first."""
    line: str
    """Line that is printed; empty where the ranks were requested to end."""
    receivers: int = 0
    """Number of watchdogs that must receive this."""
    silent: bool = False
    """True where the watchdog of the rank is silent as well."""


class SilenceMonitor:
    """Check for silent watchdogs: their machine is lost, or they have been stopped together with their ranks."""

    def __init__(self, ranks: int, patience: Patience, unheard_s: float) -> None:
        """Begin without any heartbeat; arguments as for ``RunMonitor``."""
        self._ranks, self._received = ranks, set[int]()
        self._detector = FailureDetector(
            ranks,
            replace(patience, start_s=unheard_s),
            is_stopped=lambda rank: rank in self._received,
            stopped=_SILENT,
        )

    def check(self, heartbeats: Mapping[int, Heartbeat], now_s: float) -> Diagnosis | None:
        """Return the first rank whose watchdog has been silent for too long; arguments as for ``RunMonitor.check``."""
        self._received |= heartbeats.keys()
        rows = [self._row(heartbeats.get(rank)) for rank in range(self._ranks)]
        endings = [Ending() if row.state == RankState.FINISHED else None for row in rows]
        return self._detector.check(rows, endings, now_s)

    @staticmethod
    def _row(heartbeat: Heartbeat | None) -> RankRow:
        """Return a row whose progress is that of the watchdog, not of the rank."""
        if heartbeat is None:
            return NEW_ROW
        state = RankState.FINISHED if heartbeat.ended else RankState.COMPUTING
        return replace(NEW_ROW, state=state, step=0, progress=heartbeat.beat)


class RunMonitor:
    """Repeated checks of the heartbeats of all ranks, until one has failed or hangs."""

    def __init__(self, ranks: int, patience: Patience, task_name: Callable[[int], str], unheard_s: float) -> None:
        """Begin without any heartbeat.

        Args:
            ranks: Number of ranks.
            patience: Times for which they may be silent.
            task_name: Returns what users call a task, by its id.
            unheard_s: Time allowed until the first heartbeat of every rank.
        """
        self._ranks, self._task_name = ranks, task_name
        self._heartbeats: Mapping[int, Heartbeat] = {}
        self._failed_s: dict[int, float] = {}
        self._silence = SilenceMonitor(ranks, patience, unheard_s)
        self._detector = FailureDetector(ranks, patience, is_stopped=self._is_stopped)

    def check(self, heartbeats: Mapping[int, Heartbeat], now_s: float) -> RunEnd | None:
        """Return how the run ends, None while it goes on.

        Args:
            heartbeats: Last heartbeat of every rank whose watchdog has sent one, by rank.
            now_s: Time of the check, on the clock of this process.
        """
        self._heartbeats = heartbeats
        states = [self._row_and_ending(rank, now_s) for rank in range(self._ranks)]
        rows = [row for row, _ in states]
        silent = self._silence.check(heartbeats, now_s)
        diagnosis = silent or self._detector.check(rows, [end for _, end in states], now_s)
        if diagnosis is None:
            return None
        receivers = sum(not each.ended_well for rank, each in heartbeats.items() if not silent or rank != silent.rank)
        return run_end(diagnosis, rows[diagnosis.rank], self._task_name, receivers=receivers, silent=bool(silent))

    def _is_stopped(self, rank: int) -> bool:
        return rank in self._heartbeats and self._heartbeats[rank].stopped

    def _row_and_ending(self, rank: int, now_s: float) -> tuple[RankRow, Ending | None]:
        if rank not in self._heartbeats:
            return NEW_ROW, None
        row, end = _row_and_ending(self._heartbeats[rank])
        if row.state == RankState.FAILED:
            # The rank's own time of failure is on another machine's clock.
            row = replace(row, failed_s=self._failed_s.setdefault(rank, now_s))
        return row, end


def run_end(
    diagnosis: Diagnosis, row: RankRow, task_name: Callable[[int], str], *, receivers: int = 0, silent: bool = False
) -> RunEnd:
    """Return the end of a run, with the same line as the supervisor's.

    Args:
        diagnosis: Rank that failed first, and the reason.
        row: Row of that rank.
        task_name: Returns what users call a task, by its id.
        receivers: Number of watchdogs that must receive the end.
        silent: Whether the watchdog of the rank is silent as well.
    """
    if diagnosis.reason == _TERMINATED:
        line = ""
    elif row.refused:
        line = diagnosis.reason
    else:
        name = task_name(row.task) if row.task >= 0 else ""
        failure = RankFailure(
            rank=diagnosis.rank, step=row.step, task=row.task, task_name=name, reason=diagnosis.reason
        )
        line = str(failure)
    return RunEnd(rank=diagnosis.rank, line=line, receivers=receivers, silent=silent)


def end_of_own_rank(
    rank: int, heartbeat: Heartbeat, patience: Patience, task_name: Callable[[int], str]
) -> RunEnd | None:
    """Return how the run ends by the end of one rank alone, which has ended; None if it ended well.

    Args:
        rank: The rank.
        heartbeat: Its last heartbeat.
        patience: Times for which ranks may be silent.
        task_name: Returns what users call a task, by its id.
    """
    row, end = _row_and_ending(heartbeat)
    diagnosis = FailureDetector(1, patience, is_stopped=lambda _: False).check([row], [end], time.monotonic())
    return run_end(replace(diagnosis, rank=rank), row, task_name) if diagnosis else None


def _row_and_ending(heartbeat: Heartbeat) -> tuple[RankRow, Ending | None]:
    """Return the row of a rank, and how its process has ended, None while it runs."""
    row = read_row(heartbeat.row)
    if not heartbeat.ended:
        return row, None
    if row.state not in (RankState.FINISHED, RankState.FAILED) and heartbeat.terminated:
        # The request to end had a cause elsewhere: another rank, or Ctrl-C.
        return replace(row, state=RankState.FAILED, consequence=True, reason=_TERMINATED), Ending()
    if heartbeat.code is None:
        finished = row.state == RankState.FINISHED
        return row, Ending(reason="" if finished else "its process has ended, with an exit code that is not known")
    return row, ending(heartbeat.code, [], memory_kill=heartbeat.memory_kill)
