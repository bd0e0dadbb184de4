"""Stages of a pipeline: layers in order, cut so that the slowest stage is as fast as it can be."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["balanced"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def balanced(layer_s: Floats, stages: int) -> Ints:
    """Cut layers into contiguous stages with the least maximum of their sums; exact.

    Dynamic program over the layers up to which k stages reach: O(stages G^2), a row at a time.

    Args:
        layer_s: Time of each layer, shape (G,), >= 0.
        stages: 1 to G; no stage is empty.

    Returns:
        Bounds, shape (stages + 1,): stage k has the layers [bounds[k], bounds[k + 1]).
    """
    count = len(layer_s)
    total = np.concatenate([[0.0], np.cumsum(layer_s)])
    length = total[None, :] - total[:, None]  # of the layers [row, column)
    length[np.tril_indices(count + 1)] = np.inf
    best, cut = length[0].copy(), []
    for _ in range(stages - 1):
        worst = np.maximum(best[:, None], length)
        cut.append(worst.argmin(axis=0))
        best = worst.min(axis=0)
    bounds = [count]
    for before in reversed(cut):
        bounds.append(int(before[bounds[-1]]))
    return np.array([0, *reversed(bounds)], dtype=np.int64)
