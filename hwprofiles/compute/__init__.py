"""Compute profiles: the time that a device takes for a kernel, and the share of it that the kernel keeps busy."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
