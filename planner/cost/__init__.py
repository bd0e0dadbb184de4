"""Costs of a strategy, the terms of Eq. 1 in bulk: compute, transfers, gradient synchronisation, codecs, link loads."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
