"""The routes of a cluster as arrays, for pricing and lowering."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
