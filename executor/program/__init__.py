"""One rank's view of a program: its tasks, parts, messages, consumers of tensors, gradient buckets, recorded times."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
