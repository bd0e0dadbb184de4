"""What results say in words and columns; the terminal and the pages print the same."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
