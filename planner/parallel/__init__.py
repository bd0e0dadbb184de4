"""Divisions of a network over devices and time: configurations, regions, strategies, micro-batches, schedules."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
