"""The engines that replay a task graph: a clear one on SimPy, which is the reference, and a compiled one."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
