"""Sweeps: many what-if points from one file, computed in parallel, each stored as soon as it is computed."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
