"""Sub-tasks on streams: decomposition, Algorithm 1 of TurboDL, and the schedules that it is compared with."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
