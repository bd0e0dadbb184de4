"""Utilisation of links by a replayed program over time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Share of each link's bandwidth in use over one steady iteration."""

    links: tuple[str, ...]
    """Names of the links."""
    edges_s: NDArray[np.float64]
    """Bin edges, shape (B + 1,), in seconds from the start of the timeline; they span one iteration, from the end of
    the iteration before."""
    share: NDArray[np.float64]
    """Share of the bandwidth in use, 0 to 1, shape (links, B)."""
    moved_bytes: NDArray[np.float64]
    """Bytes over each link in the iteration, shape (links,)."""
    classes: tuple[str, ...] = ()
    """Class of each link, in the order of the links; empty where classes are not known."""
