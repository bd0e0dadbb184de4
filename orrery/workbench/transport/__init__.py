"""The server below the application: signals that end it, connections with deadlines, and requests that are refused."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
