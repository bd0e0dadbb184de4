"""Divisions of a network over devices and time: configurations, regions, strategies, micro-batches, schedules."""
