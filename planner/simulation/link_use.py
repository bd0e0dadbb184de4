"""Utilisation of links by a replayed program over time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """Share of each link's bandwidth in use over one steady iteration."""

    links: tuple[str, ...]
    """Names of the links; of links that are used alike because one replica stands for all, the first."""
    edges_s: NDArray[np.float64]
    """Bin edges, shape (B + 1,), in seconds from the start of the timeline; they span one iteration, from the end of
    the iteration before."""
    share: NDArray[np.float64]
    """Share of the bandwidth in use, 0 to 1, shape (links, B)."""
    moved_bytes: NDArray[np.float64]
    """Bytes over each link in the iteration, shape (links,)."""
    like: NDArray[np.int64]
    """Which of the links each link of the cluster is used like, shape (L,)."""
    classes: tuple[str, ...] = ()
    """Class of each link, in the order of the links; empty where classes are not known."""

    @property
    def alike(self) -> NDArray[np.int64]:
        """Number of links of the cluster that each link stands for, shape (links,)."""
        return np.bincount(self.like, minlength=len(self.links))
