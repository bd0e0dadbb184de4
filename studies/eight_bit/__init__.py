"""The closed forms of the 8-bit approximations paper, and the sweep of compression settings on clusters."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
