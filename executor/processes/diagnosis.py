"""Which rank of a run failed first, and why: rules over what the board and the system show."""

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from executor.processes.status_board import RankRow, RankState
from hwprofiles import ConfigError

__all__ = ["HANG_LOOKS", "Diagnosis", "Ending", "Judge", "Patience", "ending"]

SETTLE_S = 0.3
"""Time in which an earlier or a plainer failure may still show itself."""
GRACE_S = 3.0
"""Time in which the cause of a mere consequence must show itself."""
_LOOK_S = 1.0
"""The longest time between two looks that counts; looks come far more often."""
HANG_LOOKS = 20
"""Looks for hangs in the time allowed for silence: they ask the system about every process."""

_STOPPED = "a signal has stopped it"
_OUT_OF_MEMORY = "out of memory"
_MEMORY_WORDS = (_OUT_OF_MEMORY, "memoryerror", "allocate memory", "bad_alloc", "outofmemory", "enomem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a rank may be silent, in seconds."""

    stall_s: float
    """In a task, or waiting while nobody else does anything."""
    start_s: float = 120.0
    """Before its first task."""
    save_s: float = 300.0
    """In one checkpoint."""

    def __post_init__(self) -> None:
        for name in ("stall_s", "start_s", "save_s"):
            if not 0 < (value := getattr(self, name)) < math.inf:
                raise ConfigError(f"{name} must be finite and > 0 s, got {value!r}")

    def of(self, state: RankState) -> float:
        """Return the time allowed in a state."""
        return {RankState.STARTING: self.start_s, RankState.SAVING: self.save_s}.get(state, self.stall_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a process has ended."""

    reason: str = ""
    """Empty if its exit code was 0."""
    killed: bool = False
    """By a signal that only others send, so surely not as a consequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The rank that ended the run, and why."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    rank: int
    reason: str
    consequence: bool
    killed: bool
    failed_s: float
    seen_s: float


class Judge:
    """Looks at the ranks again and again until one is to blame.

    A failure that is a consequence of another, such as a closed connection, is blamed only if no other shows itself
    within 3 s; among the others a rank killed from outside comes first, then the earliest.  A rank hangs if it has
    been silent for too long in a task, or if all are silent and the others wait for it.
    """

    def __init__(
        self, ranks: int, patience: Patience, *, is_stopped: Callable[[int], bool], stopped: str = _STOPPED
    ) -> None:
        """Begin to watch.

        Args:
            ranks: How many there are.
            patience: How long they may be silent.
            is_stopped: Whether a signal has stopped a rank's process; asked rarely.
            stopped: What that means, where it is not a signal; words before "for 20 s".
        """
        self._patience, self._is_stopped, self._stopped = patience, is_stopped, stopped
        self._failures: dict[int, _Failure] = {}
        self._shown: list[object] = [None] * ranks
        self._moved_s = [0.0] * ranks
        self._looked_s, self._looked_for_hangs_s = math.inf, 0.0

    def look(self, rows: Sequence[RankRow], endings: Sequence[Ending | None], now_s: float) -> Diagnosis | None:
        """Return the rank to blame, None while there is none.

        Args:
            rows: The board.
            endings: Per rank; None while it runs.
            now_s: Time of the look, on the board's clock.
        """
        # Where the watcher itself was stopped, so may the ranks have been: that time is not held against them.
        lost_s = max(0.0, now_s - self._looked_s - _LOOK_S)
        self._looked_s = now_s
        for rank, row in enumerate(rows):
            self._moved_s[rank] += lost_s
            if (shown := (row.state, row.progress)) != self._shown[rank]:
                self._shown[rank], self._moved_s[rank] = shown, now_s
            if rank not in self._failures and (failure := _failure(rank, row, endings[rank], now_s)):
                self._failures[rank] = failure
        alive = [rank for rank, ending in enumerate(endings) if ending is None and rank not in self._failures]
        return self._failed(alive, now_s) or self._hung(rows, alive, now_s)

    def _failed(self, alive: Sequence[int], now_s: float) -> Diagnosis | None:
        causes = [failure for failure in self._failures.values() if not failure.consequence]
        found, wait_s = (causes, SETTLE_S) if causes else (list(self._failures.values()), GRACE_S)
        if not found or (alive and now_s - min(failure.seen_s for failure in found) < wait_s):
            return None
        first = min(found, key=lambda failure: (not failure.killed, failure.failed_s, failure.rank))
        return Diagnosis(rank=first.rank, reason=first.reason)

    def _hung(self, rows: Sequence[RankRow], alive: Sequence[int], now_s: float) -> Diagnosis | None:
        stall_s = self._patience.stall_s
        if now_s - self._looked_for_hangs_s < stall_s / HANG_LOOKS:
            return None
        self._looked_for_hangs_s = now_s
        silent_s = {rank: now_s - self._moved_s[rank] for rank in alive}
        longest_first = sorted(alive, key=lambda rank: -silent_s[rank])
        for rank in longest_first:
            if silent_s[rank] >= stall_s and self._is_stopped(rank):
                return Diagnosis(rank=rank, reason=f"hangs: {self._stopped} for {silent_s[rank]:.0f} s")
        over = [rank for rank in longest_first if silent_s[rank] >= self._patience.of(rows[rank].state)]
        for rank in over:
            if rows[rank].state not in (RankState.WAITING, RankState.FINISHED):
                state = rows[rank].state.name.lower()
                return Diagnosis(rank=rank, reason=f"hangs: no progress for {silent_s[rank]:.0f} s while {state}")
        # One may wait for as long as another does something.
        if not over or len(over) < len(alive):
            return None
        waiting = [rank for rank in over if rows[rank].state == RankState.WAITING]
        if not waiting:
            return Diagnosis(rank=over[0], reason="hangs: has finished but does not end")
        return _end_of_chain(rows, waiting[0], [now_s - moved_s for moved_s in self._moved_s])


def _failure(rank: int, row: RankRow, ending: Ending | None, now_s: float) -> _Failure | None:
    failed_s, killed = now_s, False
    if row.state == RankState.FAILED:
        reason, failed_s = _named_out_of_memory(row.reason), row.failed_s
    elif ending is None or (not ending.reason and row.state == RankState.FINISHED):
        return None
    else:
        reason, killed = ending.reason or f"ended while {row.state.name.lower()}, with exit code 0", ending.killed
    return _Failure(
        rank=rank, reason=reason, consequence=row.consequence, killed=killed, failed_s=failed_s, seen_s=now_s
    )


def _end_of_chain(rows: Sequence[RankRow], first: int, silent_s: Sequence[float]) -> Diagnosis:
    """Follow who waits for whom, to the rank that the others wait for."""
    chain = [first]
    while (
        rows[chain[-1]].state == RankState.WAITING and 0 <= (peer := rows[chain[-1]].peer) < len(rows)
    ) and peer not in chain:
        chain.append(peer)
    last = chain[-1]
    peer = rows[last].peer
    whom = f"rank {peer}, which waits for it in turn" if peer in chain else "a message or a collective"
    if rows[last].state == RankState.FINISHED:
        # It will send no more, so the one before it waits for what nobody sends.
        last, whom = chain[-2], f"rank {last}, which has finished"
    return Diagnosis(rank=last, reason=f"hangs: has waited {silent_s[last]:.0f} s for {whom}")


def ending(code: int, error_lines: Sequence[str], *, memory_kill: bool) -> Ending:
    """Say how a process ended.

    Args:
        code: Its exit code; minus the number of a signal that ended it.
        error_lines: The last lines of its standard error.
        memory_kill: The system has killed a process of this run for want of memory.
    """
    if code == 0:
        return Ending()
    killed = code == -signal.SIGKILL
    if killed and memory_kill:
        reason = "out of memory: killed by signal 9, and the control group counts a kill for want of memory"
    elif killed:
        reason = "killed by signal 9, which the system also sends when memory runs out"
    elif code < 0:
        reason = f"killed by signal {-code} ({signal.strsignal(-code)})"
    else:
        reason = f"ended with exit code {code}"
    if error_lines:
        reason += f"; its last words: {error_lines[-1]}"
    # The line that tells may not be the last.
    if any(_is_out_of_memory(line) for line in error_lines):
        reason = _prefixed(reason)
    return Ending(reason=reason, killed=killed)


def _named_out_of_memory(reason: str) -> str:
    """Put ``out of memory`` before a reason that means it in other words, such as ``MemoryError``."""
    return _prefixed(reason) if _is_out_of_memory(reason) else reason


def _is_out_of_memory(text: str) -> bool:
    return any(word in text.lower() for word in _MEMORY_WORDS)


def _prefixed(reason: str) -> str:
    return reason if reason.lower().startswith(_OUT_OF_MEMORY) else f"{_OUT_OF_MEMORY}: {reason}"
