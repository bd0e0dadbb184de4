"""Derivatives of recorded computations: which tensors they read, and what memory their passes take."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
