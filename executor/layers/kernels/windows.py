"""Sliding windows of a part: the padding that its own region needs on each side."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.runtime import Box
from planner.graph import Need

__all__ = ["Window", "cropped", "padded", "windows_of"]


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of a part along one position dimension; all sizes in elements of the input.

    ``left + size + right`` is the distance from the start of the part's first window to the end of its last.
    """

    count: int
    """Windows: the part's outputs along the dimension."""
    left: int
    """What lies outside the tensor, before it."""
    size: int
    """What lies inside: the region that the part is given."""
    right: int
    """What lies outside the tensor, behind it."""
    kernel: int
    stride: int
    pad: int
    """Padding of the whole tensor on each side."""

    @property
    def symmetric(self) -> bool:
        """Whether padding both sides by ``left`` gives the same windows."""
        return 0 <= self.left - self.right < self.stride

    @property
    def ceiling(self) -> bool:
        """Whether PyTorch's ``ceil_mode`` gives the same windows, padding both sides by ``pad``."""
        room = self.size + 2 * self.pad - self.kernel
        count = -(-room // self.stride) + 1
        count -= (count - 1) * self.stride >= self.size + self.pad
        return self.left == self.pad and count == self.count


def windows_of(needs: Sequence[Need], held: Box, given: Box) -> tuple[Window, ...]:
    """Windows along every position dimension.

    Args:
        needs: Of all dimensions of the input.
        held: Box of the output.
        given: Box of the input.  An empty one means that in some dimension all windows lie in the padding: then
            nothing counts as inside, in any dimension.
    """
    windows = []
    for need, low, high, first, last in list(zip(needs, held.low, held.high, given.low, given.high, strict=True))[2:]:
        start = low * need.stride - need.pad
        stop = (high - 1) * need.stride - need.pad + need.dilation * (need.kernel - 1) + 1
        left, right = (first - start, stop - last) if given.elements else (stop - start, 0)
        windows.append(Window(high - low, left, last - first, right, need.kernel, need.stride, need.pad))
    return tuple(windows)


def padded(values: Tensor, windows: Sequence[Window], fill: float = 0.0) -> Tensor:
    """Pad each position dimension by its ``left`` and ``right``; the tensor itself where they are all 0."""
    widths = [width for window in reversed(windows) for width in (window.left, window.right)]
    return torch.nn.functional.pad(values, widths, value=fill) if any(widths) else values


def cropped(values: Tensor, windows: Sequence[Window]) -> Tensor:
    """Take what ``padded`` added away: a view."""
    for dim, window in enumerate(windows, start=2):
        if window.left or window.right:
            values = values.narrow(dim, window.left, window.size)
    return values
