"""Diagnosis of a failed run: the rank that failed first and why, by rules over the status board and the processes."""

import math
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from executor.supervision.status_board import RankRow, RankState
from groundwork.errors import ConfigError, OrreryError

SETTLE_S = 0.3
"""Time in which an earlier failure, or one with a plainer cause, may still appear on the board."""
GRACE_S = 3.0
"""Time in which the cause of a failure that is only a consequence must appear on the board."""
_CHECK_S = 1.0
"""Longest time between two checks that counts as silence of a rank; checks come far more often."""
HANG_CHECKS = 20
"""Checks for hangs in the time allowed for silence: they read the state of every process, which takes time."""

_SLOW_HINT = "; if the task is only slow, allow it more time with --stall-timeout"
_WAIT_HINT = "; check the network between the hosts, and the logs of the other ranks"
_MEMORY_HINT = "; a smaller batch, or a plan for more devices, needs less memory on each rank"
_OUT_OF_MEMORY = "out of memory"
_MEMORY_WORDS = (_OUT_OF_MEMORY, "memoryerror", "allocate memory", "bad_alloc", "outofmemory", "enomem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Times for which a rank may be silent, in seconds."""

    stall_s: float = 20.0
    """Silence in a task, or while all ranks wait; longer than any task takes."""
    start_s: float = 120.0
    save_s: float = 300.0

    def __post_init__(self) -> None:
        for name in ("stall_s", "start_s", "save_s"):
            if not 0 < (value := getattr(self, name)) < math.inf:
                raise ConfigError(f"{name} must be finite and > 0 s, got {value!r}")

    def of(self, state: int) -> float:
        """Return the time that a rank may be silent in a state."""
        return {RankState.STARTING: self.start_s, RankState.SAVING: self.save_s}.get(RankState(state), self.stall_s)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """End of a process."""

    reason: str = ""
    """Reason; empty if the exit code was 0."""
    killed: bool = False
    """True where a signal ended it that only other processes send: then no failure of another rank was the cause."""
    requested: bool = False
    """True where its supervisor was requested to end it: the cause is elsewhere, another rank or Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Rank that failed first, and the reason."""

    rank: int
    reason: str

    def error(self, row: RankRow, task_name: Callable[[int], str]) -> OrreryError:
        """Return the error to raise."""
        if row.refused:
            return ConfigError(self.reason)
        name = task_name(row.task) if row.task >= 0 else ""
        return RankFailure(rank=self.rank, step=row.step, task=row.task, task_name=name, reason=self.reason)


class _Failure(NamedTuple):
    """Failure of one rank; the first of several is the likely cause of the others."""

    by_itself: bool
    """False where another process has killed the rank, or requested its end."""
    failed_s: float
    rank: int
    reason: str
    consequence: bool
    """The failure follows from that of another rank."""
    seen_s: float


class FailureDetector:
    """Repeated checks of all ranks, until one of them has failed or hangs.

    A failure that is a consequence of another, such as a closed connection, is reported only if no other failure
    appears within 3 s; among the others a rank killed from outside comes first, then the earliest.  A rank hangs if
    it has been silent for too long in a task, or if all ranks are silent and the others wait for it.
    """

    def __init__(self, ranks: int, patience: Patience, *, is_stopped: Callable[[int], bool]) -> None:
        """Begin with ranks of which nothing is known."""
        self._patience, self._is_stopped = patience, is_stopped
        self._failures: dict[int, _Failure] = {}
        self._shown: list[object] = [None] * ranks
        self._moved_s, self._ran_s = [0.0] * ranks, [0.0] * ranks
        self._checked_s, self._checked_for_hangs_s = math.inf, 0.0

    def check(
        self,
        rows: Sequence[RankRow],
        endings: Sequence[Ending | None],
        now_s: float,
        looked_s: Sequence[float] | None = None,
    ) -> Diagnosis | None:
        """Return the rank that has failed or hangs, None while there is none.

        Args:
            rows: What each rank says of itself.
            endings: How the processes have ended, None of those that run.
            now_s: Time of the check.
            looked_s: When each rank was last looked at, until which it is known to be silent; unless given, now.
        """
        # If this process was stopped meanwhile, the ranks may have been too: that time does not count as silence.
        lost_s = max(0.0, now_s - self._checked_s - _CHECK_S)
        self._checked_s = now_s
        for rank, row in enumerate(rows):
            self._moved_s[rank] += lost_s
            self._ran_s[rank] += lost_s
            if (shown := (row.state, row.progress)) != self._shown[rank]:
                self._shown[rank], self._moved_s[rank] = shown, now_s
            if rank not in self._failures and (failure := _failure(rank, row, endings[rank], now_s)):
                self._failures[rank] = failure
        alive = [rank for rank, ending in enumerate(endings) if ending is None and rank not in self._failures]
        return self._failed(alive, now_s) or self._hung(rows, alive, now_s, looked_s or [now_s] * len(rows))

    def _failed(self, alive: Sequence[int], now_s: float) -> Diagnosis | None:
        """Return the first failure, once no earlier one can be expected."""
        causes = [failure for failure in self._failures.values() if not failure.consequence]
        failures, wait_s = (causes, SETTLE_S) if causes else (list(self._failures.values()), GRACE_S)
        if not failures or (alive and now_s - min(failure.seen_s for failure in failures) < wait_s):
            return None
        return Diagnosis(rank=min(failures).rank, reason=min(failures).reason)

    def _hung(
        self, rows: Sequence[RankRow], alive: Sequence[int], now_s: float, looked_s: Sequence[float]
    ) -> Diagnosis | None:
        """Return the rank that hangs, None while there is none."""
        between_s = self._patience.stall_s / HANG_CHECKS
        if now_s - self._checked_for_hangs_s < between_s:
            return None
        self._checked_for_hangs_s = now_s
        silent_s = [seen_s - moved_s for seen_s, moved_s in zip(looked_s, self._moved_s, strict=True)]
        longest_first = sorted(alive, key=lambda rank: -silent_s[rank])
        for rank in longest_first:
            if silent_s[rank] >= between_s and not self._is_stopped(rank):
                self._ran_s[rank] = now_s
            # Its silence may have begun long before it was stopped.
            stopped_s = now_s - max(self._moved_s[rank], self._ran_s[rank])
            if silent_s[rank] >= between_s and stopped_s >= self._patience.stall_s:
                return Diagnosis(rank=rank, reason=f"hangs: a signal has stopped it for {stopped_s:.0f} s")
        # One that a signal has stopped meanwhile is left until it has been stopped for long enough to be told so.
        over = [
            rank
            for rank in longest_first
            if silent_s[rank] >= self._patience.of(rows[rank].state) and not self._is_stopped(rank)
        ]
        for rank in over:
            if rows[rank].state not in (RankState.WAITING, RankState.FINISHED):
                state = RankState(rows[rank].state).name.lower()
                hint = _SLOW_HINT if rows[rank].state == RankState.COMPUTING else ""
                return Diagnosis(rank=rank, reason=f"hangs: no progress for {silent_s[rank]:.0f} s while {state}{hint}")
        # A rank may wait for as long as another rank does something.
        if not over or len(over) < len(alive):
            return None
        waiting = [rank for rank in over if rows[rank].state == RankState.WAITING]
        if not waiting:
            return Diagnosis(rank=over[0], reason="hangs: has finished but does not end")
        # Follow the ranks that wait for one another to the one that all others wait for.
        chain = [waiting[0]]
        while (
            rows[chain[-1]].state == RankState.WAITING and 0 <= (peer := rows[chain[-1]].peer) < len(rows)
        ) and peer not in chain:
            chain.append(peer)
        last = chain[-1]
        peer = rows[last].peer
        whom = f"rank {peer}, which waits for it in turn" if peer in chain else f"a message or a collective{_WAIT_HINT}"
        if rows[last].state == RankState.FINISHED:
            # It will send no more, so the rank before it in the chain waits in vain.
            last, whom = chain[-2], f"rank {last}, which has finished"
        return Diagnosis(rank=last, reason=f"hangs: has waited {silent_s[last]:.0f} s for {whom}")


def _failure(rank: int, row: RankRow, ending: Ending | None, now_s: float) -> _Failure | None:
    """Return the failure of a rank, None if it runs or has ended well."""
    if row.state == RankState.FAILED:
        return _Failure(True, row.failed_s, rank, _with_memory_hint(row.reason), bool(row.consequence), now_s)
    if ending is None or (not ending.reason and row.state == RankState.FINISHED):
        return None
    reason = ending.reason or f"ended while {RankState(row.state).name.lower()}, with exit code 0"
    return _Failure(not (ending.killed or ending.requested), now_s, rank, reason, ending.requested, now_s)


def ending(code: int, error_lines: Sequence[str], *, memory_kill: bool) -> Ending:
    """Describe how a process ended.

    Args:
        code: Its exit code; minus the number of a signal that ended it.
        error_lines: Last lines of its standard error.
        memory_kill: True where the system has killed a process of this run because memory ran out.
    """
    if code == 0:
        return Ending()
    killed = code == -signal.SIGKILL
    if killed and memory_kill:
        reason = "out of memory: killed by signal 9, and the control group counts an out-of-memory kill"
    elif killed:
        reason = "killed by signal 9, which the system also sends when memory runs out"
    elif code < 0:
        reason = f"killed by signal {-code} ({signal.strsignal(-code)})"
    else:
        reason = f"ended with exit code {code}"
    if error_lines:
        reason += f"; last error line: {error_lines[-1]}"
    # The line that names the cause may not be the last one.
    return Ending(reason=_with_memory_hint(reason, *error_lines), killed=killed)


def _with_memory_hint(reason: str, *error_lines: str) -> str:
    """Begin a reason by ``out of memory`` where it says so in other words, such as ``MemoryError``, and add a hint."""
    if not any(word in line.lower() for word in _MEMORY_WORDS for line in (reason, *error_lines)):
        return reason
    prefix = "" if reason.lower().startswith(_OUT_OF_MEMORY) else f"{_OUT_OF_MEMORY}: "
    return f"{prefix}{reason}{_MEMORY_HINT}"
