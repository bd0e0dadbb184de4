"""The time that a device takes for kernels of given sizes: a roofline that is lower for small parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.errors import ConfigError
from hwprofiles.compute.convolution_efficiency import NAIVE_SHARE, ConvolutionEfficiency, naive_factor
from hwprofiles.compute.fused_kernels import FusedEfficiency
from hwprofiles.compute.kernel_table import KernelTable
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels
from hwprofiles.compute.launch import Launch
from hwprofiles.compute.tile_convolution import VECTOR_BYTES, TileConvolution, are_aligned

PROFILE_PHASES = ("forward", "activation_gradient", "weight_gradient", "bias_gradient", "update")
"""Phases of a layer that have times of their own."""
CODEC_TARGETS = ("gradients", "activations")
"""Data that is compressed: buffers of gradients, or regions of tensors."""
UNDER_USED = 0.05
"""Share of the peak and of the bandwidth below which a price is doubtful."""
CODEC_TASKS = ("compress", "decompress", "sum")
"""Tasks of a codec: compress; decompress into a buffer; decompress and add to a buffer."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A published time of one phase of one layer."""

    batch: int
    """Samples of the measurement."""
    time_s: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class MeasuredParts:
    """Measured times of parts of one layer in one phase, with 4-byte elements."""

    sizes: tuple[tuple[int, ...], ...]
    """Size of the region of the output that each part computes: samples, channels, positions."""
    time_s: tuple[float, ...]
    """Seconds of each part."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CodecSpeed:
    """The speed of a codec for one data type: a time for each message, and one for each element."""

    fixed_s: float
    """Time of a message, whatever its size."""
    elements_per_s: float
    """Elements a second in addition."""

    def __repr__(self) -> str:
        # Plan files hold digests of this text, with the names that class and field had when they were introduced.
        return f"CodingSpeed(fixed_s={self.fixed_s!r}, numbers_per_s={self.elements_per_s!r})"

    def time_s(self, messages: Ints, elements: Ints) -> Floats:
        """Return the seconds for messages with a total number of elements, arrays of one shape."""
        return np.asarray(self.fixed_s * messages + elements / self.elements_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """The parameters that lower speed below the peak.  A half size is where its term alone doubles the time."""

    ceiling: tuple[float, ...]
    """Largest fraction of the peak, by phase in the order of `PROFILE_PHASES`; at most 1."""
    winograd_speedup: float
    """Ratio of direct FLOP to executed FLOP in a 3 x 3, stride-1 convolution by Winograd's algorithm, >= 1; edges
    cost the same as without it."""
    half_rows: float
    """GEMM rows."""
    half_columns: float
    """GEMM columns."""
    half_depth: float
    """GEMM inner dimension."""
    half_output: float
    """Elements of the product (rows x columns): below it the multiprocessors are not all busy."""
    half_samples: float
    """Samples: convolution kernels tile over them too, so 7 x 7 x 512 samples beat 14 x 14 x 128."""
    half_positions: float
    """Positions of a sample that halve the samples' term: large images fill tiles alone."""
    memory: float
    """Fraction of the memory bandwidth that a streaming kernel sustains; at most 1."""
    unaligned: tuple[float, float, float] = field(default=(1.0, 1.0, 1.0), repr=False)
    """Cost of plain products whose features are no multiple of a vector of 16 bytes, by phase, where software does not
    pad them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """The arithmetic and memory of one device, in SI units.

    A kernel takes the launch overhead, plus the longer of its arithmetic and its memory traffic, plus the passes
    that only stream memory:
    ``t = launch + max(a, bytes / (bandwidth fraction)) + streamed bytes / (bandwidth fraction)``, with the arithmetic
    ``a = flop / (peak ceiling) (f + s/(samples (1 + positions/p)))``, at most ``flop / (peak NAIVE_SHARE)``, and for
    plain products ``f = 1 + r/rows + c/columns + d/depth + o/(rows columns)``, with the half sizes of `Efficiency`.
    The sum of inverse sizes is the cost of edges: operands loaded (rows, columns), prologue (depth), idle
    multiprocessors (output), tiles that span samples and are not full.  For convolutions f is that of the cheapest
    algorithm: see `ConvolutionEfficiency`; profiles without that section give 3 x 3 windows of stride 1 Winograd's
    gain, in the 1 of f.  Where kernels were measured, f is corrected: see `KernelTable`.
    Convolutions in tensor cores are tiles on multiprocessors instead: see `TileConvolution`.
    No other kernel of TF32 or half precision takes longer than float32's on the same data: libraries can load two-byte
    elements, compute in float32 and store two bytes.  With unaligned channels in one group they do so in TF32, whose
    data is float32's, and in half precision where ``TileConvolution.unaligned_in_float32`` says so: V100 is up to eight
    times slower there than in float32.
    Every term has degree at most one in each size, so by the formula time never falls when a size grows, and half of a
    part never takes less than half its time.  Where kernels were measured, twice the size may take 2.14 times as long,
    so that half of a part takes at least 47 % of its time.

    Source:
        The roofline model: Williams, Waterman and Patterson, Communications of the ACM 52 (4), 2009.
        Winograd's algorithm in convolutions: Lavin and Gray, CVPR 2016.
        Fourier transforms in convolutions: Mathieu, Henaff and LeCun, ICLR 2014.
        Two-byte elements and float32 arithmetic: PSEUDO_HALF_CONFIG of cudnnConvolutionForward, cuDNN API reference;
        CUDA_R_16F operands and CUBLAS_COMPUTE_32F_PEDANTIC of cublasGemmEx, cuBLAS library.
    """

    name: str
    description: str
    sources: tuple[str, ...]
    arithmetic: str
    """Arithmetic, one of ``ARITHMETICS``; ``tf32`` is float32 data, products rounded to 10 bits in the tensor cores."""
    peak_flop_per_s: float
    memory_bytes_per_s: float
    launch_overhead_s: float
    memory_bytes: float
    multiprocessors: int
    efficiency: Efficiency
    rows: Mapping[tuple[str, str, str], MeasuredRow] = field(default_factory=dict, repr=False)
    """Measured rows of whole layers by (model without parameters, layer, phase)."""
    parts: Mapping[tuple[str, str, str], MeasuredParts] = field(default_factory=dict, repr=False)
    """Measured parts by (model with its parameters, layer, phase)."""
    launch: Launch | None = None
    """Execution of kernels of several streams; None where it is not known."""
    occupancies: Mapping[tuple[str, str, str], float] = field(default_factory=dict, repr=False)
    """Measured shares of the device that a phase of a whole layer keeps busy, by (model without parameters, layer,
    phase)."""
    codecs: Mapping[tuple[str, str, str], CodecSpeed] = field(default_factory=dict, repr=False)
    """Measured speeds of codecs by (data type with its parameters, one of `CODEC_TARGETS`, one of `CODEC_TASKS`)."""

    convolution: ConvolutionEfficiency | None = field(default=None, repr=False)
    """Parameters of convolutions; None where they are those of plain products."""
    tiles: TileConvolution | None = field(default=None, repr=False)
    """Parameters of convolutions in tensor cores; then ``convolution`` is None."""
    fused: Mapping[tuple[str, str], FusedEfficiency] = field(default_factory=dict, repr=False)
    """Efficiencies of fused kernels by (one of ``FUSED_KINDS``, one of ``FUSED_PHASES``)."""
    table: KernelTable | None = field(default=None, repr=False)
    """Measured kernels; None where the formula alone counts."""
    sustained_clock: float = field(default=1.0, repr=False)
    """Clock in long runs as a share of the data sheet's boost clock, above 1 for cards that exceed it;
    ``peak_flop_per_s`` includes it."""
    dispatch_s: float = field(default=0.0, repr=False)
    """Time of the host for one phase of one layer: no phase of a layer takes less."""
    element_bytes: int = field(default=4, repr=False)
    """Bytes of an activation in this arithmetic; kernels count 4."""
    in_float32: "ComputeProfile | None" = field(default=None, repr=False)
    """The device in float32, whose kernels run on this arithmetic's data where they are faster; None where they cannot,
    as in float32 itself, or need not, as without tensor cores."""
    relative: str = field(default="", repr=False)
    """Profile whose shares of the peak these are, as nothing of the device was measured in this arithmetic or, in
    tensor cores, in another of theirs; else empty."""

    @property
    def extensions(self) -> tuple[object, ...]:
        """Fields that determine times beside those that ``repr`` shows; empty if all have their defaults."""
        values = (self.convolution, self.table, self.dispatch_s, self.element_bytes)
        fused = (sorted(self.fused.items()),) if self.fused else ()
        tiles = (self.tiles, *self.tiles.extensions) if self.tiles else ()
        wide: tuple[object, ...] = ()
        if self.in_float32:
            wide = (replace(self.in_float32, description="", sources=()), self.in_float32.extensions)
        odd = (self.efficiency.unaligned,) if max(self.efficiency.unaligned) > 1 else ()
        plain = values == (None, None, 0.0, 4) and not (wide or tiles or odd)
        return fused if plain else values + fused + tiles + wide + odd

    def for_single_kernels(self) -> "ComputeProfile":
        """Return the profile for short runs, such as measurements of single kernels."""
        return replace(
            self,
            peak_flop_per_s=self.peak_flop_per_s / self.sustained_clock,
            sustained_clock=1.0,
            in_float32=self.in_float32 and self.in_float32.for_single_kernels(),
        )

    def under_used(self, kernels: Kernels, time_s: Floats) -> Bools:
        """Return which kernels take so long that they use under 5 % of the peak and of the memory bandwidth.

        Kernels that mostly wait for their launch are none of them.

        Args:
            kernels: Sizes, arrays of one shape.
            time_s: Their times, of the same shape.
        """
        moved = kernels.memory_bytes + kernels.streamed_bytes
        overhead_s = max(self.overhead_s(kernels, phase) for phase in PROFILE_PHASES)
        least_s = np.maximum(kernels.flop / self.peak_flop_per_s, moved / self.memory_bytes_per_s) / UNDER_USED
        return np.asarray((time_s > least_s) & (time_s > 2.0 * np.maximum(overhead_s, self.dispatch_s)))

    def time_s(self, kernels: Kernels, *, phase: str = "forward") -> Floats:
        """Return the seconds of each kernel, alone on the device.

        Args:
            kernels: Sizes, arrays of one shape; a product's rows, columns, depth and samples are >= 1.
            phase: One of `PROFILE_PHASES`: gradients have ceilings of their own.

        Returns:
            Seconds, shape of the input; 0 where both FLOP and bytes are 0.

        Raises:
            ConfigError: ``phase`` is not one of `PROFILE_PHASES`.
        """
        arithmetic_s, traffic_s, rest_s = self.terms_s(kernels, phase)
        seconds = (np.maximum(arithmetic_s, traffic_s) + rest_s) * (kernels.flop + kernels.memory_bytes > 0)
        return np.minimum(seconds, self.most_s(kernels, phase)) if self.in_float32 else np.asarray(seconds)

    def most_s(self, kernels: Kernels, phase: str) -> Floats:
        """Return the seconds of float32's kernels on the same data; infinity where libraries stay in tensor cores."""
        if self.in_float32 is None:
            return np.full_like(kernels.flop, np.inf)
        wide_s = self.in_float32.time_s(kernels, phase=phase)
        number, window = PROFILE_PHASES.index(phase), kernels.window
        if self.tiles is None or window is None or window.groups > 1 or number > 2:
            return wide_s
        if self.tiles.unaligned_in_float32:
            return wide_s
        return np.where(are_aligned(kernels, number, self.tiles.channel_multiple), wide_s, np.inf)

    def overhead_s(self, kernels: Kernels, phase: str) -> float:
        """Return the time of each of the kernels beside its work."""
        number = PROFILE_PHASES.index(phase)
        if kernels.window and self.tiles and number < 3:
            return self.tiles.launch_s(kernels.window, number)
        return self.convolution.overhead_s if kernels.window and self.convolution else self.launch_overhead_s

    def terms_s(self, kernels: Kernels, phase: str) -> tuple[Floats, Floats, Floats]:
        """Return the seconds of arithmetic, of the traffic beside it, and of passes and launches; see ``time_s``."""
        if phase not in PROFILE_PHASES:
            raise ConfigError(f"phase must be one of {', '.join(PROFILE_PHASES)}, got {phase!r}")
        memory_s_per_byte = 1.0 / (self.memory_bytes_per_s * self.efficiency.memory)
        convolution = (self.tiles or self.convolution) if kernels.window else None
        product_s_per_byte = 1.0 / (self.memory_bytes_per_s * convolution.memory) if convolution else memory_s_per_byte
        rest_s = kernels.streamed_bytes * memory_s_per_byte + self.overhead_s(kernels, phase)
        arithmetic_s = self.arithmetic_s(kernels, phase) if kernels.flop.any() else np.zeros_like(kernels.flop)
        return arithmetic_s, kernels.memory_bytes * product_s_per_byte, np.asarray(rest_s)

    def arithmetic_s(self, kernels: Kernels, phase: str) -> Floats:
        """Return the seconds of the arithmetic of kernels, if nothing else took time; arguments as for ``time_s``."""
        number, flop = PROFILE_PHASES.index(phase), kernels.flop
        convolution = self.convolution if kernels.window and number < 3 else None
        rate = self.peak_flop_per_s * (convolution.ceiling[number] if convolution else self.efficiency.ceiling[number])
        if not kernels.rows.any():  # a kernel that only streams has no product, so no tiles
            return np.asarray(flop / rate)
        matrix = kernels.matrix
        if self.tiles and kernels.window and number < 3:
            tiled_s = self.tiles.arithmetic_s(
                kernels,
                number,
                peak_flop_per_s=self.peak_flop_per_s,
                memory_bytes_per_s=self.memory_bytes_per_s,
                multiprocessors=self.multiprocessors,
            )
            return np.asarray(np.where(matrix, tiled_s, flop / rate))
        rows, columns, depth = (np.maximum(size, 1.0) for size in (kernels.rows, kernels.columns, kernels.depth))
        m, n, k = convolution.covered(kernels, number) if convolution else (rows, columns, depth)
        seconds = self._product_s(m, n, k, number, kernels.window)
        # the FLOP of partial sums over several slices are those of several equal products
        seconds *= flop / np.maximum(2.0 * rows * columns * depth, 1.0)
        if not kernels.window and number < 3 and self.efficiency.unaligned[number] > 1:
            aligned = are_aligned(kernels, number, VECTOR_BYTES // self.element_bytes)
            seconds *= np.where(aligned, 1.0, self.efficiency.unaligned[number])
        # samples x positions: a weight gradient sums over them, in other phases they are the columns
        summed = depth if number == 2 else columns
        half = convolution or self.efficiency
        spanned = half.half_samples * half.half_positions / (half.half_positions * kernels.samples + summed)
        seconds += flop / rate * spanned
        naive = naive_factor(depth, number) if convolution else 1.0 / NAIVE_SHARE
        seconds = np.minimum(seconds, flop / self.peak_flop_per_s * naive)
        return np.asarray(np.where(matrix, seconds, flop / rate))

    def _product_s(
        self, rows: Floats, columns: Floats, depth: Floats, phase: int, window: ConvolutionWindow | None
    ) -> Floats:
        """Return the seconds of products: from the table of measured kernels, or by the formula."""
        if self.table is None or phase > 2:
            return self.model_s(rows, columns, depth, phase, window)
        key = (self.efficiency, self.convolution)  # a table is in seconds at one FLOP/s, so serves every clock
        units = replace(self, peak_flop_per_s=1.0)
        seconds = self.table.arithmetic_s(
            (rows, columns, depth), phase, window, lambda m, n, k: units.model_s(m, n, k, phase, window), key
        )
        seconds /= self.peak_flop_per_s
        convolution = self.convolution if window else None
        least = convolution.least_factor(window) if convolution and window else 1.0
        rate = self.peak_flop_per_s * (convolution.ceiling[phase] if convolution else self.efficiency.ceiling[phase])
        return np.maximum(seconds, rows * columns * depth * (2.0 * least / rate))

    def model_s(
        self, rows: Floats, columns: Floats, depth: Floats, phase: int, window: ConvolutionWindow | None
    ) -> Floats:
        """Return the seconds of products by the formula, without measured kernels and tiles that span samples.

        Args:
            rows: Rows of the product, >= 1.
            columns: Columns.
            depth: Inner dimension.
            phase: Index into `PROFILE_PHASES`.
            window: Geometry of a convolution, None for plain products.
        """
        e, convolution = self.efficiency, self.convolution if window and phase < 3 else None
        flop = 2.0 * rows * columns * depth
        if convolution and window:
            factor = convolution.factor(rows, columns, depth, phase, window)
            ceiling = convolution.ceiling[phase]
        else:
            factor = (e.half_rows * columns + e.half_columns * rows + e.half_output) / (rows * columns)
            factor += e.half_depth / depth + (1.0 / e.winograd_speedup if window and window.winograd else 1.0)
            ceiling = e.ceiling[phase]
        # By nature: a naive kernel takes no tiles, so has no edges.
        return np.asarray(flop / self.peak_flop_per_s * np.minimum(factor / ceiling, 1.0 / NAIVE_SHARE))

    def executed_share(self, kernels: Kernels, phase: str) -> Floats:
        """Return the share of the FLOP of kernels that the libraries' algorithms execute, shape of the input."""
        window, share = kernels.window, np.ones_like(kernels.flop)
        if not window or self.tiles:
            return share
        number = PROFILE_PHASES.index(phase)
        if self.convolution and number < 3:
            rows, columns, depth = (np.maximum(size, 1.0) for size in (kernels.rows, kernels.columns, kernels.depth))
            return self.convolution.executed_share(rows, columns, depth, number, window)
        return share / self.efficiency.winograd_speedup if window.winograd else share

    def measured(self, model: str, layer: str, phase: str) -> MeasuredRow | None:
        """Return the published time of one phase of a layer, or None where there is none."""
        return self.rows.get((model, layer, phase))

    def measured_parts(self, model: str, layer: str, phase: str, whole: Sequence[int]) -> MeasuredParts | None:
        """Return the measured parts of one phase of a layer, then its published time if there is one.

        Args:
            model: Name with parameters, such as ``vgg16:classes=10``: parameters may change the input of a layer.
                Published rows are for a model whatever its parameters.
            layer: Name of the layer.
            phase: One of `PROFILE_PHASES`.
            whole: Sizes of the layer's output; a published time is for all of it except the number of samples.

        Returns:
            None where nothing is known.
        """
        parts = self.parts.get((model, layer, phase))
        row = self.rows.get((model.partition(":")[0], layer, phase)) if self.rows else None
        if row is None:
            return parts
        published = MeasuredParts(((row.batch, *whole[1:]),), (row.time_s,))
        if parts is None:
            return published
        return MeasuredParts(parts.sizes + published.sizes, parts.time_s + published.time_s)

    def faster(self, speed: float) -> "ComputeProfile":
        """Return the profile of a device that is ``speed`` times as fast in everything, its host too; itself for 1."""
        if speed == 1:
            return self
        rows = {key: replace(row, time_s=row.time_s / speed) for key, row in self.rows.items()}
        parts = {
            key: replace(row, time_s=tuple(second / speed for second in row.time_s)) for key, row in self.parts.items()
        }
        return replace(
            self,
            name=f"{self.name} x {speed:g}",
            peak_flop_per_s=self.peak_flop_per_s * speed,
            memory_bytes_per_s=self.memory_bytes_per_s * speed,
            launch_overhead_s=self.launch_overhead_s / speed,
            dispatch_s=self.dispatch_s / speed,
            fused={key: replace(row, overhead_s=row.overhead_s / speed) for key, row in self.fused.items()},
            convolution=replace(self.convolution, overhead_s=self.convolution.overhead_s / speed)
            if self.convolution
            else None,
            tiles=self.tiles and self.tiles.faster(speed),
            rows=rows,
            parts=parts,
            in_float32=self.in_float32 and self.in_float32.faster(speed),
            codecs={
                key: CodecSpeed(fixed_s=row.fixed_s / speed, elements_per_s=row.elements_per_s * speed)
                for key, row in self.codecs.items()
            },
        )
