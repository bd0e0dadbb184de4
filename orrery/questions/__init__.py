"""Commands that answer questions of many plans: sizes of clusters, and what changes would bring."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
