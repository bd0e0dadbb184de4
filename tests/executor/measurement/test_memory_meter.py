"""Counted allocations of the processor's allocator."""

import torch

from executor.measurement.memory_meter import MemoryMeter


def test_the_meter_counts_to_the_byte():
    """What lives on, what dies, and what a kernel takes inside: a sum of squares makes the squares first."""
    before = torch.zeros(1000)
    meter = MemoryMeter()
    meter.start()
    kept = torch.empty(1000)
    gone = torch.empty(3000)
    del gone
    squares = (before * before).sum()
    held = meter.stop()
    assert held.peak_bytes == 4 * (1000 + 3000)
    assert held.held_bytes[-1] == 4 * 1000 + squares.nbytes
    assert held.at(held.peak_time_s) == held.peak_bytes
    assert kept.nbytes == 4000
