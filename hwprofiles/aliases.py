"""Types that the whole project uses under one name: arrays, and callbacks that hear of progress."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Ints", "Progress"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Progress = Callable[[str, int, int], None]
"""Called as ``progress(label, done, total)``."""
