"""Figures of the pages; one module a figure, each a function from results to a Plotly figure."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
