"""How long a device takes for kernels of given sizes: a roofline whose roof sinks for small parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Floats
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.launch import Launch

__all__ = [
    "CODING_PLACES",
    "CODING_TASKS",
    "PROFILE_PHASES",
    "CodingSpeed",
    "ComputeProfile",
    "Efficiency",
    "MeasuredParts",
    "MeasuredRow",
]

PROFILE_PHASES = ("forward", "activation_gradient", "weight_gradient", "bias_gradient", "update")
CODING_PLACES = ("gradients", "activations")
"""What is encoded: buffers of gradients, or regions of tensors."""
CODING_TASKS = ("compress", "decompress", "sum")
"""Encode; decode into a place of its own; decode and add to what is there."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A published time of one phase of one layer."""

    batch: int
    """Samples that the time is for."""
    time_s: float


@dataclass(frozen=True, slots=True)
class MeasuredParts:
    """Measured times of parts of one layer in one phase, of 4-byte numbers."""

    sizes: tuple[tuple[int, ...], ...]
    """Of each part, the box of the output that it makes: samples, channels, positions."""
    time_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingSpeed:
    """How long messages of one data type take to encode or to decode: so much each, and so much for every number."""

    fixed_s: float
    """Of a message, whatever its size."""
    numbers_per_s: float

    def time_s(self, messages: NDArray[np.int64], numbers: NDArray[np.int64]) -> Floats:
        """Seconds for so many messages with so many numbers in all."""
        return np.asarray(self.fixed_s * messages + numbers / self.numbers_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What keeps a device from its peak.  A half size is where its term alone doubles the time."""

    ceiling: tuple[float, ...]
    """Largest fraction of the peak, by phase in the order of `PROFILE_PHASES`; at most 1."""
    winograd_speedup: float
    """Direct FLOP a unit of arithmetic yields in a 3 x 3, stride-1 convolution (Winograd's algorithm), >= 1; edges
    cost the same as without it."""
    half_rows: float
    half_columns: float
    half_depth: float
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
    """One device's arithmetic and memory, in SI units.

    A kernel takes the launch overhead, plus the longer of its arithmetic and its memory traffic, plus the passes
    that stream by themselves:
    ``t = launch + max(flop / (peak ceiling) (1/w + r/rows + c/columns + d/depth + o/(rows columns) +
    s/(samples (1 + positions/p))), bytes / (bandwidth fraction)) + streamed bytes / (bandwidth fraction)``
    with the half sizes of `Efficiency`; w is 1 or Winograd's gain.  The sum of inverse sizes is the cost of
    edges: operands loaded (rows, columns), prologue (depth), idle multiprocessors (output), tiles that span
    samples and are not full.
    Every term has degree at most one in each size, so time never falls when a size grows, and half
    of a part never takes less than half its time.
    """

    name: str
    description: str
    sources: tuple[str, ...]
    arithmetic: str
    """``float32``, or ``tf32``: float32 data, products rounded to 10 bits in the tensor cores."""
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
    """How it takes kernels of several streams; None where that is not known."""
    occupancies: Mapping[tuple[str, str, str], float] = field(default_factory=dict, repr=False)
    """Measured shares of the device that a phase of a whole layer keeps busy, by (model without parameters, layer,
    phase)."""
    coding: Mapping[tuple[str, str, str], CodingSpeed] = field(default_factory=dict, repr=False)
    """Measured by (data type with its parameters, one of `CODING_PLACES`, one of `CODING_TASKS`)."""

    def time_s(self, kernels: Kernels, *, phase: str = "forward", winograd: bool | NDArray[np.bool_] = False) -> Floats:
        """Return the seconds of each kernel, alone on the device.

        Args:
            kernels: Sizes, arrays of one shape; a product's rows, columns, depth and samples are >= 1.
            phase: One of `PROFILE_PHASES`: gradients have ceilings of their own.
            winograd: Which are 3 x 3, stride-1, undilated, ungrouped convolutions, for which libraries
                use Winograd's algorithm (Lavin and Gray, CVPR 2016): fewer multiplications than ``flop`` says.

        Returns:
            Seconds, shape of the input; 0 where both FLOP and bytes are 0.

        Raises:
            ConfigError: ``phase`` is not one of `PROFILE_PHASES`.
        """
        if phase not in PROFILE_PHASES:
            raise ConfigError(f"phase must be one of {', '.join(PROFILE_PHASES)}, got {phase!r}")
        e, flop, moved = self.efficiency, kernels.flop, kernels.memory_bytes
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
        """Return all that is known of one phase of a layer: measured parts, then the published time if there is one.

        Args:
            model: Name with parameters, such as ``vgg16:classes=10``: parameters may change what a layer reads.
                Published rows are for a model whatever its parameters.
            layer, phase: What was measured.
            whole: Sizes of the layer's output; a published time is for all but its samples.
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
        """The profile of a device that does everything ``speed`` times as fast; itself for 1."""
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
            coding={
                key: CodingSpeed(fixed_s=row.fixed_s / speed, numbers_per_s=row.numbers_per_s * speed)
                for key, row in self.coding.items()
            },
        )
