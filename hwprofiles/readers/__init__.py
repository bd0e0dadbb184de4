"""Readers of what machines print about themselves: topologies, measured links, network cards, switches of a network."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
