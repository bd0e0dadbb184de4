"""Questions of size: how many devices, how large a batch, how fast a network, which offer, and what training takes."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
