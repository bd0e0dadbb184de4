"""The task graph, the rules that it must satisfy, and the sharing of resources among its activities."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
