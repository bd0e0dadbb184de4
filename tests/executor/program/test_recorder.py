"""What a rank records: shares of a joined task, and bytes that add up."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from executor.program.recorder import Recorder
from executor.runtime.devices import CpuDevice


class SetClock(CpuDevice):
    """Reads the time that it is set to."""

    now_s = 0.0

    def mark(self):
        return self.now_s


def test_joined_tasks_share_their_time_by_size():
    clock = SetClock()
    recorder = Recorder(4, clock)
    for task in (1, 3):
        clock.now_s = 10.0
        recorder.start(task)
        clock.now_s = 18.0
        recorder.end(task)
    recorder.joined([1, 3], [3.0, 1.0])
    recorder.sent(1, 2.0)
    recorder.sent(1, 3.0)
    measured = recorder.finish()
    np.testing.assert_allclose(measured.start_s[[1, 3]], [10.0, 16.0])
    np.testing.assert_allclose(measured.end_s[[1, 3]], [16.0, 18.0])
    assert measured.sent_bytes[1] == 5.0
    assert np.isnan(measured.start_s[[0, 2]]).all()
    assert np.isnan(recorder.finish().start_s).all()  # the next iteration begins anew


class LateMarks(CpuDevice):
    """Put aside whenever it reads the clock, as by the system on a busy machine."""

    def mark(self):
        time.sleep(0.01)
        return super().mark()


def test_a_rank_put_aside_between_two_readings_still_lasts_long_enough():
    recorder = Recorder(1, LateMarks())
    recorder.timed(0, lambda: None, least_s=0.005)
    measured = recorder.finish()
    assert measured.end_s[0] - measured.start_s[0] >= 0.005 + 0.01  # the end's mark is put aside as well


class MadeUpClock(CpuDevice):
    """Moves by sleeping and by working alone."""

    def __init__(self):
        self.now_s = 100.0

    def mark(self):
        return self.now_s

    def pass_by(self, seconds):
        self.now_s += seconds


@pytest.mark.parametrize(("work_s", "least_s"), [(0.0, 0.25), (0.125, 0.25), (0.5, 0.25), (0.125, 0.0)])
def test_a_task_lasts_no_longer_than_it_should(monkeypatch, work_s, least_s):
    """As long as its work, or as the least that was asked for where that is more: by all that the rank itself does."""
    clock = MadeUpClock()
    monkeypatch.setattr("executor.program.recorder.time", SimpleNamespace(perf_counter=clock.mark, sleep=clock.pass_by))
    recorder = Recorder(2, clock)
    for task in range(2):
        recorder.timed(task, lambda: clock.pass_by(work_s), least_s=least_s)
    measured, lasts_s = recorder.finish(), max(work_s, least_s)
    np.testing.assert_array_equal(measured.end_s - measured.start_s, [lasts_s] * 2)
    assert clock.now_s == 100.0 + 2 * lasts_s
