"""Compute profiles: how long a device takes for a kernel, and how much of it a kernel keeps busy."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
