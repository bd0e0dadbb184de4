"""Commands that turn measurements into files: probes of this machine, files of others, profiles, traces."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
