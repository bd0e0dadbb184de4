"""Status board: a small file in shared memory in which every rank writes what it does, for its supervisor to read."""

import ctypes
import math
import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Self

from groundwork.errors import ConfigError
from groundwork.progress import Progress

BOARD_VARIABLE = "ORRERY_STATUS_BOARD"
"""Environment variable with the board's path, set by the supervisor for its ranks."""

_MAGIC = b"orrery02"
_HEADER_BYTES = 64
_REASON_BYTES = 2048


class RankState(IntEnum):
    """State of a rank.  A new board is all zeros, so ``STARTING`` is zero."""

    STARTING = 0
    COMPUTING = 1
    WAITING = 2
    """The rank waits for a message or a collective, and so for other ranks."""
    SAVING = 3
    FINISHED = 4
    FAILED = 5


class RankRow(ctypes.Structure):
    """Row of one rank.  Each number is stored at once, by its own rank only, so no lock is needed."""

    state: int
    """``RankState``."""
    step: int
    """Training step; -1 before the first."""
    task: int
    """Id of the task in the program; -1 between tasks."""
    peer: int
    """Rank that a waiting rank waits for; -1 if none or unknown."""
    progress: int
    pid: int
    """Id of the process as the rank sees it, which differs outside its process namespace; 0 before it started."""
    consequence: int
    """1 where the failure follows from that of another rank, such as a closed connection."""
    refused: int
    """1 where the rank has failed because its input cannot be used."""
    started_s: float
    """Time at which the rank opened its row, on the system's monotonic clock; 0 before it started."""
    failed_s: float
    """Time at which the rank failed, on the same clock; 0 if it did not."""
    loss: float
    samples_per_s: float
    _reason_bytes: int
    _text: "ctypes.Array[ctypes.c_ubyte]"

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("state", "step", "task", "peer", "progress", "pid")),
        *((name, ctypes.c_int64) for name in ("consequence", "refused", "_reason_bytes")),
        *((name, ctypes.c_double) for name in ("started_s", "failed_s", "loss", "samples_per_s")),
        ("_text", ctypes.c_ubyte * _REASON_BYTES),
    ]

    @classmethod
    def new(cls) -> Self:
        """Return the row of a rank that has not started."""
        return cls(step=-1, task=-1, peer=-1, loss=float("nan"), samples_per_s=float("nan"))

    @classmethod
    def unpacked(cls, content: bytes) -> Self:
        """Return the row that ``packed`` returned."""
        return cls.from_buffer_copy(content.ljust(ctypes.sizeof(cls), b"\0"))

    def packed(self) -> bytes:
        """Return a copy of the row; without a reason it has about 100 bytes."""
        return bytes(self).rstrip(b"\0")

    @property
    def reason(self) -> str:
        """Reason of the rank's failure; empty if it did not fail."""
        # The end of the kept bytes may have split the last character.
        return bytes(self._text[: self._reason_bytes]).decode(errors="ignore")


class RankStatus:
    """Writer of one rank's row.  A call takes well under 2 microseconds, so it may stand around every task."""

    __slots__ = ("row",)

    def __init__(self, row: RankRow) -> None:
        """Begin to write a row, which lies in shared memory."""
        self.row = row
        row.pid, row.started_s = os.getpid(), time.monotonic()

    def at(self, task: int, state: RankState, peer: int = -1) -> None:
        """Write what the rank does from now on.

        Args:
            task: Id in the program; -1 outside of tasks.
            state: State of the rank; ``FINISHED`` only when nothing is left to do but to exit.
            peer: Rank that it waits for, where it is one rank.
        """
        row = self.row
        row.task, row.peer, row.state = task, peer, state
        row.progress += 1

    def step(self, step: int, loss: float = float("nan"), samples_per_s: float = float("nan")) -> None:
        """Write which step begins, and the loss and the speed of the step before it."""
        row = self.row
        row.loss, row.samples_per_s, row.step = loss, samples_per_s, step
        row.progress += 1

    def fail(self, reason: str, *, consequence: bool = False, refused: bool = False) -> None:
        """Write why the rank ends; the first reason stays.  The task and the step stay those at which it failed.

        Args:
            reason: Reason of the failure; the first 2048 bytes are kept.
            consequence: True where another rank's failure caused this one, such as a connection that the other closed.
            refused: True where the input of the user cannot be used.
        """
        row = self.row
        if row.state == RankState.FAILED:
            return
        text = reason.encode(errors="replace")[:_REASON_BYTES]
        row._text[: len(text)] = list(text)
        row._reason_bytes, row.consequence, row.refused = len(text), consequence, refused
        row.failed_s = time.monotonic()
        # Last, so that a reader that sees the state finds the reason.
        row.state = RankState.FAILED


class StatusBoard:
    """File of one row a rank, mapped into memory; it is best put where nothing writes it to a disk (``/dev/shm``)."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self.ranks = (len(memory) - _HEADER_BYTES) // ctypes.sizeof(RankRow)
        self._rows = (RankRow * self.ranks).from_buffer(memory, _HEADER_BYTES)

    @classmethod
    def create(cls, path: Path, ranks: int) -> "StatusBoard":
        """Write an empty board and open it.

        Args:
            path: Path of the file; one that exists is replaced.
            ranks: Number of rows, >= 1.

        Raises:
            ConfigError: ``ranks`` < 1.
            OSError: The file cannot be written.
        """
        if ranks < 1:
            raise ConfigError(f"ranks must be >= 1, got {ranks}")
        partial = path.with_name(f"{path.name}.part")
        partial.write_bytes(_MAGIC.ljust(_HEADER_BYTES, b"\0") + bytes(RankRow.new()) * ranks)
        partial.replace(path)
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "StatusBoard":
        """Map a board that exists.

        Raises:
            ConfigError: The file is no status board.
            OSError: The file cannot be read and written.
        """
        with path.open("r+b") as file:
            head, size = file.read(len(_MAGIC)), os.fstat(file.fileno()).st_size
            if head != _MAGIC or (size - _HEADER_BYTES) % ctypes.sizeof(RankRow):
                raise ConfigError(f"status board {str(path)!r} must be a file that StatusBoard.create wrote")
            return cls(path, mmap.mmap(file.fileno(), size))

    def writer(self, rank: int) -> RankStatus:
        """Return the writer of a rank's row; only that rank's process may use it.

        Raises:
            ConfigError: The board has no such rank.
        """
        if not 0 <= rank < self.ranks:
            raise ConfigError(f"rank must be in 0 to {self.ranks - 1}, got {rank}")
        return RankStatus(self._rows[rank])

    def rows(self) -> list[RankRow]:
        """Copy every row.  Fields of a row that is being written may come from two moments."""
        return [RankRow.from_buffer_copy(row) for row in self._rows]

    def put(self, rank: int, row: RankRow) -> None:
        """Write the row of a rank of another supervisor."""
        self._rows[rank] = row


def own_status(rank: int, environment: Mapping[str, str] = os.environ) -> RankStatus:
    """Return the writer of this process's row: on the supervisor's board, or one that only this process reads.

    Args:
        rank: Rank of this process.
        environment: Environment variables; ``ORRERY_STATUS_BOARD`` names the board where there is a supervisor.

    Raises:
        ConfigError: The named file is no board, or has no such rank.
        OSError: The named file cannot be opened.
    """
    if path := environment.get(BOARD_VARIABLE):
        return StatusBoard.open(Path(path)).writer(rank)
    return RankStatus(RankRow.new())


def reporter(
    progress: Progress | None, label: Callable[[Sequence[RankRow]], str], total: int
) -> Callable[[Sequence[RankRow]], None] | None:
    """Return the callback of ``supervise`` that reports progress; None without a report.

    Args:
        progress: Called as ``progress(label, done, total)``, with the number of steps that every rank has begun.
        label: Returns a description of what the rows of the board show.
        total: Steps of the whole job.
    """
    if progress is None:
        return None
    report = progress

    def show(rows: Sequence[RankRow]) -> None:
        report(label(rows), max(min(row.step for row in rows), 0), total)

    return show


def loss_of(rows: Sequence[RankRow]) -> str:
    """Return the loss, which is the sum of the ranks' shares, once all ranks have one; until then ``starting``."""
    losses = [row.loss for row in rows]
    return "starting" if any(map(math.isnan, losses)) else f"loss {sum(losses):.4g}"
