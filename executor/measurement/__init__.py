"""Measurements of runs: tasks of all ranks on one clock, allocations, confidence of intervals."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
