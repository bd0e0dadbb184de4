"""Families of networks, built on the meta device from the configurations that are published with their weights."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
