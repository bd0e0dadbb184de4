"""Training with sharded parameters: the iteration of a network of equal blocks, made of the planner's prices."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
