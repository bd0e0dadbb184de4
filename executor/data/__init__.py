"""Training data: generated, arrays in files, or folders of images; every rank reads its region of a mini-batch."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
