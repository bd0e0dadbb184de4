"""Memory of devices: buffers of a program, their lifetimes, the peak, and advice on what would fit."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
