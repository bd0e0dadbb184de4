"""Foundations of every rank: devices, boxes, options, random numbers by position, parameters, optimizers."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
