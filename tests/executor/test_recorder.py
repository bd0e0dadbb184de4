"""What a rank records: shares of a joined task, and bytes that add up."""

import time

import numpy as np

from executor.devices import CpuDevice
from executor.recorder import Recorder


def test_joined_tasks_share_their_time_by_size():
    recorder = Recorder(4, CpuDevice())
    for task in (1, 3):
        recorder.start(task, 10.0)
        recorder.end(task, 18.0)
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
