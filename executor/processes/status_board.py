"""Status board: a small file in shared memory in which every rank writes what it does, for its supervisor to read."""

import mmap
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from groundwork.errors import ConfigError

BOARD_VARIABLE = "ORRERY_STATUS_BOARD"
"""Environment variable with the board's path, set by the supervisor for its ranks."""

_MAGIC = b"orrery01"
_HEADER_BYTES = 64
_WORD_BYTES = 8
_REASON_BYTES = 2048
_ROW_BYTES = 128 + _REASON_BYTES

# Words of a row.  Each is stored at once, by its own rank only, so no lock is needed.
_STATE, _STEP, _TASK, _PEER, _PROGRESS, _PID, _CONSEQUENCE, _REASON_LENGTH = range(8)
_STARTED_S, _FAILED_S, _LOSS, _SAMPLES_PER_S = range(8, 12)
_REFUSED = 12
_REASON = 16


class RankState(IntEnum):
    """State of a rank.  A new board is all zeros, so ``STARTING`` is zero."""

    STARTING = 0
    COMPUTING = 1
    WAITING = 2
    """The rank waits for a message or a collective, and so for other ranks."""
    SAVING = 3
    FINISHED = 4
    FAILED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """Row of one rank as it was read."""

    state: RankState
    step: int
    """Training step; -1 before the first."""
    task: int
    """Id of the task in the program; -1 between tasks."""
    peer: int
    """Rank that a waiting rank waits for; -1 if none or unknown."""
    progress: int
    """Count that changes whenever the rank does anything."""
    pid: int
    """Id of the process as the rank sees it, which differs outside its process namespace; 0 before it started."""
    started_s: float
    """Time at which the rank opened its row, on the system's monotonic clock; 0 before it started."""
    failed_s: float
    """Time at which the rank failed, on the same clock; 0 if it did not."""
    loss: float
    samples_per_s: float
    reason: str
    """Reason of the rank's failure; empty if it did not fail."""
    consequence: bool
    """The failure follows from that of another rank, such as a closed connection."""
    refused: bool
    """The rank has failed because its input cannot be used."""


class RankStatus:
    """Writer of one rank's row.  A call takes well under 2 microseconds, so it may stand around every task."""

    __slots__ = ("_count", "_numbers", "_text", "_words")

    def __init__(self, row: memoryview) -> None:
        self._words, self._numbers = row[: _REASON * _WORD_BYTES].cast("q"), row[: _REASON * _WORD_BYTES].cast("d")
        self._text = row[_REASON * _WORD_BYTES :]
        self._count = 0
        self._words[_PID] = os.getpid()
        self._numbers[_STARTED_S] = time.monotonic()

    def at(self, task: int, state: RankState, peer: int = -1) -> None:
        """Write what the rank does from now on.

        Args:
            task: Id in the program; -1 outside of tasks.
            state: State of the rank; ``FINISHED`` only when nothing is left to do but to exit.
            peer: Rank that it waits for, where it is one rank.
        """
        words = self._words
        words[_TASK], words[_PEER], words[_STATE] = task, peer, state
        self._count += 1
        words[_PROGRESS] = self._count

    def step(self, step: int, loss: float = float("nan"), samples_per_s: float = float("nan")) -> None:
        """Write which step begins, and the loss and the speed of the step before it."""
        self._numbers[_LOSS], self._numbers[_SAMPLES_PER_S] = loss, samples_per_s
        self._words[_STEP] = step
        self._count += 1
        self._words[_PROGRESS] = self._count

    def fail(self, reason: str, *, consequence: bool = False, refused: bool = False) -> None:
        """Write why the rank ends; the first reason stays.  The task and the step stay those at which it failed.

        Args:
            reason: Reason of the failure; the first 2048 bytes are kept.
            consequence: True where another rank's failure caused this one, such as a connection that the other closed.
            refused: True where the input of the user cannot be used.
        """
        words = self._words
        if words[_STATE] == RankState.FAILED:
            return
        text = reason.encode(errors="replace")[:_REASON_BYTES]
        self._text[: len(text)] = text
        words[_REASON_LENGTH], words[_CONSEQUENCE], words[_REFUSED] = len(text), consequence, refused
        self._numbers[_FAILED_S] = time.monotonic()
        # Last, so that a reader that sees the state finds the reason.
        words[_STATE] = RankState.FAILED

    def row(self) -> bytes:
        """Return a copy of the row as it lies in memory, for ``read_row``; without a reason it has 128 bytes."""
        return bytes(self._words) + bytes(self._text[: self._words[_REASON_LENGTH]])


class StatusBoard:
    """File of one row a rank, mapped into memory; it is best put where nothing writes it to a disk (``/dev/shm``)."""

    def __init__(self, path: Path, memory: mmap.mmap) -> None:
        self.path = path
        self._memory = memoryview(memory)
        self.ranks = (len(self._memory) - _HEADER_BYTES) // _ROW_BYTES

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
        partial.write_bytes(_MAGIC.ljust(_HEADER_BYTES, b"\0") + _empty_row() * ranks)
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
            if head != _MAGIC or (size - _HEADER_BYTES) % _ROW_BYTES:
                raise ConfigError(f"status board {str(path)!r} must be a file that StatusBoard.create wrote")
            return cls(path, mmap.mmap(file.fileno(), size))

    def writer(self, rank: int) -> RankStatus:
        """Return the writer of a rank's row; only that rank's process may use it.

        Raises:
            ConfigError: The board has no such rank.
        """
        if not 0 <= rank < self.ranks:
            raise ConfigError(f"rank must be in 0 to {self.ranks - 1}, got {rank}")
        return RankStatus(self._row(rank))

    def rows(self) -> list[RankRow]:
        """Read every row.  Fields of a row that is being written may come from two moments."""
        return [read_row(self._row(rank)) for rank in range(self.ranks)]

    def _row(self, rank: int) -> memoryview:
        first = _HEADER_BYTES + rank * _ROW_BYTES
        return self._memory[first : first + _ROW_BYTES]


def read_row(row: bytes | bytearray | memoryview) -> RankRow:
    """Read a row of the board, or a copy that ``RankStatus.row`` returned."""
    whole = memoryview(row)
    head = whole[: _REASON * _WORD_BYTES]
    words, numbers = head.cast("q"), head.cast("d")
    text = whole[_REASON * _WORD_BYTES :][: words[_REASON_LENGTH]]
    return RankRow(
        state=RankState(words[_STATE]),
        step=words[_STEP],
        task=words[_TASK],
        peer=words[_PEER],
        progress=words[_PROGRESS],
        pid=words[_PID],
        started_s=numbers[_STARTED_S],
        failed_s=numbers[_FAILED_S],
        loss=numbers[_LOSS],
        samples_per_s=numbers[_SAMPLES_PER_S],
        # The end of the kept bytes may have split the last character.
        reason=bytes(text).decode(errors="ignore"),
        consequence=bool(words[_CONSEQUENCE]),
        refused=bool(words[_REFUSED]),
    )


def _empty_row() -> bytearray:
    row = bytearray(_ROW_BYTES)
    words, numbers = memoryview(row).cast("q"), memoryview(row).cast("d")
    words[_STEP] = words[_TASK] = words[_PEER] = -1
    numbers[_LOSS] = numbers[_SAMPLES_PER_S] = float("nan")
    return row


NEW_ROW = read_row(_empty_row())
"""Row of a rank that has not started."""


def own_status(rank: int, environment: Mapping[str, str] = os.environ) -> RankStatus:
    """Return the writer of this process's row: on the supervisor's board, else in memory that only its forks can read.

    Args:
        rank: Rank of this process.
        environment: Environment variables; ``ORRERY_STATUS_BOARD`` names the board where there is a supervisor.

    Raises:
        ConfigError: The named file is no board, or has no such rank.
        OSError: The named file cannot be opened.
    """
    if path := environment.get(BOARD_VARIABLE):
        return StatusBoard.open(Path(path)).writer(rank)
    memory = mmap.mmap(-1, _ROW_BYTES)
    memory[:] = bytes(_empty_row())
    return RankStatus(memoryview(memory))
