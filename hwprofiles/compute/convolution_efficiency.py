"""The parameters of convolutions: one cost for each algorithm that libraries choose from."""

from dataclasses import dataclass

import numpy as np

from hwprofiles import Floats
from hwprofiles.compute.kernels import ConvolutionWindow

__all__ = ["ConvolutionEfficiency", "HalfSizes", "padded_rows"]

_TILE = 64
"""Rows of the usual tile of libraries' convolution kernels: channels are padded to a multiple of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSizes:
    """Sizes of the implicit product at which each cost of edges alone doubles the time."""

    rows: float
    columns: float
    depth: float
    output_elements: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionEfficiency:
    """The parameters of convolutions, where they were fitted apart from plain products."""

    ceiling: tuple[float, float, float]
    """Largest fraction of the peak that the direct algorithm reaches: forward, activation and weight gradient."""
    half_sizes: tuple[HalfSizes, HalfSizes, HalfSizes]
    """Half sizes of the three phases."""
    half_samples: float
    half_positions: float
    memory: float
    """Fraction of the memory bandwidth that convolutions reach."""
    overhead_s: float
    """Time of a convolution beside its arithmetic and traffic: launches of its kernels."""
    winograd_speedup: float
    """Ratio of multiplications, direct to Winograd's, of many channels."""
    winograd_half_out: float
    """Output channels over which the transform of the inputs is spread: at so many it costs as much as the direct
    product."""
    winograd_half_in: float
    """Input channels over which the transform of the outputs is spread."""
    winograd_weight_gradient: float
    """Factor on the cost of Winograd's algorithm for weight gradients; large where the library had none."""
    fourier_positions: float
    """Multiply-adds an output that are left by Fourier transforms, whatever the window."""
    fourier_half_out: float
    fourier_half_in: float
    """As for Winograd's algorithm."""
    strided_gradient_exponent: float
    """Exponent of the stride in the cost of activation gradients: 0 where only output positions count, 1 where the
    library computes every input position."""

    def least_factor(self, window: ConvolutionWindow) -> float:
        """Return a bound from below of ``factor``: the arithmetic of the best algorithm without any edges."""
        factors = [1.0]
        if window.winograd:
            factors.append(min(1.0, self.winograd_weight_gradient) / self.winograd_speedup)
        if window.winograd or window.fourier:
            factors.append(self.fourier_positions / window.positions)
        return min(factors)

    def factor(self, rows: Floats, columns: Floats, depth: Floats, phase: int, window: ConvolutionWindow) -> Floats:
        """Return the cost of the cheapest algorithm, as a multiple of the direct product at its best.

        Every term has degree between -1 and 0 in each size, so time never falls when a size grows.

        Args:
            rows: Rows of the implicit product.
            columns: Columns.
            depth: Inner dimension.
            phase: Index of the phase: 0 forward, 1 activation gradient, 2 weight gradient.
            window: Geometry of the convolution.
        """
        half = self.half_sizes[phase]
        in_group = 1.0 if phase == 1 else float(window.groups)  # rows of a gradient of inputs are those of one group
        edges = half.rows * in_group / rows + half.columns / columns + half.depth / depth
        edges += half.output_elements / (rows * columns)
        strided = max(window.stride, 1) ** self.strided_gradient_exponent if phase == 1 else 1.0
        return np.asarray((self._cheapest(rows, columns, depth, phase, window)[0] + edges) * strided)

    def executed_share(
        self, rows: Floats, columns: Floats, depth: Floats, phase: int, window: ConvolutionWindow
    ) -> Floats:
        """Return the multiplications of the cheapest algorithm as a share of the direct one's, without transforms.

        Arguments as for ``factor``.
        """
        return self._cheapest(rows, columns, depth, phase, window)[1]

    def _cheapest(
        self, rows: Floats, columns: Floats, depth: Floats, phase: int, window: ConvolutionWindow
    ) -> tuple[Floats, Floats]:
        """Return cost and multiplications of the cheapest algorithm, as shares of the direct one's."""
        cost, executed = np.ones_like(rows), np.ones_like(rows)
        if not (window.winograd or window.fourier):
            return cost, executed
        other = (columns if phase == 2 else depth) / window.positions
        out, into = (other, rows) if phase == 1 else (rows, other)
        share = self.fourier_positions / window.positions
        choices = [(share, share + self.fourier_half_out / out + self.fourier_half_in / into)]
        if window.winograd:
            share = 1 / self.winograd_speedup
            gain = share + self.winograd_half_out / out + self.winograd_half_in / into
            choices.append((share, gain * (self.winograd_weight_gradient if phase == 2 else 1.0)))
        for share, other_cost in choices:
            executed = np.where(other_cost < cost, min(share, 1.0), executed)
            cost = np.minimum(cost, other_cost)
        return cost, executed


def padded_rows(rows: Floats) -> Floats:
    """Return the rows of a convolution's product as its tiles cover them.

    A kernel with tiles of 64 channels takes as long for 80 as for 128; fewer channels have narrower tiles, of a power
    of two.  Padded sizes do not fall when sizes grow, and those of half the rows are at least half.
    """
    narrow = np.exp2(np.ceil(np.log2(rows)))
    return np.asarray(np.where(rows > _TILE, np.ceil(rows / _TILE) * _TILE, narrow))
