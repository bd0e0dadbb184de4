"""The task graph, the rules that it keeps, and how its activities share resources."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
