"""Recorded execution of tasks, or waits of the predicted duration in their place."""

from collections.abc import Callable
from dataclasses import dataclass

from executor.program.recorder import Recorder
from executor.supervision.status_board import RankState, RankStatus
from planner.lowering.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInMode:
    """Kinds of tasks that are not computed: a wait of the duration that the program predicts stands in for each."""

    arithmetic: bool = False
    compression: bool = False
    """Compression and decompression of messages."""


class TaskTimer:
    """Runs tasks, records their start and end, and reports them to the status board."""

    def __init__(self, program: Program, recorder: Recorder, status: RankStatus, stand_in: StandInMode) -> None:
        self._program, self._recorder, self._status = program, recorder, status
        self.stand_in = stand_in

    def arithmetic(self, task: int, work: Callable[[], None]) -> None:
        """Run a task of a layer's forward pass, backward pass or update."""
        self._run(task, work, waits=self.stand_in.arithmetic)

    def compression(self, task: int, work: Callable[[], None]) -> None:
        """Run a task that compresses or decompresses messages."""
        self._run(task, work, waits=self.stand_in.compression)

    def _run(self, task: int, work: Callable[[], None], *, waits: bool) -> None:
        self._status.at(task, RankState.COMPUTING)
        self._recorder.timed(task, work, least_s=float(self._program.work_s[task]) if waits else 0.0)
