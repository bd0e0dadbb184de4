"""Programs of models as plain data: exported from PyTorch modules, or read from files."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
