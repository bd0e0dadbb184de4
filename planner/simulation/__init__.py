"""Replays of programs: task graphs under each execution model, timelines, memory, bounds, sensitivities."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
