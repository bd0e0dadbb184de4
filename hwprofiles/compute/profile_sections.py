"""The sections of a compute profile's file: their rules, and the values that they stand for."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from groundwork.units import MICRO
from hwprofiles.compute.compute_profile import PROFILE_PHASES, Efficiency
from hwprofiles.compute.convolution_efficiency import ConvolutionEfficiency, HalfSizes
from hwprofiles.compute.fused_kernels import FusedEfficiency
from hwprofiles.compute.kernel_table import KernelTable, TableRows
from hwprofiles.compute.tile_convolution import VECTOR_BYTES, TileConvolution

TABLE_COLUMNS = ("phase", "rows", "columns", "depth", "window", "stride", "correction")
"""Columns of the text of measured kernels."""
_PHASES = PROFILE_PHASES[:3]

# Strict: a boolean or a quoted number is an error.  The bound keeps the conversion to SI finite.
Positive = Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False, strict=True)]
Fraction = Annotated[float, Field(ge=1e-9, le=1, strict=True)]
Clock = Annotated[float, Field(ge=1e-9, le=2, strict=True)]
"""Share of the boost clock, which cards exceed where power and temperature allow."""
Share = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(gt=0, strict=True)]


class Section(BaseModel):
    """A mapping of a profile file, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Ceiling(Section):
    """Largest fractions of the peak, by phase."""

    forward: Fraction
    activation_gradient: Fraction
    weight_gradient: Fraction


class _HalfSizes(Section):
    """Half sizes; see ``Efficiency``."""

    rows: Positive
    columns: Positive
    depth: Positive
    output_elements: Positive
    samples: Positive
    positions: Positive


class _ByPhase(Section):
    """A positive number for each phase."""

    forward: Positive
    activation_gradient: Positive
    weight_gradient: Positive

    def value(self, unit: float = 1.0) -> tuple[float, float, float]:
        """Return the numbers in a unit, in the order of the phases."""
        return self.forward * unit, self.activation_gradient * unit, self.weight_gradient * unit


class EfficiencySection(Section):
    """The section ``efficiency``; see ``Efficiency``."""

    ceiling: _Ceiling
    winograd_speedup: Annotated[float, Field(ge=1, le=9, strict=True)]
    half_sizes: _HalfSizes
    memory: Fraction
    unaligned: _ByPhase | None = None

    def value(self) -> Efficiency:
        """Return the efficiency in the program's terms."""
        half, ceiling = self.half_sizes, self.ceiling
        return Efficiency(
            ceiling=tuple(getattr(ceiling, phase, 1.0) for phase in PROFILE_PHASES),  # others only stream
            winograd_speedup=self.winograd_speedup,
            half_rows=half.rows,
            half_columns=half.columns,
            half_depth=half.depth,
            half_output=half.output_elements,
            half_samples=half.samples,
            half_positions=half.positions,
            memory=self.memory,
            unaligned=self.unaligned.value() if self.unaligned else (1.0, 1.0, 1.0),
        )


class LaunchSection(Section):
    """The section ``launch``; see ``Launch``."""

    tile_rows: Count
    tile_columns: Count
    blocks_per_multiprocessor: Count
    priorities: Count
    streams: Count


class _ProductHalfSizes(Section):
    """Half sizes of one phase of convolutions; see ``HalfSizes``."""

    rows: Positive
    columns: Positive
    depth: Positive
    output_elements: Positive


class _PhaseHalfSizes(Section):
    """Half sizes of convolutions by phase, and of tiles that span samples."""

    forward: _ProductHalfSizes
    activation_gradient: _ProductHalfSizes
    weight_gradient: _ProductHalfSizes
    samples: Positive
    positions: Positive


class _Winograd(Section):
    """Winograd's algorithm; see ``ConvolutionEfficiency``."""

    speedup: Annotated[float, Field(ge=1, le=9, strict=True)]
    half_out: Positive
    half_in: Positive
    weight_gradient: Positive


class _Fourier(Section):
    """Fourier transforms; see ``ConvolutionEfficiency``."""

    positions: Positive
    half_out: Positive
    half_in: Positive


class ConvolutionSection(Section):
    """The section ``convolution``; see ``ConvolutionEfficiency``."""

    ceiling: _Ceiling
    half_sizes: _PhaseHalfSizes
    memory: Fraction
    overhead_us: Positive
    winograd: _Winograd
    fourier: _Fourier
    strided_half_depth: Share
    window_reuse: Annotated[float, Field(ge=0, le=1, strict=True)]

    def value(self) -> ConvolutionEfficiency:
        """Return the parameters in the program's terms."""
        half = [HalfSizes(**getattr(self.half_sizes, phase).model_dump()) for phase in _PHASES]
        return ConvolutionEfficiency(
            ceiling=(self.ceiling.forward, self.ceiling.activation_gradient, self.ceiling.weight_gradient),
            half_sizes=(half[0], half[1], half[2]),
            half_samples=self.half_sizes.samples,
            half_positions=self.half_sizes.positions,
            memory=self.memory,
            overhead_s=self.overhead_us * MICRO,
            winograd_speedup=self.winograd.speedup,
            winograd_half_out=self.winograd.half_out,
            winograd_half_in=self.winograd.half_in,
            winograd_weight_gradient=self.winograd.weight_gradient,
            fourier_positions=self.fourier.positions,
            fourier_half_out=self.fourier.half_out,
            fourier_half_in=self.fourier.half_in,
            strided_half_depth=self.strided_half_depth,
            window_reuse=self.window_reuse,
        )


class TileSection(Section):
    """The section ``tiles`` of an arithmetic of tensor cores; see ``TileConvolution``."""

    ceiling: Fraction
    overhead_us: _ByPhase
    load: _ByPhase
    strided: _ByPhase
    unaligned: _ByPhase
    prologue: Positive
    memory: Fraction
    partial_accesses: Positive
    narrow_window: Positive
    plain_overhead_us: _ByPhase | None = None
    least_rows: Literal[32, 64] = 32
    unaligned_in_float32: bool = False
    gradient_channels: Literal[1, 64] = 1

    def value(self, element_bytes: int = 2) -> TileConvolution:
        """Return the parameters in the program's terms, for elements of a size."""
        return TileConvolution(
            ceiling=self.ceiling,
            overhead_s=self.overhead_us.value(MICRO),
            load=self.load.value(),
            strided=self.strided.value(),
            unaligned=self.unaligned.value(),
            prologue=self.prologue,
            memory=self.memory,
            partial_accesses=self.partial_accesses,
            narrow_window=self.narrow_window,
            channel_multiple=VECTOR_BYTES // element_bytes,
            plain_overhead_s=self.plain_overhead_us.value(MICRO) if self.plain_overhead_us else None,
            least_rows=self.least_rows,
            unaligned_in_float32=self.unaligned_in_float32 or element_bytes == 4,  # TF32 is of float32's data
            gradient_channels=self.gradient_channels,
        )


class _Lengths(Section):
    """Distances, in natural logarithms of sizes, over which corrections hold."""

    rows: Positive
    columns: Positive
    depth: Positive
    window: Positive
    stride: Positive


class KernelSection(Section):
    """The section ``kernels``: measured kernels as corrections of the formula; see ``KernelTable``."""

    lengths: _Lengths
    spread: Annotated[float, Field(gt=0, le=3, strict=True)]
    noise: Annotated[float, Field(gt=0, le=3, strict=True)]
    table: str
    """Lines of ``TABLE_COLUMNS``, with their names first: one string, as YAML reads thousands of numbers slowly."""

    @field_validator("table")
    @classmethod
    def _readable(cls, text: str) -> str:
        """Refuse a table that ``value`` could not read."""
        header, *lines = text.strip().splitlines() or [""]
        if tuple(header.split()) != TABLE_COLUMNS:
            raise ValueError(f"needs the columns {' '.join(TABLE_COLUMNS)} in its first line")
        if not 1 <= len(lines) <= 5000:
            raise ValueError(f"needs between 1 and 5,000 rows, and there are {len(lines)}")
        for number, line in enumerate(lines, 1):
            if not _is_kernel(line.split()):
                raise ValueError(f"row {number} must be a phase, five whole numbers and a correction, and is {line!r}")
        return text

    def value(self) -> KernelTable:
        """Return the table in the program's terms."""
        rows = [line.split() for line in self.table.strip().splitlines()[1:]]
        numbers = np.array([[float(value) for value in row[1:]] for row in rows])
        return KernelTable(
            rows=TableRows(
                phase=np.array([_PHASES.index(row[0]) for row in rows]),
                sizes=numbers[:, :3],
                positions=numbers[:, 3].astype(np.int64),
                stride=numbers[:, 4].astype(np.int64),
                correction=numbers[:, 5],
            ),
            lengths=(
                self.lengths.rows,
                self.lengths.columns,
                self.lengths.depth,
                self.lengths.window,
                self.lengths.stride,
            ),
            spread=self.spread,
            noise=self.noise,
        )


def _is_kernel(values: list[str]) -> bool:
    """Return whether the values of a line are a measured kernel."""
    if len(values) != len(TABLE_COLUMNS) or values[0] not in _PHASES:
        return False
    *sizes, window, stride, correction = values[1:]
    try:
        whole = [int(size) for size in (*sizes, stride)]
        return all(0 < size <= 2**40 for size in whole) and 0 <= int(window) <= 2**20 and abs(float(correction)) <= 5
    except ValueError:
        return False


class FusedSection(Section):
    """An entry of the section ``fused``; see ``FusedEfficiency``."""

    kind: Literal["attention", "norm", "elementwise", "moe"]
    phase: Literal["forward", "backward"]
    ceiling: Fraction = 0.6
    half_blocks: Share = 1.0
    head_exponent: Annotated[float, Field(ge=0, le=2, strict=True)] = 0.5
    memory: Fraction = 0.6
    overhead_us: Positive = 10.0

    def value(self) -> FusedEfficiency:
        """Return the parameters in the program's terms."""
        return FusedEfficiency(
            ceiling=self.ceiling,
            half_blocks=self.half_blocks,
            head_exponent=self.head_exponent,
            memory=self.memory,
            overhead_s=self.overhead_us * MICRO,
        )


class PrecisionSection(Section):
    """An entry of ``precisions``: what differs when products are computed in another arithmetic."""

    peak_tflop_per_s: Positive
    sustained_clock: Clock | None = None
    element_bytes: Annotated[int, Field(ge=1, le=8, strict=True)] = 2
    efficiency: EfficiencySection | None = None
    tiles: TileSection | None = None
    kernels: KernelSection | None = None
    fused: list[FusedSection] = []


class DoubleSection(Section):
    """The section ``float64``: the peak of products, and of convolutions where that is another; where it is from.

    Products have shares of their own where they were measured.
    """

    peak_tflop_per_s: Positive
    convolution_tflop_per_s: Positive | None = None
    source: Annotated[str, Field(min_length=1)]
    efficiency: EfficiencySection | None = None
    kernels: KernelSection | None = None


class _Errors(Section):
    """Errors of one kind of rows that the parameters were not fitted to."""

    rows: Count
    median: Share
    p90: Share
    bias: Annotated[float, Field(allow_inf_nan=False, strict=True)]


class FitSection(Section):
    """The section ``fit``: how the numbers were obtained and how far they are off; for readers, prices ignore it."""

    method: str
    held_out: str
    errors: dict[str, _Errors]
    at_prior: list[str] = []
    transferred_from: str | None = None
    precision: dict[str, Any] = {}
