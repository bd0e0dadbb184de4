"""Importer of models: a program, read operation by operation into a computation graph."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
