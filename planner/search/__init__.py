"""Searches for strategies: layer-wise, refinement, hybrids, pipeline stages, order of synchronisation."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
