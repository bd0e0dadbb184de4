"""Networks in ONNX files: read as data, no code of theirs runs and no weights are needed."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
