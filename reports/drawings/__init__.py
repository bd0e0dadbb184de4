"""Layouts of drawings: networks, clusters and timelines as positions, lines and compact columns."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
