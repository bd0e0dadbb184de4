"""Measurements of runs: tasks of all ranks on one clock, allocations, confidence of intervals."""
