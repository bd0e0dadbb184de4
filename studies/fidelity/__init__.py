"""Predictions beside public measurements: every comparison, and the intervals that follow from the errors."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
