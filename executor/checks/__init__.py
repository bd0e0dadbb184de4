"""Checks of programs before any process starts: that every layer can be computed as the plan divides it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
