"""Checkpoints that any plan of the same model reads, and sessions resumed from them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
