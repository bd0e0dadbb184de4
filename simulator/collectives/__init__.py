"""Collectives as rounds of point-to-point messages, which the cost model prices and the engines replay."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
