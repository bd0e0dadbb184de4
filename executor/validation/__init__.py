"""Validation: the strategies of a model are predicted, run in turns, and set side by side, task by task."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
