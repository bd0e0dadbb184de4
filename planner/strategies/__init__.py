"""Rules that divide a network over devices and time: strategies, micro-batches, schedules, recomputation."""
