"""What an iteration is expected to take: the median and the 80 % interval, from the recorded errors of predictions."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
