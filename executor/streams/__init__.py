"""The sub-tasks of a backward pass really run on streams: threads with shares of the cores, or CUDA streams."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
