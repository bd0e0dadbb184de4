"""How a run ends by what supervisors of one rank each tell one another, on heartbeats and clocks made up for it."""

import math
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from torch.distributed import TCPStore

from executor.rendezvous.rank_environment import RankEnvironment
from executor.supervision.diagnosis import Diagnosis, Ending, Patience, RankFailure, ending
from executor.supervision.heartbeats import Heartbeat
from executor.supervision.other_supervisors import REQUESTED, OtherSupervisors
from executor.supervision.status_board import RankRow, RankState, StatusBoard, own_status
from executor.supervision.supervisor import supervise

PATIENCE = Patience(stall_s=20.0)
CHECK_S = 0.5
SMALL_RANK = [sys.executable, str(Path(__file__).parents[1].joinpath("small_rank.py"))]


def where_of(rank, ranks, port=29500):
    return RankEnvironment(rank=rank, ranks=ranks, local_rank=0, address="127.0.0.1", port=port)


class Run:
    """Three ranks at work, and the supervisor of one of them, whose store has what the others would write."""

    def __init__(self, folder):
        self.folder = folder
        self.status = [own_status(rank, {}) for rank in range(3)]
        self.beats, self.silent, self.about = [0] * 3, set(), [{} for _ in range(3)]
        self.looks, self.looking = [0] * 3, {0, 1, 2}
        for status in self.status:
            status.step(4)
            status.at(7, RankState.COMPUTING)

    def heartbeats(self, ranks):
        """Those of now."""
        for rank in {*ranks} - self.silent:
            self.beats[rank] += 1
            self.looks[rank] += rank in self.looking
        return {
            rank: Heartbeat(
                beat=self.beats[rank], looks=self.looks[rank], row=self.status[rank].row.packed(), **self.about[rank]
            )
            for rank in ranks
            if self.beats[rank]
        }

    def diagnosed(self, *, rank=0, until_s=40, working=(), unheard_s=120.0):
        """Check again and again; return the proposed end, with its line, and the time that it took."""
        others = OtherSupervisors(where_of(rank, 3), PATIENCE)
        others._unheard_s = unheard_s
        others.exchange.published = others.exchange.own
        board = StatusBoard.create(self.folder / "board", 3)
        for check in range(round(until_s / CHECK_S)):
            for each in working:
                self.status[each].at(7, RankState.COMPUTING)
            others.exchange.heartbeats = self.heartbeats(range(3) if rank == 0 else range(1))
            others.exchange.replied_s = now_s = 1000 + check * CHECK_S
            board.put(rank, self.status[rank].row)
            endings = [self.about[rank].get("ending")] * 3
            requested = self.about[rank].get("requested", False)
            found = others.check(board, endings, now_s, is_stopped=lambda: False, requested=requested)
            assert found is None
            if end := others.exchange.proposed:
                error = Diagnosis(rank=end.rank, reason=end.reason).error(
                    RankRow.unpacked(end.row), "name of {}".format
                )
                return end, str(error), check * CHECK_S
        return None, "", until_s


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_ranks_at_work_are_left_alone(run):
    assert run.diagnosed(working=(0, 1, 2)) == (None, "", 40)
    assert run.diagnosed(rank=2, working=(0, 1, 2)) == (None, "", 40)


def test_a_rank_that_hangs_is_named_with_its_task(run):
    """By the rules and times of ranks with one supervisor."""
    end, line, after_s = run.diagnosed(working=(0, 2))

    assert line == (
        "rank 1, step 4, task 7 (name of 7): hangs: no progress for 20 s while computing; if "
        "the task is only slow, allow it more time with --stall-timeout"
    )
    assert 20 <= after_s <= 21.5
    assert (end.rank, end.receivers, end.silent) == (1, 3, None)


def test_silence_counts_as_far_as_a_supervisor_has_looked(run):
    """One that gets no processor sends heartbeats with what it saw before: its rank may be at work, or be stopped."""
    run.looking = {0, 2}

    assert run.diagnosed(working=(0, 2)) == (None, "", 40)


def test_a_stopped_rank_is_told_by_its_supervisor(run):
    run.about[2]["stopped"] = True

    assert run.diagnosed(working=(0, 1))[1].endswith("hangs: a signal has stopped it for 20 s")


def test_a_silent_supervisor_comes_before_those_who_wait_for_its_rank(run):
    """Its rank's row is old; nobody else has to receive the end there."""
    for status in run.status:
        status.at(7, RankState.WAITING, 0)
    run.beats[1] = 1
    run.silent.add(1)
    run.about[1]["pid"] = 42

    end, line, after_s = run.diagnosed()

    assert "rank 1, step 4, task 7 (name of 7): hangs: its process and its supervisor have been silent" in line
    assert after_s <= 21.5
    assert (end.receivers, end.silent.pid) == (2, 42)


def test_the_supervisor_of_rank_0_is_watched_by_the_others(run):
    run.beats[0] = 1
    run.silent.add(0)

    end, line, after_s = run.diagnosed(rank=2, working=(0, 1, 2))

    assert line.startswith("rank 0, step 4, task 7 (name of 7): hangs: its process and its supervisor have been silent")
    assert after_s <= 21.5
    assert end.receivers == 2


def test_a_supervisor_that_was_killed_is_named_soon(run):
    """torchrun then requests the end of the others, which alone would tell nothing."""
    run.beats[1] = 1
    run.silent.add(1)
    for rank in (0, 2):
        run.about[rank] |= {"requested": True, "ending": REQUESTED}

    end, _, after_s = run.diagnosed()

    assert end.rank == 1
    assert 2 <= after_s < 3


def test_a_rank_that_nobody_has_heard_of_has_longer(run):
    """As long as for its start; then it is not said to have been stopped."""
    run.silent.add(1)

    assert run.diagnosed(until_s=119, working=(0, 2))[0] is None
    for unheard_s in (120, 40):
        end, line, after_s = run.diagnosed(until_s=130, working=(0, 2), unheard_s=unheard_s)

        assert line == f"rank 1, before the first step: hangs: no progress for {unheard_s} s while starting"
        assert unheard_s <= after_s <= unheard_s + 1.5
        assert end.receivers == 2  # those that have a supervisor, which must learn of the end before the store goes


def test_a_killed_rank_comes_before_what_follows_from_it(run):
    """Peers fail, and torchrun asks the others to end."""
    run.status[0].fail("connection closed by peer", consequence=True)
    run.about[1] |= {"ending": REQUESTED, "requested": True}
    run.about[2] |= {"ending": ending(-9, [], memory_kill=False)}

    _, line, after_s = run.diagnosed()

    assert line.startswith("rank 2, step 4, task 7 (name of 7): killed by signal 9, which")
    assert after_s <= 0.5


def test_ranks_that_were_requested_to_end_have_no_other_reason(run):
    """Such as after Ctrl-C."""
    for about in run.about:
        about |= {"ending": ending(-15, [], memory_kill=False), "requested": True}
    run.about[1]["ending"] = run.about[2]["ending"] = REQUESTED

    assert run.diagnosed()[0].reason == REQUESTED.reason


def test_a_requested_end_comes_before_lost_connections(run):
    """Where torchrun has not requested it, which would show another cause soon."""
    run.status[0].fail("connection closed by peer", consequence=True)
    run.about[1] |= {"ending": REQUESTED, "requested": True}

    end, _, after_s = run.diagnosed(until_s=10)

    assert (end.rank, end.reason) == (1, REQUESTED.reason)
    assert 3 <= after_s <= 3.5


def test_bad_input_is_told_in_its_own_words(run):
    run.status[1].fail("steps must be >= 1, got 0", refused=True)

    assert run.diagnosed()[1] == "steps must be >= 1, got 0"


def test_a_rank_has_ended_well_once_nothing_was_left_to_do(run):
    """Not by its exit code alone."""
    beat = Heartbeat(row=run.status[1].row.packed(), ending=Ending())
    assert not beat.ended_well

    run.status[1].at(-1, RankState.FINISHED)

    assert replace(beat, row=run.status[1].row.packed()).ended_well
    assert not replace(beat, row=run.status[1].row.packed(), ending=REQUESTED).ended_well


def test_a_row_is_read_as_it_was_written():
    """Also with a reason; a new one is that of a rank before its start."""
    status, new = own_status(0, {}), RankRow.new()
    status.step(2, 0.5, 8.0)
    status.at(3, RankState.WAITING, 1)
    short = status.row.packed()
    status.fail("ValueError: näher")

    row = RankRow.unpacked(status.row.packed())
    assert (row.state, row.step, row.task, row.peer, row.reason) == (RankState.FAILED, 2, 3, 1, "ValueError: näher")
    assert len(short) < 128
    assert (new.state, new.step, new.pid, math.isnan(new.loss)) == (RankState.STARTING, -1, 0, True)


@pytest.fixture
def store():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))


def supervised(folder, deed, rank, ranks, port, progress=None):
    supervise(
        [[*SMALL_RANK, *deed.split()]],
        environments=[{"RANK": str(rank)}],
        board=StatusBoard.create(folder / "board", ranks),
        others=OtherSupervisors(where_of(rank, ranks, port), PATIENCE),
        progress=progress,
    )


def test_a_supervisor_alone_ends_with_its_rank(tmp_path, store):
    """Well, and with the reason that the rank has."""
    supervised(tmp_path, "finish", 0, 1, store.port)
    with pytest.raises(RankFailure, match=r"^rank 0, .*: ended with exit code 3; last error line: no such"):
        supervised(tmp_path, "exit", 0, 1, store.port)


def test_a_rank_does_not_outlive_the_store(tmp_path):
    """Without it nobody would know of the others; it is given time to end by itself."""
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)]
    port = stores[0].port

    def close(_):
        if stores and stores[0].check(["orrery/supervisors/0/rank-0"]):
            stores.clear()

    with pytest.raises(RankFailure, match=rf"^rank 0, step 3, .*: has lost the store, .*: 127.0.0.1:{port}, where"):
        supervised(tmp_path, "work", 0, 1, port, close)
