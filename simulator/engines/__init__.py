"""The two engines that replay a task graph: a clear one on SimPy and a compiled one."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
