"""How a run ends by what its guards tell, on sightings and clocks made up for it."""

import pytest

from executor.processes.diagnosis import Patience
from executor.processes.status_board import NEW_ROW, RankState, own_status, read_row
from executor.watchdog.heartbeats import Heartbeat, RunMonitor, end_of_own_rank

PATIENCE = Patience(stall_s=20.0)
LOOK_S = 0.5


class Ranks:
    """Three ranks at work, and what their guards tell."""

    def __init__(self):
        self.status = [own_status(rank, {}) for rank in range(3)]
        self.beats, self.silent, self.about = [0] * 3, set(), [{} for _ in range(3)]
        for status in self.status:
            status.step(4)
            status.at(7, RankState.COMPUTING)

    def sightings(self):
        """Those of now."""
        for rank in {0, 1, 2} - self.silent:
            self.beats[rank] += 1
        return {
            rank: Heartbeat(beat=self.beats[rank], row=self.status[rank].row(), **self.about[rank])
            for rank in range(3)
            if self.beats[rank]
        }

    def judged(self, *, until_s=40, working=(), unheard_s=120.0):
        """Look again and again; return the judgement and the time that it took."""
        monitor = RunMonitor(3, PATIENCE, lambda task: f"name of {task}", unheard_s)
        for look in range(round(until_s / LOOK_S)):
            for rank in working:
                self.status[rank].at(7, RankState.COMPUTING)
            if found := monitor.check(self.sightings(), 1000 + look * LOOK_S):
                return found, look * LOOK_S
        return None, until_s


@pytest.fixture
def ranks():
    return Ranks()


def test_ranks_at_work_are_left_alone(ranks):
    assert ranks.judged(working=(0, 1, 2)) == (None, 40)


def test_a_rank_that_hangs_is_named_with_its_task(ranks):
    """In the supervisor's words and time."""
    found, after_s = ranks.judged(working=(0, 2))

    assert found.line == (
        "rank 1, step 4, task 7 (name of 7): hangs: no progress for 20 s while computing; if "
        "the task is only slow, allow it more time with --stall-timeout"
    )
    assert 20 <= after_s <= 21.5
    assert (found.rank, found.receivers, found.silent) == (1, 3, False)


def test_a_stopped_rank_is_told_by_its_guard(ranks):
    ranks.about[2]["stopped"] = True

    found, _ = ranks.judged(working=(0, 1))

    assert found.line.endswith("hangs: a signal has stopped it for 20 s")


def test_a_silent_guard_is_blamed_before_those_who_wait_for_its_rank(ranks):
    """Its rank's row is old; nobody else has to be told of it there."""
    for status in ranks.status:
        status.at(7, RankState.WAITING, 0)
    ranks.beats[1] = 1
    ranks.silent.add(1)

    found, after_s = ranks.judged()

    assert "rank 1, step 4, task 7 (name of 7): hangs: its process and its watchdog have been silent" in found.line
    assert after_s <= 21.5
    assert (found.receivers, found.silent) == (2, True)


def test_a_rank_that_nobody_has_heard_of_has_longer(ranks):
    """As long as for its start; then it is not said to have been stopped."""
    ranks.silent.add(1)

    assert ranks.judged(until_s=119, working=(0, 2))[0] is None
    for unheard_s in (120, 40):
        found, after_s = ranks.judged(until_s=130, working=(0, 2), unheard_s=unheard_s)

        assert found.line == f"rank 1, before the first step: hangs: no progress for {unheard_s} s while starting"
        assert unheard_s <= after_s <= unheard_s + 1.5
        assert found.receivers == 2  # who has a watchdog, which must learn of the end before the store goes


def test_a_killed_rank_comes_before_what_follows_from_it(ranks):
    """Peers fail, and torchrun asks the others to end."""
    ranks.status[0].fail("connection closed by peer", consequence=True)
    ranks.about[1] |= {"ended": True, "code": -15, "terminated": True}
    ranks.about[2] |= {"ended": True, "code": -9}

    found, after_s = ranks.judged()

    assert found.line.startswith("rank 2, step 4, task 7 (name of 7): killed by signal 9, which")
    assert after_s <= 0.5


def test_ranks_that_were_asked_to_end_have_nothing_to_tell(ranks):
    """Such as after Ctrl-C."""
    for about in ranks.about:
        about |= {"ended": True, "code": -15, "terminated": True}

    assert ranks.judged()[0].line == ""


def test_bad_input_is_told_in_its_own_words(ranks):
    ranks.status[1].fail("steps must be >= 1, got 0", refused=True)

    assert ranks.judged()[0].line == "steps must be >= 1, got 0"


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({"code": 0}, "ended while computing, with exit code 0"),
        ({"code": None}, "its process has ended, with an exit code that is not known"),
        (
            {"code": -9, "memory_kill": True},
            "out of memory: killed by signal 9, and the control group counts an out-of-memory kill",
        ),
        ({"code": -11}, "killed by signal 11 (Segmentation fault)"),
    ],
    ids=str,
)
def test_a_guard_alone_knows_how_its_rank_ended(ranks, about, line):
    seen = Heartbeat(beat=1, row=ranks.status[1].row(), ended=True, **about)

    assert f"rank 1, step 4, task 7 (7): {line}" in end_of_own_rank(1, seen, PATIENCE, str).line
    assert not seen.ended_well


def test_a_rank_that_ends_well_is_no_failure(ranks):
    """With its exit code, and where that is not known."""
    ranks.status[1].at(-1, RankState.FINISHED)
    for code in (0, None):
        seen = Heartbeat(beat=1, row=ranks.status[1].row(), ended=True, code=code)

        assert seen.ended_well
        assert end_of_own_rank(1, seen, PATIENCE, str) is None


def test_a_row_is_read_as_it_was_written():
    """Also with a reason; a new one is that of a rank before its start."""
    status = own_status(0, {})
    status.step(2, 0.5, 8.0)
    status.at(3, RankState.WAITING, 1)
    short = status.row()
    status.fail("ValueError: näher")

    row = read_row(status.row())
    assert (row.state, row.step, row.task, row.peer, row.reason) == (RankState.FAILED, 2, 3, 1, "ValueError: näher")
    assert len(short) == 128
    assert (NEW_ROW.state, NEW_ROW.step, NEW_ROW.pid) == (RankState.STARTING, -1, 0)
