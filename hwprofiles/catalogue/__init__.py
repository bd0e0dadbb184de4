"""The catalogue of clusters, cluster files, changes to clusters, and readers of what machines print."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
