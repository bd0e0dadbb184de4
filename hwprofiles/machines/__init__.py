"""Cluster files made of what files say about machines: merged, completed by assumptions, refined by measurements."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
