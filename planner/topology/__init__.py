"""The routes of a cluster as arrays: look-up, latencies, ring order of devices, levels, use of copy engines."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
