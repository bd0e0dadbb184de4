"""Traces of other programs: PyTorch's profiler against plans, and Chakra's execution traces of programs."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
