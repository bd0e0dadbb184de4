"""Kinds of layers, with the shapes, input regions, parameters and work of each."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
