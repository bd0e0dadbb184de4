"""Probes: the machine at hand measured as a cluster file and a compute profile.

For use inside an open process group, between training iterations, there are ``LayerProbe``, ``parts_of``,
``over_ranks``, ``measure_device``, ``measure_links`` and ``write_profile``; ``probe`` starts processes of its own.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
