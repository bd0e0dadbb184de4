"""Data types of compressed messages: 8 bits, one bit, a threshold, half-width floats; on processors and GPUs."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
