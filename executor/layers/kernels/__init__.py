"""Kernels that layers share: sliding windows, activations, matrix products, memory layouts."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
