"""Layer arithmetic: one part of one layer, forward and backward, on one device."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
