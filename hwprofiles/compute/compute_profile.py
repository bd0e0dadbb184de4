"""The time that a device takes for kernels of given sizes: a roofline that is lower for small parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hwprofiles import Bools, ConfigError, Floats, Ints
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.launch import Launch

__all__ = [
    "CODEC_TARGETS",
    "CODEC_TASKS",
    "PROFILE_PHASES",
    "CodecSpeed",
    "ComputeProfile",
    "Efficiency",
    "MeasuredParts",
    "MeasuredRow",
]

PROFILE_PHASES = ("forward", "activation_gradient", "weight_gradient", "bias_gradient", "update")
"""Phases of a layer that have times of their own."""
CODEC_TARGETS = ("gradients", "activations")
"""Data that is compressed: buffers of gradients, or regions of tensors."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeProfile:
    """The arithmetic and memory of one device, in SI units.

    A kernel takes the launch overhead, plus the longer of its arithmetic and its memory traffic, plus the passes
    that only stream memory:
    ``t = launch + max(flop / (peak ceiling) (1/w + r/rows + c/columns + d/depth + o/(rows columns) +
    s/(samples (1 + positions/p))), bytes / (bandwidth fraction)) + streamed bytes / (bandwidth fraction)``
    with the half sizes of `Efficiency`; w is 1 or Winograd's speed-up.  The sum of inverse sizes is the cost of
    edges: operands loaded (rows, columns), prologue (depth), idle multiprocessors (output), tiles that span
    samples and are not full.
    Every term has degree at most one in each size, so time never falls when a size grows, and half
    of a part never takes less than half its time.

    Source:
        The roofline model: Williams, Waterman and Patterson, Communications of the ACM 52 (4), 2009.
    """

    name: str
    description: str
    sources: tuple[str, ...]
    arithmetic: str
    """Arithmetic: ``float32``, or ``tf32``: float32 data, products rounded to 10 bits in the tensor cores."""
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

    def time_s(self, kernels: Kernels, *, phase: str = "forward", winograd: bool | Bools = False) -> Floats:
        """Return the seconds of each kernel, alone on the device.

        Args:
            kernels: Sizes, arrays of one shape; a product's rows, columns, depth and samples are >= 1.
            phase: One of `PROFILE_PHASES`: gradients have ceilings of their own.
            winograd: Flags of the 3 x 3, stride-1, undilated, ungrouped convolutions, for which libraries
                use Winograd's algorithm: fewer multiplications than ``flop`` counts.

        Returns:
            Seconds, shape of the input; 0 where both FLOP and bytes are 0.

        Raises:
            ConfigError: ``phase`` is not one of `PROFILE_PHASES`.

        Source:
            Winograd's algorithm in convolutions: Lavin and Gray, CVPR 2016.
        """
        if phase not in PROFILE_PHASES:
            raise ConfigError(f"phase must be one of {', '.join(PROFILE_PHASES)}, got {phase!r}")
        e, flop, moved = self.efficiency, kernels.flop, kernels.memory_bytes
        # In place, term by term, as this is called for millions of parts: first the factor of the arithmetic.
        rows, columns, depth = kernels.rows, kernels.columns, kernels.depth
        output = rows * columns
        edges = e.half_rows * columns + e.half_columns * rows + e.half_output
        edges /= np.maximum(output, 1.0)
        edges += e.half_depth / np.maximum(depth, 1.0)
        summed = depth if phase == "weight_gradient" else columns  # samples x positions
        edges += e.half_samples * e.half_positions / np.maximum(e.half_positions * kernels.samples + summed, 1.0)
        edges *= output * depth > 0  # streaming kernels have no tiles
        edges += 1.0 if winograd is False else np.where(winograd, 1.0 / e.winograd_speedup, 1.0)
        edges *= flop
        edges /= self.peak_flop_per_s * e.ceiling[PROFILE_PHASES.index(phase)]
        memory_s_per_byte = 1.0 / (self.memory_bytes_per_s * e.memory)
        seconds = np.maximum(edges, moved * memory_s_per_byte)
        seconds += kernels.streamed_bytes * memory_s_per_byte + self.launch_overhead_s
        return np.asarray(seconds * (flop + moved > 0))

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
        """Return the profile of a device that is ``speed`` times as fast in everything; itself for 1."""
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
            rows=rows,
            parts=parts,
            codecs={
                key: CodecSpeed(fixed_s=row.fixed_s / speed, elements_per_s=row.elements_per_s * speed)
                for key, row in self.codecs.items()
            },
        )
