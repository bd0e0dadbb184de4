"""Style of all pages: colours, units, compact columns, lists of devices."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
