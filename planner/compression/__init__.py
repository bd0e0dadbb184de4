"""Data types that messages are compressed with, and what a strategy compresses."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
