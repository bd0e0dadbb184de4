"""Lowering of a strategy to the program of one iteration: tasks, transfers, gradient synchronisation."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
