"""Exact searches for the strategy of least cost, on abstract cost tables that know nothing of layers."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
