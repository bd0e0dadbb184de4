"""The workbench: a local web application in which one picks, changes, compares and keeps."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
