"""The parameters of convolutions: one cost for each algorithm that libraries choose from."""

from dataclasses import dataclass, replace

import numpy as np

from groundwork.array_types import Floats
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels

_TILE = 64
"""Rows of the usual tile of libraries' convolution kernels: channels are padded to a multiple of it."""
_ONE_DIMENSIONAL = 1.55
"""Cost of windows like 1 x 7 as a multiple of square ones of as many positions: what Inception-v3 takes longer than the
other networks on the same device.  Six devices (MXNet and TensorFlow, 2017 to 2020), one at a time, give 1.2 to 1.8;
with each left out in turn, the others give 1.50 to 1.63."""
_LEAST_GRADIENT_TILE = 32
"""Rows of the narrowest tile of activation gradients; those of strided windows have the usual one."""
NAIVE_SHARE = 0.04
"""Share of the peak that a naive implementation reaches, which splits long sums over all multiprocessors: no product
is priced below it."""
_SCATTERED_SHARE, _SCATTERED_HALF_DEPTH = 0.17, 500.0
"""Share of the peak of activation gradients that are scattered position by position, whatever the number of input
channels, and the inner dimension that halves it: what libraries do where an input has one or three channels."""


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
    strided_half_depth: float
    """Activation gradients of strided windows pass over all input positions: inner dimension at which that costs as
    much as the direct product, for a stride of 1; it falls with the root of the inner dimension."""
    window_reuse: float
    """Exponent of the window's positions by which weight gradients load fewer inputs than their product has columns:
    0 where each position is loaded again, 1 where all are in fast memory."""

    def by_products(self) -> "ConvolutionEfficiency":
        """Return the parameters where libraries have neither Winograd's algorithm nor Fourier transforms."""
        return replace(self, winograd_speedup=1.0, winograd_half_out=np.inf, fourier_positions=np.inf)

    def covered(self, kernels: Kernels, phase: int) -> tuple[Floats, Floats, Floats]:
        """Return rows, columns and depth of a convolution's product as its kernels cover them, each at least 1."""
        rows, columns, depth = (np.maximum(size, 1.0) for size in (kernels.rows, kernels.columns, kernels.depth))
        window = kernels.window
        return padded_rows(rows, phase, window.stride if window else 1), columns, depth

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
        edges = half.depth / depth + half.output_elements / (rows * columns)
        cost = self._cheapest(rows, columns, depth, phase, window)[0] + edges
        if phase != 1:
            return np.asarray(cost)
        if window.stride > 1:
            cost += window.stride * np.sqrt(self.strided_half_depth / depth)
        return np.asarray(cost)

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
        half = self.half_sizes[phase]
        in_group = 1.0 if phase == 1 else float(window.groups)  # rows of a gradient of inputs are those of one group
        loaded = window.positions**-self.window_reuse if phase == 2 else 1.0
        cost = 1.0 + half.rows * in_group * loaded / rows + half.columns / columns
        if window.one_dimensional:
            cost *= _ONE_DIMENSIONAL
        executed = np.ones_like(rows)
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


def naive_factor(depth: Floats, phase: int) -> Floats:
    """Return the cost of a convolution without tiles, as a multiple of its FLOP at the peak."""
    naive = np.full_like(depth, 1.0 / NAIVE_SHARE)
    return np.minimum(naive, (1.0 + _SCATTERED_HALF_DEPTH / depth) / _SCATTERED_SHARE) if phase == 1 else naive


def padded_rows(rows: Floats, phase: int = 0, stride: int = 1) -> Floats:
    """Return the rows of a convolution's product as its tiles cover them.

    A kernel with tiles of 64 channels takes as long for 80 as for 128; fewer channels have narrower tiles, of a power
    of two.  Padded sizes do not fall when sizes grow, and those of half the rows are at least half.

    Args:
        rows: Rows of the product, >= 1.
        phase: Index of the phase: activation gradients have fewer narrow tiles.
        stride: Product of the strides.
    """
    narrow = np.exp2(np.ceil(np.log2(rows)))
    if phase == 1:
        narrow = np.maximum(narrow, _LEAST_GRADIENT_TILE if stride == 1 else _TILE)
    return np.asarray(np.where(rows > _TILE, np.ceil(rows / _TILE) * _TILE, narrow))
