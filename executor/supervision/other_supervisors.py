"""Supervisors of one rank each, as torchrun starts them: together they watch all ranks and agree how the run ends.

torchrun ends ranks when one of its processes has ended, but does not see one that hangs.  Each supervisor publishes
heartbeats of its rank; that of rank 0 diagnoses failures by the rules for all, and the others check that its
heartbeats go on.  Machines have clocks of their own: ages are taken by the reader's clock.
"""

import math
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import psutil

from executor.rendezvous.rank_environment import RankEnvironment
from executor.supervision.diagnosis import HANG_CHECKS, Diagnosis, Ending, FailureDetector, Patience
from executor.supervision.heartbeats import Heartbeat, HeartbeatExchange, RunEnd
from executor.supervision.status_board import RankRow, RankState, StatusBoard

REQUESTED = Ending(reason="was requested to end", requested=True)
"""End of a rank whose cause is elsewhere: another rank, or Ctrl-C."""
_BEAT_S = 0.5
"""Time between two heartbeats; less where ranks may be silent for a short time only."""
_UNHEARD_S = 40.0
"""Time until the first heartbeat of every rank under torchrun, which starts all at about the same time: one lost before
would else keep the others for as long as a start may take."""
_REQUESTED_SILENT_S = 2.0
"""Silence of a supervisor once torchrun has requested an end, for which one that was killed is a likely cause."""
_PAUSE_S = 1.0
"""Time between two checks that shows that this process was stopped: that time is no silence of others."""
_LEAVE_S = 5.0
"""Time in which ranks may end after the store has gone, and in which a failure must be agreed on."""
_YIELD_S, _PRINTED_S = 0.5, 1.0
"""Time for which one without a store lets others print whose ranks may be the cause, and keeps them from it."""
_REPLY_S = 1.0
"""Least time for the store to reply; longer where ranks may be silent for longer."""


class OtherSupervisors:
    """Supervisors of the other ranks, as the one of this rank knows them."""

    def __init__(self, where: RankEnvironment, patience: Patience) -> None:
        """Begin without any heartbeat."""
        self.rank, self.ranks = where.rank, where.ranks
        self._address, self._patience = f"{where.address}:{where.port}", patience
        self._beat_s = min(_BEAT_S, patience.stall_s / HANG_CHECKS)
        self._unheard_s = min(_UNHEARD_S, patience.start_s) if "TORCHELASTIC_RUN_ID" in os.environ else patience.start_s
        launcher = f"{os.getppid()} on {socket.gethostname()}"
        own = Heartbeat(row=RankRow.new().packed(), pid=os.getpid(), launcher=launcher)
        self.exchange = HeartbeatExchange(where, own, beat_s=self._beat_s, connect_s=self._unheard_s)
        self._known: dict[int, Heartbeat] = {}
        self._detector = FailureDetector(
            self.ranks, patience, is_stopped=lambda rank: rank in self._known and self._known[rank].stopped
        )
        self._failed_s: dict[int, float] = {}
        self._heard: dict[int, tuple[int, float]] = {}
        """Count of each rank's last heartbeat, and when it came."""
        self._looks: dict[int, tuple[int, float]] = {}
        """How often each rank's supervisor has looked at it, and when that was heard."""
        self._looked_s, self._progress = 0.0, -1
        """Time at which the own rank was looked at, and its progress then."""
        self._checked_s = self._ended_s = self._lost_s = math.inf
        self._resumed_s = 0.0
        """Time at which this process was found to have been stopped."""

    def check(
        self,
        board: StatusBoard,
        endings: list[Ending | None],
        now_s: float,
        *,
        is_stopped: Callable[[], bool],
        requested: bool,
    ) -> Diagnosis | None:
        """Tell the others of the own rank, and return the rank by which the run ends, None while it goes on.

        Args:
            board: Board with the own rank's row; gets those of the others.
            endings: With the end of the own rank's process; gets those of the others.
            now_s: Time of the check, on the clock of this process.
            is_stopped: Returns whether the own rank's process has been stopped.
            requested: Whether the end of this supervisor has been requested.
        """
        if now_s - self._checked_s > _PAUSE_S:
            self._resumed_s = now_s
        self._checked_s = now_s
        self._tell(board, endings, is_stopped, requested=requested)
        if end := self.exchange.end:
            if end.rank != self.rank:
                board.put(end.rank, RankRow.unpacked(end.row))
            return Diagnosis(rank=end.rank, reason=end.reason)
        own = self.exchange.own
        if self._lost(now_s) or (own.ending and not own.ended_well and now_s - self._ended_s > _LEAVE_S):
            return self._diagnosed_alone(own, now_s)
        self._known = {**self.exchange.heartbeats, self.rank: own}
        for rank in self._known.keys() - {self.rank}:
            row, endings[rank] = RankRow.unpacked(self._known[rank].row), self._known[rank].ending
            if row.state == RankState.FAILED:
                row.failed_s = self._failed_s.setdefault(rank, now_s)  # its own time is on another machine's clock
            board.put(rank, row)
        for rank, known in self._known.items():
            if rank not in self._looks or self._looks[rank][0] != known.looks:
                self._looks[rank] = known.looks, now_s
        silent = self._silent(now_s) if self.exchange.published else None
        diagnosis = silent or (self._judged(board, endings, now_s) if self.rank == 0 else None)
        if diagnosis and self.exchange.proposed is None:
            heard = {rank: each for rank, each in self._known.items() if not silent or rank != silent.rank}
            self.exchange.proposed = RunEnd(
                rank=diagnosis.rank,
                reason=diagnosis.reason,
                row=board.rows()[diagnosis.rank].packed(),
                receivers=sum(not each.ended_well for each in heard.values()) if self.rank == 0 else self.ranks - 1,
                silent=self._known.get(silent.rank) if silent else None,
            )
            self.exchange.changed.set()
        return None

    def _judged(self, board: StatusBoard, endings: list[Ending | None], now_s: float) -> Diagnosis | None:
        """Return the rank that has failed or hangs, None while there is none."""
        looked_s = [self._looks[rank][1] if rank in self._looks else now_s for rank in range(self.ranks)]
        return self._detector.check(board.rows(), endings, now_s, looked_s)

    def all_finished(self) -> bool:
        """Return whether the own rank has finished, and on rank 0, which shows how the run went, all ranks have."""
        exchange = self.exchange
        if not exchange.own.ended_well or not (exchange.lost or exchange.published is exchange.own):
            return False
        heartbeats = exchange.heartbeats.values()
        everyone = len(heartbeats) == self.ranks and all(each.ended_well for each in heartbeats)
        return self.rank > 0 or bool(exchange.lost) or everyone

    def leave(self) -> None:
        """Wait until the others know how the run ends, and kill one of this machine that a signal has stopped."""
        exchange = self.exchange
        if exchange.end is None:
            time.sleep(_YIELD_S if RankRow.unpacked(exchange.own.row).consequence else 0.0)
            time.sleep(_PRINTED_S if exchange.prints else 0.0)
            return
        silent = exchange.end.silent
        if silent and silent.launcher == exchange.own.launcher:
            # The id may belong to another process by now: its parent shows that it does not.
            with suppress(psutil.Error, ProcessLookupError):
                if psutil.Process(silent.pid).ppid() == os.getppid():
                    os.kill(silent.pid, signal.SIGKILL)
        exchange.join(_LEAVE_S)

    def _tell(
        self, board: StatusBoard, endings: list[Ending | None], is_stopped: Callable[[], bool], *, requested: bool
    ) -> None:
        """Let the exchange publish the state of the own rank."""
        own, row, ending, now_s = self.exchange.own, board.rows()[self.rank], endings[self.rank], self._checked_s
        if ending and requested and row.state not in (RankState.FINISHED, RankState.FAILED):
            ending = endings[self.rank] = REQUESTED
        stopped = own.stopped and ending is None
        looks = own.looks
        if ending is None and now_s - self._looked_s >= self._beat_s:
            stopped, looks = row.progress == self._progress and is_stopped(), looks + 1
            self._looked_s, self._progress = now_s, row.progress
        told = replace(own, row=row.packed(), stopped=stopped, looks=looks, ending=ending, requested=requested)
        if told != own:
            self.exchange.own = told
        if ending != own.ending or requested != own.requested:
            self._ended_s = now_s
            self.exchange.changed.set()

    def _silent(self, now_s: float) -> Diagnosis | None:
        """Return a rank whose supervisor is silent: its machine is lost, or both have been stopped or killed."""
        requested = any(each.requested for each in self._known.values())
        patience_s = min(_REQUESTED_SILENT_S, self._patience.stall_s) if requested else self._patience.stall_s
        for rank in range(self.ranks if self.rank == 0 else 1):
            heartbeat = self._known.get(rank)
            if rank == self.rank or (heartbeat and heartbeat.ending):
                continue
            beat = heartbeat.beat if heartbeat else 0
            if rank not in self._heard or self._heard[rank][0] != beat:
                self._heard[rank] = beat, now_s
            silent_s = now_s - max(self._heard[rank][1], self._resumed_s)
            if heartbeat is None and silent_s >= self._unheard_s:
                return Diagnosis(rank=rank, reason=f"hangs: no progress for {silent_s:.0f} s while starting")
            if heartbeat and silent_s >= patience_s:
                reason = f"hangs: its process and its supervisor have been silent for {silent_s:.0f} s"
                return Diagnosis(rank=rank, reason=reason)
        return None

    def _lost(self, now_s: float) -> bool:
        """Return whether the store is of no use any more."""
        exchange = self.exchange
        reply_s = max(self._patience.stall_s, _REPLY_S) + self._beat_s
        if not exchange.lost and exchange.published and now_s - max(exchange.replied_s, self._resumed_s) > reply_s:
            exchange.lost = "got no reply from the store"
        if exchange.lost:
            self._lost_s = min(self._lost_s, now_s)
        return bool(exchange.lost)

    def _diagnosed_alone(self, own: Heartbeat, now_s: float) -> Diagnosis | None:
        """Return the failure of the own rank, which gets time to end by itself, as all do at the end of a run."""
        row = RankRow.unpacked(own.row)
        if own.ending and not (self.exchange.refused and row.consequence):
            detector = FailureDetector(1, self._patience, is_stopped=lambda _: False)
            diagnosis = detector.check([row], [own.ending], now_s)
            return diagnosis and replace(diagnosis, rank=self.rank)
        if own.ending is None and now_s - self._lost_s < _LEAVE_S:
            return None
        return Diagnosis(rank=self.rank, reason=f"{self.exchange.lost}: {self._address}, where the ranks meet")
