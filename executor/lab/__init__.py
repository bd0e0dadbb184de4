"""A cluster on one machine: network namespaces as hosts and switches, shaped cables between them."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
