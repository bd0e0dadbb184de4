"""Headlines, sentences and columns of results, printed alike by the terminal and the pages."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
