"""Pages of results: one HTML file each, which needs no other file and sends no request."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
