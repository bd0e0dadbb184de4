"""Sweeps: many what-if points from one file, computed side by side, each stored as soon as it is there."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
