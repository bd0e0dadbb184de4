"""What guards tell each other of their ranks, and the rules of ``executor.processes.diagnosis`` over it.

Machines have clocks of their own: ages are taken by the reader's clock, from when a count last changed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from executor.processes import (
    NEW_ROW,
    Diagnosis,
    Ending,
    Judge,
    Patience,
    RankFailure,
    RankRow,
    RankState,
    ending,
    read_row,
)

__all__ = ["Bench", "Heartbeat", "Heartbeats", "Judgement", "judgement", "own_failure"]

_ASKED = "was asked to end"
_UNHEARD = "its process and its guard have been silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One rank as its guard sees it."""

    beat: int
    """Grows with every sighting."""
    row: bytes
    """As ``RankStatus.row`` gives it."""
    stopped: bool = False
    """A signal has stopped the rank's process."""
    ended: bool = False
    """The rank's process is no more."""
    code: int | None = None
    """Its exit code, minus the number of a signal that ended it; None if it is not known."""
    memory_kill: bool = False
    """The system has meanwhile killed a process of the control group for want of memory."""
    asked: bool = False
    """Whoever started the rank has asked it to end."""
    pids: tuple[int, int] = (0, 0)
    """Of the rank and of its guard."""
    launcher: str = ""
    """Who started the rank, on which machine: where these numbers mean something."""

    @property
    def ended_well(self) -> bool:
        """Whether the rank has ended with nothing left to do."""
        return self.ended and not self.code and read_row(self.row).state == RankState.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How a run ends."""

    rank: int
    """Who is to blame."""
    line: str
    """What is told; empty where the ranks were asked to end."""
    listeners: int = 0
    """Guards that must hear of it."""
    unheard: bool = False
    """The guard of the rank to blame is silent as well."""


class Heartbeats:
    """Guards that have fallen silent: their machines do not answer, or they have been stopped with their ranks."""

    def __init__(self, ranks: int, patience: Patience) -> None:
        self._ranks, self._heard = ranks, set[int]()
        self._judge = Judge(ranks, patience, is_stopped=lambda rank: rank in self._heard, stopped=_UNHEARD)

    def look(self, sightings: Mapping[int, Heartbeat], now_s: float) -> Diagnosis | None:
        """Return the first rank whose guard has been silent for too long; arguments as for ``Bench.look``."""
        self._heard |= sightings.keys()
        rows = [self._row(sightings.get(rank)) for rank in range(self._ranks)]
        endings = [Ending() if row.state == RankState.FINISHED else None for row in rows]
        return self._judge.look(rows, endings, now_s)

    @staticmethod
    def _row(seen: Heartbeat | None) -> RankRow:
        if seen is None:
            return NEW_ROW
        return replace(
            NEW_ROW, state=RankState.FINISHED if seen.ended else RankState.COMPUTING, step=0, progress=seen.beat
        )


class Bench:
    """Looks at the sightings of all ranks again and again, until one is to blame."""

    def __init__(self, ranks: int, patience: Patience, task_name: Callable[[int], str]) -> None:
        self._ranks, self._task_name = ranks, task_name
        self._sightings: Mapping[int, Heartbeat] = {}
        self._failed_s: dict[int, float] = {}
        self._heartbeats = Heartbeats(ranks, patience)
        self._judge = Judge(ranks, patience, is_stopped=self._is_stopped)

    def look(self, sightings: Mapping[int, Heartbeat], now_s: float) -> Judgement | None:
        """Return how the run ends, None while it goes on.

        Args:
            sightings: By rank, the last of those whose guards have been heard.
            now_s: Time of the look, on the clock of this process.
        """
        self._sightings = sightings
        seen = [self._seen(rank, now_s) for rank in range(self._ranks)]
        rows = [row for row, _ in seen]
        unheard = self._heartbeats.look(sightings, now_s)
        verdict = unheard or self._judge.look(rows, [end for _, end in seen], now_s)
        if verdict is None:
            return None
        listeners = sum(not one.ended_well for one in sightings.values()) - bool(unheard)
        return judgement(verdict, rows[verdict.rank], self._task_name, listeners=listeners, unheard=bool(unheard))

    def _is_stopped(self, rank: int) -> bool:
        return rank in self._sightings and self._sightings[rank].stopped

    def _seen(self, rank: int, now_s: float) -> tuple[RankRow, Ending | None]:
        if rank not in self._sightings:
            return NEW_ROW, None
        row, end = _row_and_ending(self._sightings[rank])
        if row.state == RankState.FAILED:
            row = replace(row, failed_s=self._failed_s.setdefault(rank, now_s))
        return row, end


def judgement(
    verdict: Diagnosis, row: RankRow, task_name: Callable[[int], str], *, listeners: int = 0, unheard: bool = False
) -> Judgement:
    """Put a verdict into the words of the supervisor; the rest as in ``Judgement``."""
    if verdict.reason == _ASKED:
        line = ""
    elif row.refused:
        line = verdict.reason
    else:
        name = task_name(row.task) if row.task >= 0 else ""
        line = str(RankFailure(rank=verdict.rank, step=row.step, task=row.task, task_name=name, reason=verdict.reason))
    return Judgement(rank=verdict.rank, line=line, listeners=listeners, unheard=unheard)


def own_failure(rank: int, seen: Heartbeat, patience: Patience, task_name: Callable[[int], str]) -> Judgement | None:
    """How the run ends by what one guard knows of its own rank, which has ended; None if that was well."""
    row, end = _row_and_ending(seen)
    verdict = Judge(1, patience, is_stopped=lambda _: False).look([row], [end], time.monotonic())
    return judgement(replace(verdict, rank=rank), row, task_name) if verdict else None


def _row_and_ending(seen: Heartbeat) -> tuple[RankRow, Ending | None]:
    row = read_row(seen.row)
    if not seen.ended:
        return row, None
    if row.state not in (RankState.FINISHED, RankState.FAILED) and seen.asked:
        # Whoever asked had a reason: another rank, or Ctrl-C.
        return replace(row, state=RankState.FAILED, consequence=True, reason=_ASKED), Ending()
    if seen.code is None:
        return row, Ending(reason="" if row.state == RankState.FINISHED else "has ended without a word")
    return row, ending(seen.code, [], memory_kill=seen.memory_kill)
