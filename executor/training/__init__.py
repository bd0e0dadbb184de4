"""Training on one rank: its session, forward and backward pass, updates, stores of activations and gradients."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
