"""Analyses of a replayed timeline: use of resources, lower bounds, the critical path."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
