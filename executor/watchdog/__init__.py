"""Watchdogs beside ranks that torchrun has started, and how they agree on who failed."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
