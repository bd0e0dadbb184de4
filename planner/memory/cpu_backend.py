"""How a processor computes the gradient of a convolution's weights: by its library, or by matrix products.

A library's convolution brings its weights into an order of its own, and their gradient back from it, in up to twice the
time of the arithmetic where parts have many weights and few windows.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints

__all__ = ["GradientForm", "KernelPositions", "gradient_forms", "scratch_numbers"]


WEIGHTS_A_WINDOW = 4096
"""Weights for each of a part's windows from which one product with all of these takes 0.2 to 0.9 of the library's
time, measured on one core."""
TAP_WEIGHTS_A_WINDOW, TAP_WINDOWS, TAP_SHARE, MOST_TAPS = 512, 128, 0.72, 9
"""From how many weights a window and windows, up to which share of windows' numbers that lie inside, and up to how many
taps a product for each tap takes 0.3 to 1.0 of the library's time, 0.8 in the median, measured on one core."""


class GradientForm(IntEnum):
    """What computes the gradient."""

    LIBRARY = 0
    WINDOWS = 1
    """One product of the output's gradient with all windows."""
    TAPS = 2
    """For each tap, one place of the kernel, a product with what it reads inside the tensor: padding is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPositions:
    """Parts of a convolution along its position dimensions, shapes (parts, dimensions) but for what all share."""

    kernel: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    outputs: Ints
    inputs: Ints
    """Positions that are convolved, without ``pad``."""
    pad: Ints
    """Zeros thought of on both sides."""

    @property
    def count(self) -> int:
        """Numbers of a kernel."""
        return math.prod(self.kernel)

    def ranges(self, dim: int, place: int) -> tuple[Ints, Ints, Ints]:
        """What one place of the kernel reads along a dimension.

        Returns:
            The first output whose window has that place inside, the one behind the last, and where the first reads.
        """
        stride, offset = self.stride[dim], place * self.dilation[dim] - self.pad[:, dim]
        low = np.maximum(-(offset // stride), 0)
        high = np.minimum((self.inputs[:, dim] - 1 - offset) // stride + 1, self.outputs[:, dim])
        return low, np.maximum(high, low), low * stride + offset

    def share(self) -> Floats:
        """Share of the windows' numbers that lies inside, shape (parts,)."""
        share = np.ones(len(self.outputs))
        for dim, kernel in enumerate(self.kernel):
            inside = sum(high - low for low, high, _ in (self.ranges(dim, place) for place in range(kernel)))
            share *= inside / (kernel * np.maximum(self.outputs[:, dim], 1))
        return share

    def copies(self) -> Iterator[tuple[Ints, Ints]]:
        """By tap, positions of its outputs and of its inputs where these do not lie side by side, shape (parts,)."""
        for tap in itertools.product(*map(range, self.kernel)):
            ranges = [self.ranges(dim, place) for dim, place in enumerate(tap)]
            counts = np.stack([high - low for low, high, _ in ranges], axis=1)
            yield _apart(counts, self.outputs, np.ones_like(self.stride)), _apart(counts, self.inputs, self.stride)


def _apart(counts: Ints, sizes: Ints, stride: Sequence[int] | Ints) -> Ints:
    """So many of the positions of a tensor, or 0 where they, a step apart in each dimension, are its neighbours."""
    outside = np.cumprod(counts, axis=1) // np.maximum(counts, 1)
    apart = ((counts < sizes) & (outside > 1)) | ((counts > 1) & (np.asarray(stride) > 1))
    return np.where(apart.any(axis=1), counts.prod(axis=1), 0)


def gradient_forms(taps: KernelPositions, *, filters: Floats, samples: Floats, groups: int) -> NDArray[np.int8]:
    """How parts compute the gradient of their weights, as ``GradientForm``, shape (parts,).

    Args:
        taps: The parts.
        filters: Pairs of an input and an output channel of each, shape (parts,).
        samples: Of each, shape (parts,).
        groups: Of channels.
    """
    if groups > 1:
        return np.zeros(len(samples), dtype=np.int8)
    windows = samples * taps.outputs.prod(axis=1)
    weights = filters * taps.count
    by_taps = (weights >= TAP_WEIGHTS_A_WINDOW * windows) & (windows >= TAP_WINDOWS) & (taps.share() <= TAP_SHARE)
    several = np.where(weights >= WEIGHTS_A_WINDOW * windows, GradientForm.WINDOWS, GradientForm.LIBRARY)
    return np.where(by_taps & (taps.count <= MOST_TAPS), GradientForm.TAPS, several).astype(np.int8)


def scratch_numbers(
    taps: KernelPositions, forms: NDArray[np.int8], *, channels: int, output_channels: Floats, samples: Floats
) -> Floats:
    """Numbers that products take beside the gradient itself, shape (parts,); 0 where the library computes it.

    Of all windows: gradients of outputs and the padded input in another order, and the windows, or before these the
    padded input.  Of taps: both operands in another order, what one tap copies of them, and the gradient by taps.
    """
    outputs, inputs = taps.outputs.prod(axis=1) * samples, taps.inputs.prod(axis=1) * samples
    padded = samples * channels * (taps.inputs + 2 * taps.pad).prod(axis=1)
    ordered = (samples > 1) * (outputs * output_channels + padded)
    several = (taps.count > 1) | ((taps.outputs > 1) & (np.array(taps.stride) > 1)).any(axis=1)  # else: the input
    windows = ordered + np.maximum((taps.pad > 0).any(axis=1) * padded, several * outputs * channels * taps.count)
    turned = outputs * output_channels + inputs * channels + taps.count * channels * output_channels
    found = np.where(forms == GradientForm.WINDOWS, windows, 0.0)
    if (forms == GradientForm.TAPS).any():
        copies = [samples * (made * output_channels + read * channels) for made, read in taps.copies()]
        found = np.where(forms == GradientForm.TAPS, turned + np.max(copies, axis=0), found)
    return found
