"""Collectives as rounds of point-to-point messages: what pricing adds up and the engines replay."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
