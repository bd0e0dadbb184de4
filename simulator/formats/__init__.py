"""Task graphs and timelines as files: JSON, Parquet, CSV and Chrome trace events."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
