"""The compiled engine in parts: its state, the event loop, activities, exclusive resources, fair sharing."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
