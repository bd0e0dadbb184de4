"""Convolutions in tensor cores: blocks of multiprocessors that each compute a tile of the implicit product."""

from dataclasses import dataclass, field, replace

import numpy as np

from groundwork.array_types import Bools, Floats
from hwprofiles.compute.convolution_efficiency import NAIVE_SHARE
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels

_TILES = ((32, 256), (64, 64), (64, 128), (128, 64), (64, 256), (256, 64), (128, 128), (128, 256), (256, 128))
"""Rows and columns of the tiles that libraries have kernels for."""
_SLICES = ((1, 2, 4, 8), (1,), tuple(2**power for power in range(8)))
"""Slices into which libraries divide the inner dimension, by phase: activation gradients of V100 take the time of one
block however few blocks there are, so theirs is not divided."""
_STEP = 32.0
"""Inner dimension of one step of a block."""
_LEAST_STEPS = 2
"""Steps that a slice has at least."""
_SHARPNESS = 4
"""Exponent with which the slower of loading and multiplying decides: 1 adds them, infinity hides the faster one."""
_PARTIAL_BYTES = 4.0
"""Bytes of a partial sum."""

VECTOR_BYTES = 16
"""Bytes of channels of a position that tensor cores load at once, so that libraries ask for multiples of 8 channels in
half precision and 4 in TF32 (cuDNN developer guide, tensor operations)."""
_ByPhase = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConvolution:
    """The parameters of convolutions in tensor cores; triples are forward, activation and weight gradient.

    A convolution takes its overhead and the longer of its traffic and its arithmetic; windows of one position without
    strides are plain products, which need no index of the window and have an overhead of their own.  The arithmetic is
    that of the best tile of R x C and the best number of slices S of the inner dimension K:
    ``waves (K / S + prologue) 2 R C / (peak of a multiprocessor) (1 / ceiling^4 + (load (1/R + 1/C))^4)^(1/4)``, plus
    the traffic of the S partial sums.  ``waves`` is the mean of the blocks a multiprocessor and of the same as a whole
    number: blocks of the next wave begin where others end early.  Every size is covered by whole tiles, so a part
    takes no longer than the whole and at least half of it, as far as channels are aligned alike.

    Source:
        NVIDIA, Deep Learning Performance: Matrix Multiplication Background, sections on tile and wave quantization;
        Convolutional Layers User's Guide, section on channels.
    """

    ceiling: float
    """Largest fraction of the peak."""
    overhead_s: _ByPhase
    """Time beside arithmetic and traffic."""
    load: _ByPhase
    """Loads of a block: ``load (1/R + 1/C)`` is the time of a tile's loads over that of its products at the peak."""
    strided: _ByPhase
    """Loads of windows with strides, as a multiple of those without."""
    unaligned: _ByPhase
    """Loads of channels that are no multiple of ``channel_multiple``, as a multiple of those that are."""
    prologue: float
    """Inner dimension that takes as long as beginning and ending a block."""
    memory: float
    """Fraction of the memory bandwidth that traffic reaches."""
    partial_accesses: float
    """Accesses of each partial sum, where the inner dimension is divided."""
    narrow_window: float
    """Cost of windows like 1 x 7, as a multiple of square ones of as many positions."""
    channel_multiple: int = field(default=VECTOR_BYTES // 2)
    """Input channels are padded to a multiple of it."""
    plain_overhead_s: _ByPhase | None = field(default=None, repr=False)
    """As ``overhead_s``, of windows that are plain products; None where it is the same."""
    least_rows: int = field(default=_TILES[0][0], repr=False)
    """Rows of the narrowest tile: since Hopper an instruction multiplies 64 (PTX ISA, ``wgmma``)."""
    unaligned_in_float32: bool = field(default=False, repr=False)
    """Whether libraries compute half precision of unaligned channels by kernels of float32, where these are faster."""

    gradient_channels: int = field(default=1, repr=False)
    """Input channels of one position of a window that a tile of weight gradients covers, full or not; where they are
    fewer than half as many, narrower tiles cover twice as many as there are."""

    @property
    def extensions(self) -> tuple[object, ...]:
        """Parameters beside those that ``repr`` shows; empty if all have their defaults."""
        values = (self.plain_overhead_s, self.least_rows, self.unaligned_in_float32, self.gradient_channels)
        return () if values == (None, _TILES[0][0], False, 1) else values

    def at_rate(self, rate: float, share: float = 1.0) -> "TileConvolution":
        """Return the parameters of a device whose multiprocessors load as fast, but multiply at another rate.

        Args:
            rate: Products a clock and multiprocessor as a share of those of the device that was measured.
            share: Share of its peak that the device reaches over that of the device that was measured, such as where
                its power does not allow the clock of the data sheet.
        """
        forward, activation, weight = (load * rate / share for load in self.load)
        return replace(self, ceiling=self.ceiling * share, load=(forward, activation, weight))

    def faster(self, speed: float) -> "TileConvolution":
        """Return the parameters of a device that launches so many times as fast."""
        forward, activation, weight = (overhead / speed for overhead in self.overhead_s)
        plain = self.plain_overhead_s
        return replace(
            self,
            overhead_s=(forward, activation, weight),
            plain_overhead_s=plain and (plain[0] / speed, plain[1] / speed, plain[2] / speed),
        )

    def launch_s(self, window: ConvolutionWindow, phase: int) -> float:
        """Return the time beside arithmetic and traffic of convolutions of a window in the phase of an index."""
        plain = window.positions * window.stride == 1
        return (self.plain_overhead_s or self.overhead_s if plain else self.overhead_s)[phase]

    def arithmetic_s(
        self, kernels: Kernels, phase: int, *, peak_flop_per_s: float, memory_bytes_per_s: float, multiprocessors: int
    ) -> Floats:
        """Return the seconds of the arithmetic of convolutions, shape of their sizes.

        Args:
            kernels: Sizes; their window is not None.
            phase: Index of the phase: 0 forward, 1 activation gradient, 2 weight gradient.
            peak_flop_per_s: Peak of the device.
            memory_bytes_per_s: Its bandwidth, at which partial sums are written and read.
            multiprocessors: Its multiprocessors.
        """
        window = kernels.window
        assert window is not None
        groups = float(window.groups)
        rows, columns, depth = (np.maximum(size, 1.0) for size in (kernels.rows, kernels.columns, kernels.depth))
        products = kernels.flop / (2.0 * rows * columns * depth)  # several for the slices of a partial sum
        if phase == 1:
            depth = depth / groups
        else:
            rows = rows / groups
        rows, columns, depth, slow = self._covered(rows, columns, depth, phase, window.positions)
        if window.stride > 1:
            slow = slow * self.strided[phase]
        best = np.full_like(rows, np.inf)
        slices = np.array(_SLICES[phase], dtype=float).reshape(-1, *[1] * rows.ndim)
        steps = np.ceil(depth / (slices * _STEP))
        partial = rows * columns * (groups * slices * _PARTIAL_BYTES * self.partial_accesses)
        partial_s = np.where(slices > 1, partial / memory_bytes_per_s, 0.0)
        enough = (slices == 1) | (steps >= _LEAST_STEPS)
        for tile_rows, tile_columns in _TILES:
            if tile_rows < self.least_rows:
                continue
            loads = self.load[phase] * (1 / tile_rows + 1 / tile_columns) * slow
            cost = (self.ceiling**-_SHARPNESS + loads**_SHARPNESS) ** (1 / _SHARPNESS)
            step_s = cost * (2.0 * tile_rows * tile_columns * multiprocessors / peak_flop_per_s)
            tiles = groups * np.ceil(rows / tile_rows) * np.ceil(columns / tile_columns)
            blocks = tiles * slices / multiprocessors
            waves = 0.5 * (np.ceil(blocks) + np.maximum(blocks, 1.0))
            seconds = waves * (steps * _STEP + self.prologue) * step_s + partial_s
            best = np.minimum(best, seconds.min(axis=0, where=enough, initial=np.inf))
        if window.one_dimensional:
            best = best * self.narrow_window
        if window.groups > 1:  # libraries compute groups of few channels without tiles
            best = np.minimum(best, 2.0 * groups * rows * columns * depth / (peak_flop_per_s * NAIVE_SHARE))
        return np.asarray(best * products)

    def _covered(
        self, rows: Floats, columns: Floats, depth: Floats, phase: int, positions: int
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the sizes of a group's product with padded input channels, and the cost of unaligned loads."""
        into, out = _channels(rows, columns, depth, phase, positions)
        padded = np.ceil(into / self.channel_multiple) * self.channel_multiple
        slow = np.where(_multiples(into, out, self.channel_multiple), 1.0, self.unaligned[phase])
        if phase == 0:
            depth = padded * positions
        elif phase == 1:
            rows = padded
        else:
            if positions > 1:
                covered = np.ceil(padded / self.gradient_channels) * self.gradient_channels
                padded = np.minimum(covered, 2.0 * padded)
            columns = padded * positions
        return rows, columns, depth, slow


def are_aligned(kernels: Kernels, phase: int, multiple: int) -> Bools:
    """Return which products have input and output features, or channels, that are multiples of a number.

    Args:
        kernels: Plain products, or convolutions of one group.
        phase: Index of the phase.
        multiple: Features that tensor cores load at once.
    """
    positions = kernels.window.positions if kernels.window else 1
    return _multiples(*_channels(kernels.rows, kernels.columns, kernels.depth, phase, positions), multiple)


def _multiples(into: Floats, out: Floats, multiple: int) -> Bools:
    """Return where both numbers of channels are multiples of a number."""
    return np.asarray((np.mod(into, multiple) == 0) & (np.mod(out, multiple) == 0))


def _channels(rows: Floats, columns: Floats, depth: Floats, phase: int, positions: int) -> tuple[Floats, Floats]:
    """Return input and output channels of convolutions of one group, from the sizes of their products."""
    if phase == 1:
        return rows, depth / positions
    return (depth if phase == 0 else columns) / positions, rows
