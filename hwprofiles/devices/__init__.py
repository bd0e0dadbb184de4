"""The device graph: devices, links with latencies, copy engines, and the routes between devices."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
