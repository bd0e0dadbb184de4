"""Data types that messages are compressed with, and the tensors and gradients that a strategy compresses."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
