"""Measured kernels of a device: a smooth correction of the roofline, and monotone tables made of both."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Floats, Ints
from hwprofiles.compute.kernels import ConvolutionWindow

_NODES = np.array([*range(17), *range(18, 32, 2)], dtype=np.float64)
"""Logarithms to base 2 of the sizes of a table: octaves up to 65,536, then two octaves a step up to 2^30."""
_INDEX = np.arange(len(_NODES), dtype=np.float64)
_STEEPEST = 1.1
"""Largest power of a size with which time grows.  A kernel twice as large can take more than twice as long: a last wave
of blocks is nearly empty, caches overflow, the clock falls.  On H100 products of 16,384 samples take up to 1.36 times
four times as long as those of 4,096."""
_LARGEST_CORRECTION = 1.6
"""Bound of the logarithm of a correction: a factor of five."""

_ProductSeconds = Callable[[Floats, Floats, Floats], Floats]
"""Seconds of products by their rows, columns and depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Measured kernels, one entry each in arrays of one shape."""

    phase: Ints
    """Index into ``PROFILE_PHASES``."""
    sizes: Floats
    """Shape (rows, 3): rows, columns and depth of the product."""
    positions: Ints
    """Positions of the window of a convolution; 0 for plain products."""
    stride: Ints
    """Product of the strides; 1 for plain products."""
    correction: Floats
    """Logarithm of the measured time of the arithmetic over the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Corrections of a profile's arithmetic, smooth in the logarithms of sizes; they fade where nothing was measured.

    A correction is the mean of a Gaussian process through the rows of the same phase, with a squared exponential
    kernel.  What it makes of the arithmetic is tabulated in the logarithms of rows, columns and depth, and then bent
    until no time falls when a size grows, nor grows by more than 2.14 times when a size doubles, which interpolation
    between the nodes keeps.

    Source:
        Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, Eq. 2.23.
    """

    rows: TableRows
    lengths: tuple[float, float, float, float, float]
    """Distances over which a correction holds, in logarithms of rows, columns, depth, window positions, stride."""
    spread: float
    """Standard deviation of corrections, in logarithms."""
    noise: float
    """Standard deviation of a single measured kernel about the smooth correction."""
    _tables: dict[object, Floats] = field(default_factory=dict, compare=False, repr=False)

    def __repr__(self) -> str:
        values = [getattr(self.rows, name).tolist() for name in TableRows.__slots__]
        return f"KernelTable({values!r}, {self.lengths!r}, {self.spread!r}, {self.noise!r})"

    def arithmetic_s(
        self,
        sizes: tuple[Floats, Floats, Floats],
        phase: int,
        window: ConvolutionWindow | None,
        model: _ProductSeconds,
        key: object,
    ) -> Floats:
        """Return the seconds of arithmetic of products.

        Args:
            sizes: Rows, columns and depth, >= 1, arrays of one shape.
            phase: Index into ``PROFILE_PHASES``.
            window: Geometry of a convolution, None for plain products.
            model: Uncorrected seconds; no size may make them fall, or rise by more than itself.
            key: What determines ``model`` beside phase and window, hashable.
        """
        table = self._tables.get((key, phase, window))
        if table is None:
            table = self._tables[key, phase, window] = self._tabulated(phase, window, model)
        nodes = len(_NODES)
        places = [np.interp(np.log2(size), _NODES, _INDEX) for size in sizes]
        cells = [np.minimum(place.astype(np.int64), nodes - 2) for place in places]
        shares = [place - cell for place, cell in zip(places, cells, strict=True)]
        # The eight nodes around each size are read from the flat table, two neighbours along the last axis at a time.
        first = (cells[0] * nodes + cells[1]) * nodes + cells[2]
        flat = table.reshape(-1)
        near = [[_along(flat, first + a * nodes * nodes + b * nodes, shares[2]) for b in (0, 1)] for a in (0, 1)]
        low, high = (one + (two - one) * shares[1] for one, two in near)
        return np.asarray(np.exp(low + (high - low) * shares[0]))

    def correction(self, sizes: Floats, phase: int, window: ConvolutionWindow | None) -> Floats:
        """Return the logarithm of the correction of single products, shape (K,); ``sizes`` has shape (K, 3)."""
        mine, weights = self._weights(phase, window)
        if not mine.size:
            return np.zeros(len(sizes))
        near = np.ones((len(sizes), mine.size))
        for axis in range(3):
            near *= self._nearness(axis, np.log2(sizes[:, axis]), mine)
        return np.clip(near @ weights, -_LARGEST_CORRECTION, _LARGEST_CORRECTION)

    def _tabulated(self, phase: int, window: ConvolutionWindow | None, model: _ProductSeconds) -> Floats:
        """Return logarithms of seconds at all nodes, monotone in each size and hardly steeper than proportional."""
        nodes = 2.0**_NODES
        rows, columns, depth = np.meshgrid(nodes, nodes, nodes, indexing="ij")
        table = np.log(model(rows, columns, depth))
        mine, weights = self._weights(phase, window)
        if mine.size:
            # The kernel is a product over the axes, so the sum over rows is one matrix product.
            near = [self._nearness(axis, _NODES, mine) for axis in range(3)]
            pairs = (near[0][:, None, :] * near[1][None, :, :]).reshape(-1, mine.size)
            # einsum: a product by BLAS would wake its threads for a million multiplications
            correction = np.einsum("pk,sk->ps", pairs * weights, near[2]).reshape(table.shape)
            table += np.clip(correction, -_LARGEST_CORRECTION, _LARGEST_CORRECTION)
        return _bent(table)

    def _weights(self, phase: int, window: ConvolutionWindow | None) -> tuple[Ints, Floats]:
        """Return the rows of one phase and kind, and their weights for one geometry."""
        rows, positions = self.rows, window.positions if window else 0
        mine = np.flatnonzero((rows.phase == phase) & ((rows.positions > 0) == (positions > 0)))
        if not mine.size:
            return mine, np.zeros(0)
        # Gaussian-process regression: the corrections, solved against the covariance of the rows by their distances.
        logs = np.log(np.column_stack([rows.sizes, np.maximum(rows.positions, 1), rows.stride])[mine])
        logs = logs / np.array(self.lengths)
        distance = ((logs[:, None] - logs[None]) ** 2).sum(axis=2)
        covariance = self.spread**2 * np.exp(-0.5 * distance)
        covariance[np.diag_indices_from(covariance)] += self.noise**2
        weights = self.spread**2 * np.linalg.solve(covariance, rows.correction[mine])
        if window:
            here = np.log([window.positions, window.stride]) / np.array(self.lengths[3:])
            weights = weights * np.exp(-0.5 * ((logs[:, 3:] - here) ** 2).sum(axis=1))
        return mine, weights

    def _nearness(self, axis: int, log2_sizes: Floats, mine: Ints) -> Floats:
        """Return the factor of one axis in the kernel between sizes and rows, shape (sizes, rows)."""
        distance = np.subtract.outer(log2_sizes * np.log(2), np.log(self.rows.sizes[mine, axis]))
        return np.asarray(np.exp(-0.5 * (distance / self.lengths[axis]) ** 2))


def _along(flat: Floats, first: Ints, share: Floats) -> Floats:
    """Return values between neighbours of the last axis."""
    low = flat[first]
    return np.asarray(low + (flat[first + 1] - low) * share)


def _bent(table: Floats) -> Floats:
    """Return the mean of the largest table below and the smallest above whose slopes all are in 0 .. ``_STEEPEST``.

    A table f has slopes in 0 .. s if f(x) - f(y) is at most the sum over the axes of s max(0, x - y).  The closest
    tables below and above are the infimal and supremal convolutions with that distance: running extremes along each
    axis.
    """
    below, above = table, table
    steps = _NODES * (_STEEPEST * np.log(2))
    for axis in range(table.ndim):
        rise = steps.reshape([-1 if a == axis else 1 for a in range(table.ndim)])
        below = np.minimum.accumulate(below - rise, axis=axis) + rise
        below = np.flip(np.minimum.accumulate(np.flip(below, axis), axis=axis), axis)
        above = np.flip(np.maximum.accumulate(np.flip(above - rise, axis), axis=axis), axis) + rise
        above = np.maximum.accumulate(above, axis=axis)
    return np.asarray(0.5 * (below + above))
