"""Plans: made from a request, priced, compared, analysed, written to files and read back."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
