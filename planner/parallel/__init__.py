"""How a network is split: configurations, regions, strategies, micro-batches, schedules, recomputation."""
