"""Shares of the links that a replayed program uses, over time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinkUse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Share of each link's bandwidth in use, over time, in one steady iteration."""

    links: tuple[str, ...]
    edges_s: NDArray[np.float64]
    """Bin edges, shape (B + 1,), seconds from the start of the timeline: one iteration's time, from the end of
    the iteration before."""
    share: NDArray[np.float64]
    """Shape (links, B), 0 to 1."""
    moved_bytes: NDArray[np.float64]
    """Shape (links,)."""
