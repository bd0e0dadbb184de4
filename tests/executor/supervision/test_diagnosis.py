"""Which rank is to blame, on boards and clocks made up for it."""

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from executor.supervision.diagnosis import Diagnosis, Ending, FailureDetector, Patience, ending
from executor.supervision.rank_process import out_of_memory_kills
from executor.supervision.status_board import RankState, StatusBoard

DEFAULT = Patience(stall_s=20.0, start_s=120.0, save_s=300.0)
LOOK_S = 0.05
WAIT_HINT = "; check the network between the hosts, and the logs of the other ranks"
MEMORY_HINT = "; a smaller batch, or a plan for more devices, needs less memory on each rank"


@pytest.fixture
def board(tmp_path):
    """A new board of three ranks, all at work."""
    board = StatusBoard.create(tmp_path / "board", 3)
    board.ranks_at_work = [board.writer(rank) for rank in range(3)]
    for status in board.ranks_at_work:
        status.at(0, RankState.COMPUTING)
    return board


def judged(board, *, until_s, working=(), endings=(None, None, None), stopped=()):
    """Look again and again; return the diagnosis and the time that it took."""
    detector = FailureDetector(board.ranks, DEFAULT, is_stopped=lambda rank: rank in stopped)
    for look in range(1, round(until_s / LOOK_S)):
        for rank in working:
            board.ranks_at_work[rank].at(look, RankState.COMPUTING)
        if diagnosis := detector.check(board.rows(), endings, 1000 + look * LOOK_S):
            return diagnosis, look * LOOK_S
    return None, until_s


def test_a_hang_is_found_well_within_thirty_seconds(board):
    """Also while the other ranks go on: 20 s of silence, at most 1 s until it is looked for."""
    diagnosis, after_s = judged(board, until_s=60, working=(0, 2))

    assert diagnosis.rank == 1
    assert 20 <= after_s <= 21.1


def test_ranks_may_wait_for_a_long_start_and_a_long_checkpoint(board):
    """Silence is allowed while another rank starts or saves, but not to one that a signal has stopped."""
    board.ranks_at_work[0].at(1, RankState.WAITING, 1)
    board.ranks_at_work[1].at(-1, RankState.SAVING)
    board.ranks_at_work[2].at(-1, RankState.STARTING)

    assert judged(board, until_s=119) == (None, 119)
    assert judged(board, until_s=200)[0].rank == 2
    assert judged(board, until_s=30, stopped=(1,))[0].rank == 1
    board.ranks_at_work[2].at(2, RankState.WAITING, 1)
    assert judged(board, until_s=299) == (None, 299)
    assert judged(board, until_s=310)[0].rank == 1


def test_time_in_which_the_watcher_slept_is_not_held_against_the_ranks(board):
    """After a long stop of the whole machine every rank gets a new chance."""
    detector = FailureDetector(3, DEFAULT, is_stopped=lambda rank: False)

    assert detector.check(board.rows(), [None] * 3, 1000.0) is None
    assert detector.check(board.rows(), [None] * 3, 9000.0) is None
    assert detector.check(board.rows(), [None] * 3, 9000.9) is None


@pytest.mark.parametrize("state", [RankState.STARTING, RankState.WAITING, RankState.SAVING])
def test_a_stopped_rank_is_judged_from_when_it_stopped(board, state):
    """Not from its last word, be it stopped once or twice."""
    board.ranks_at_work[1].at(-1, state)
    stops = ((30.0, 45.0), (60.0, 100.0))

    def is_stopped(rank):
        return rank == 1 and any(begin_s <= now_s < end_s for begin_s, end_s in stops)

    detector = FailureDetector(board.ranks, DEFAULT, is_stopped=is_stopped)
    for look in range(round(100 / LOOK_S)):
        now_s = look * LOOK_S
        board.ranks_at_work[0].at(look, RankState.COMPUTING)
        board.ranks_at_work[2].at(look, RankState.COMPUTING)
        if diagnosis := detector.check(board.rows(), [None] * 3, now_s):
            break

    assert diagnosis == Diagnosis(rank=1, reason="hangs: a signal has stopped it for 20 s")
    assert 79 <= now_s <= 81


def test_a_computing_rank_whose_stop_is_heard_of_late_is_said_to_be_stopped(board):
    """A heartbeat brings it after silence has begun to count: such a rank is not called slow meanwhile."""
    now_s = 0.0
    detector = FailureDetector(board.ranks, DEFAULT, is_stopped=lambda rank: rank == 1 and now_s >= 3.0)
    while not (diagnosis := detector.check(board.rows(), [None] * 3, now_s)):
        now_s += LOOK_S
        for rank in (0, 2):
            board.ranks_at_work[rank].at(round(now_s / LOOK_S), RankState.COMPUTING)

    assert diagnosis == Diagnosis(rank=1, reason="hangs: a signal has stopped it for 20 s")
    assert 22 <= now_s <= 24


@settings(max_examples=15)
@given(st.randoms(use_true_random=False), st.integers(2, 8))
def test_the_end_of_a_chain_of_waiting_ranks_is_blamed(tmp_path_factory, generator: random.Random, ranks):
    """Every rank waits, along a random tree, for one whose own wait has no known end."""
    board = StatusBoard.create(tmp_path_factory.getbasetemp() / "chain", ranks)
    order = list(range(ranks))
    generator.shuffle(order)
    for place, rank in enumerate(order):
        board.writer(rank).at(0, RankState.WAITING, order[generator.randrange(place)] if place else -1)

    diagnosis, _ = judged(board, until_s=30, endings=[None] * ranks)

    assert diagnosis.rank == order[0]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ((RankState.WAITING, -1), "hangs: has waited 20 s for a message or a collective" + WAIT_HINT),
        ((RankState.FINISHED, -1), "hangs: has waited 25 s for rank 2, which has finished"),
    ],
)
def test_a_wait_is_told_with_the_time_of_who_is_blamed(board, last, reason):
    """Each rank began to wait at a moment of its own: the first seconds before the last."""
    detector, found = FailureDetector(3, DEFAULT, is_stopped=lambda rank: False), None
    begins = {0.0: (RankState.WAITING, 1), 5.0: (RankState.WAITING, 2), 10.0: last}
    for now_s in np.arange(0.0, 40.0, 0.5):
        if now_s in begins:
            board.ranks_at_work[list(begins).index(now_s)].at(7, *begins[now_s])
        found = found or detector.check(board.rows(), [None] * 3, now_s)
    assert found.reason == reason


def test_a_killed_rank_comes_before_those_that_merely_failed(board):
    """Its peers may fail before its death is seen, and not all know that theirs is a consequence."""
    board.ranks_at_work[0].fail("peer closed", consequence=True)
    board.ranks_at_work[1].fail("abort")
    killed = (None, None, ending(-9, [], memory_kill=False))

    diagnosis, after_s = judged(board, until_s=10, endings=killed)

    assert (diagnosis.rank, "killed by signal 9" in diagnosis.reason) == (2, True)
    assert after_s <= 0.4


def test_a_consequence_is_blamed_only_if_there_is_no_cause(board):
    """The cause has 3 s to show itself; there is none to wait for once all have ended."""
    board.ranks_at_work[1].fail("peer closed", consequence=True)
    ended = Ending(reason="ended with exit code 1")

    diagnosis, after_s = judged(board, until_s=10, working=(0, 2))

    assert (diagnosis.rank, diagnosis.reason) == (1, "peer closed")
    assert 3 <= after_s <= 3.2
    assert judged(board, until_s=10, working=(0, 2), endings=(None, ended, ended))[0].rank == 2
    for status in board.ranks_at_work:
        status.fail("peer closed", consequence=True)
    assert judged(board, until_s=10, endings=(ended,) * 3) == (Diagnosis(rank=1, reason="peer closed"), LOOK_S)


@pytest.mark.parametrize(
    ("code", "lines", "memory_kill", "reason"),
    [
        (0, ["warning"], False, ""),
        (2, [], False, "ended with exit code 2"),
        (
            -9,
            [],
            True,
            "out of memory: killed by signal 9, and the control group counts an out-of-memory kill" + MEMORY_HINT,
        ),
        (
            -6,
            ["terminate called", "what():  std::bad_alloc", "dumped"],
            False,
            "out of memory: killed by signal 6 (Aborted); last error line: dumped" + MEMORY_HINT,
        ),
    ],
)
def test_an_ending_is_put_into_words(code, lines, memory_kill, reason):
    """Want of memory is called so, whoever notices it."""
    assert ending(code, lines, memory_kill=memory_kill) == Ending(reason=reason, killed=code == -9)


@pytest.mark.parametrize(
    ("groups", "file", "text", "count"),
    [
        ("0::/job\n", "job/memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n", 2),
        ("8:pids:/\n4:memory:/job\n0::/\n", "memory/job/memory.oom_control", "under_oom 0\noom_kill 5\n", 5),
        ("0::/job\n", "job/other", "", 0),
    ],
    ids=["version 2", "version 1", "unknown"],
)
def test_kills_for_want_of_memory_are_counted(tmp_path, groups, file, text, count):
    """Both versions of control groups, in the form that the kernel's documentation gives."""
    path = tmp_path / "tree" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (tmp_path / "groups").write_text(groups)

    assert out_of_memory_kills(tmp_path / "groups", tmp_path / "tree") == count
    assert out_of_memory_kills(tmp_path / "missing", tmp_path / "tree") == 0
