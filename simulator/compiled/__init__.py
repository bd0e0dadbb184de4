"""The parts of the compiled engine: its state, event loop, activities, exclusive resources and fair sharing."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
