"""Sliding windows of a part, and the padding that its region needs on each side."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.runtime.boxes import Box
from planner.graph.shapes import IntervalMap


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of a part along one position dimension; all sizes in elements of the input.

    ``left + size + right`` is the distance from the start of the part's first window to the end of its last.  A tensor
    of six positions with padding 1, kernel 3 and stride 1, of which the part computes the first three outputs::

        position    -1 | 0 1 2 3 4 5 | 6
        windows     [======]                left 1, size 4, right 0
                         [===]
                           [===]
    """

    count: int
    """Number of windows: the part's outputs along the dimension."""
    left: int
    """Elements before the tensor's first."""
    size: int
    """Elements of the tensor: the region that the part reads."""
    right: int
    """Elements after the tensor's last."""
    kernel: int
    stride: int
    pad: int
    """Padding of the whole tensor on each side."""

    @property
    def symmetric(self) -> bool:
        """True if padding both sides by ``left`` gives the same windows."""
        return 0 <= self.left - self.right < self.stride

    @property
    def ceiling(self) -> bool:
        """True if PyTorch's ``ceil_mode``, with both sides padded by ``pad``, gives the same windows."""
        room = self.size + 2 * self.pad - self.kernel
        count = -(-room // self.stride) + 1
        # PyTorch drops a last window that would start behind the tensor and its left padding
        count -= (count - 1) * self.stride >= self.size + self.pad
        return self.left == self.pad and count == self.count


def windows_of(interval_maps: Sequence[IntervalMap], held: Box, given: Box) -> tuple[Window, ...]:
    """Return the windows along every position dimension.

    Args:
        interval_maps: Windows of the operation, for all dimensions of the input.
        held: Region of the output that the part computes.
        given: Region of the input that it reads.  An empty one means that in some dimension all windows lie in the
            padding: all of them are then counted as padding in every dimension.
    """
    windows = []
    for interval_map, low, high, first, last in list(
        zip(interval_maps, held.low, held.high, given.low, given.high, strict=True)
    )[2:]:
        # from the first element under the first window to the one behind the last window's last
        start = low * interval_map.stride - interval_map.pad
        stop = (
            (high - 1) * interval_map.stride - interval_map.pad + interval_map.dilation * (interval_map.kernel - 1) + 1
        )
        left, right = (first - start, stop - last) if given.elements else (stop - start, 0)
        windows.append(
            Window(high - low, left, last - first, right, interval_map.kernel, interval_map.stride, interval_map.pad)
        )
    return tuple(windows)


def padded(values: Tensor, windows: Sequence[Window], fill: float = 0.0) -> Tensor:
    """Return a tensor with each position dimension padded by ``left`` and ``right``; itself where they are all 0."""
    widths = [width for window in reversed(windows) for width in (window.left, window.right)]
    return torch.nn.functional.pad(values, widths, value=fill) if any(widths) else values


def cropped(values: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return a tensor without the padding of ``padded``, as a view."""
    for dim, window in enumerate(windows, start=2):
        if window.left or window.right:
            values = values.narrow(dim, window.left, window.size)
    return values
