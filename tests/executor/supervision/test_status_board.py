"""The board of what every rank does."""

import subprocess
import sys
import timeit

import pytest
from hypothesis import given, settings, strategies as st

from executor.supervision.status_board import BOARD_VARIABLE, RankState, StatusBoard, own_status
from groundwork.errors import ConfigError


def test_another_process_reads_what_a_rank_writes(tmp_path):
    """Every field arrives, in the row of its rank, and the other rows stay as they were."""
    board = StatusBoard.create(tmp_path / "board", 3)
    writer = """
from executor.supervision.status_board import RankState, own_status
status = own_status(1)
status.step(4, loss=0.25, samples_per_s=12.5)
status.at(9, RankState.WAITING, peer=2)
"""
    environment = {BOARD_VARIABLE: str(board.path)}

    before = board.rows()
    subprocess.run([sys.executable, "-c", writer], env=environment, check=True, timeout=30)
    after = board.rows()

    row = after[1]
    assert (row.state, row.step, row.task, row.peer) == (RankState.WAITING, 4, 9, 2)
    assert (row.loss, row.samples_per_s, row.reason) == (0.25, 12.5, "")
    assert row.progress != before[1].progress
    assert row.pid > 0
    assert row.started_s > 0
    assert (before[0].state, before[0].step, before[0].task, before[0].peer) == (RankState.STARTING, -1, -1, -1)
    assert [row.packed() for row in after[::2]] == [row.packed() for row in before[::2]]


@settings(max_examples=8)
@given(reason=st.text(max_size=3000), consequence=st.booleans())
def test_a_reason_is_kept_up_to_two_kilobytes(tmp_path_factory, reason, consequence):
    """Longer text is cut between two characters; the first reason stays."""
    board = StatusBoard.create(tmp_path_factory.getbasetemp() / "board", 2)
    status = board.writer(0)

    status.fail(reason, consequence=consequence)
    status.fail("too late", consequence=not consequence)

    row, other = board.rows()
    known = reason.encode(errors="replace").decode()
    assert row.state == RankState.FAILED
    assert row.failed_s >= row.started_s
    assert bool(row.consequence) is consequence
    assert known.startswith(row.reason)
    assert len(known.encode()) <= 2048 or 2044 < len(row.reason.encode()) <= 2048
    assert len(known.encode()) > 2048 or row.reason == known
    assert (other.state, other.reason) == (RankState.STARTING, "")


def test_every_call_is_progress():
    """A call costs less than 2 microseconds, for it is made twice a task."""
    status = own_status(0, {})

    def calls():
        status.at(3, RankState.COMPUTING)
        status.step(3, 0.5, 8.0)

    assert min(timeit.repeat(calls, number=1000, repeat=50)) / 2000 < 2e-6


def test_only_boards_are_opened(tmp_path):
    """Other files, ranks that do not exist and empty runs are refused."""
    other = tmp_path / "other"
    other.write_bytes(b"orrery02" + b"\0" * 100)

    with pytest.raises(ConfigError, match="must be a file that StatusBoard"):
        StatusBoard.open(other)
    with pytest.raises(ConfigError, match="rank must be in 0 to 1, got 2"):
        StatusBoard.create(tmp_path / "board", 2).writer(2)
    with pytest.raises(ConfigError, match="ranks must be >= 1, got 0"):
        StatusBoard.create(tmp_path / "board", 0)
