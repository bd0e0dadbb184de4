"""Calibration: compute profiles fitted to measured kernels and networks, with errors on what was held out."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
