"""Compute profiles as YAML files: their rules, and the catalogue in ``hwprofiles/profiles``."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import Field, ValidationError, model_validator

from groundwork.errors import ConfigError
from groundwork.input_files import yaml_input
from groundwork.rule_texts import broken_rules
from groundwork.suggestions import did_you_mean
from groundwork.units import GIB, GIGA, MICRO, MILLI, TERA
from hwprofiles.compute.compute_profile import (
    PROFILE_PHASES,
    CodecSpeed,
    ComputeProfile,
    MeasuredParts,
    MeasuredRow,
)
from hwprofiles.compute.fused_kernels import FusedEfficiency
from hwprofiles.compute.launch import Launch
from hwprofiles.compute.profile_sections import (
    Clock,
    ConvolutionSection,
    Count,
    DoubleSection,
    EfficiencySection,
    FitSection,
    Fraction,
    FusedSection,
    KernelSection,
    LaunchSection,
    Positive,
    PrecisionSection,
    Section,
    Share,
)
from hwprofiles.plugins.entry_points import plugin_names, plugin_path

ARITHMETICS = ("float32", "float64", "tf32", "float16", "bfloat16", "float8")
"""Arithmetic of products; all but the first two use tensor cores, and sum in float32."""
_Arithmetic = Literal["float32", "tf32", "float16", "bfloat16", "float8"]
_PRODUCTS_LIKE: dict[str, _Arithmetic] = {
    "float16": "bfloat16",
    "bfloat16": "float16",
    "float8": "bfloat16",
    "tf32": "bfloat16",
}
"""Arithmetic of the same tensor cores, whose efficiency another one has, where it has none of its own."""
_TILES_LIKE = {"bfloat16": ("float16",), "float16": ("bfloat16",), "float8": ("bfloat16", "float16")}
"""Arithmetic of the same tensor cores whose convolutions another one has, where it has none of its own."""
_FUSED_LIKE: dict[str, _Arithmetic] = {**_PRODUCTS_LIKE, "float32": "bfloat16"}
"""Arithmetic whose fused kernels another one runs, where it has none of its own."""
FOLDER = Path(__file__).parents[1] / "profiles"


class _Row(Section):
    """A row of ``measured``: times and occupancies of a whole layer or of a part of it."""

    model: str
    layer: str
    batch: Count | None = None
    part: Annotated[tuple[Count, ...], Field(min_length=2, max_length=6)] | None = None
    spread: Share | None = None
    forward_ms: Positive | None = None
    activation_gradient_ms: Positive | None = None
    weight_gradient_ms: Positive | None = None
    update_ms: Positive | None = None
    forward_occupancy: Fraction | None = None
    activation_gradient_occupancy: Fraction | None = None
    weight_gradient_occupancy: Fraction | None = None
    bias_gradient_occupancy: Fraction | None = None
    update_occupancy: Fraction | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        """Raise unless the row is either of a whole layer or of a part."""
        if (self.batch is None) == (self.part is None):
            raise ValueError("needs either batch (of a whole layer) or part (its samples, channels and positions)")
        return self


class _CodecRow(Section):
    """A row of ``compression``: the measured speed of a codec."""

    type: Annotated[str, Field(min_length=1)]
    place: Literal["gradients", "activations"]
    task: Literal["compress", "decompress", "sum"]
    elements_per_s: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False, strict=True)]
    fixed_us: Share
    elements: Annotated[list[Count], Field(min_length=1)]
    median_ms: list[Positive]
    spread: Share

    @model_validator(mode="after")
    def _one_median_each(self) -> Self:
        """Raise unless there are as many times as sizes."""
        if len(self.median_ms) != len(self.elements):
            raise ValueError(f"needs a median_ms for each of its {len(self.elements)} sizes")
        return self


class _CodecSection(Section):
    """The section ``compression``: speeds of codecs, with the device and software that they were measured on."""

    device: Annotated[str, Field(min_length=1)]
    measured: Annotated[str, Field(min_length=1)]
    software: Annotated[str, Field(min_length=1)]
    rows: Annotated[list[_CodecRow], Field(min_length=1)]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        """Raise where two rows are of one type, place and task."""
        keys = [(row.type, row.place, row.task) for row in self.rows]
        repeated = next((key for key in keys if keys.count(key) > 1), None)
        if repeated:
            raise ValueError(f"needs each type, place and task once, and {', '.join(repeated)} is there twice")
        return self


class ProfileFile(Section):
    """The keys of a profile file, in vendor units, which are converted here and nowhere else."""

    description: str
    sources: Annotated[list[str], Field(min_length=1)]
    arithmetic: _Arithmetic
    peak_tflop_per_s: Positive
    memory_bandwidth_gbyte_per_s: Positive
    memory_gib: Positive
    launch_overhead_us: Positive
    multiprocessors: Count
    efficiency: EfficiencySection
    sustained_clock: Clock = 1.0
    dispatch_overhead_us: Share = 0.0
    convolution: ConvolutionSection | None = None
    kernels: KernelSection | None = None
    fused: Annotated[list[FusedSection], Field(default_factory=list)]
    float64: DoubleSection | None = None
    precisions: Annotated[dict[_Arithmetic, PrecisionSection], Field(default_factory=dict)]
    launch: LaunchSection | None = None
    fit: FitSection | None = None
    measured: Annotated[list[_Row], Field(default_factory=list)]
    compression: _CodecSection | None = None

    def profile(self, name: str, arithmetic: str = "") -> ComputeProfile:
        """Return the profile in SI units, in the file's arithmetic, in float64 or in another of its ``precisions``.

        Without a peak in float64 products take as long there as in the file's arithmetic.

        Raises:
            ConfigError: The file does not say how fast the device is in this arithmetic.
        """
        plain = self._plain(name)
        if arithmetic in ("", self.arithmetic):
            return plain
        if arithmetic == "float64":
            return _in_float64(plain, self.float64, self._relative_in(arithmetic)) if self.float64 else plain
        known: dict[str, PrecisionSection] = dict(self.precisions.items())
        if arithmetic not in known:
            names = ", ".join([self.arithmetic, *known])
            raise ConfigError(f"compute profile {name!r} knows no arithmetic {arithmetic!r}; known: {names}")
        other = known[arithmetic]
        like = known.get(_PRODUCTS_LIKE.get(arithmetic, ""))
        nearest = (known.get(name) for name in (arithmetic, *_TILES_LIKE.get(arithmetic, ())))
        tiles = next((each.tiles for each in nearest if each and each.tiles), None)
        # what tensor cores sustain was measured apart; without them the units are those of float32
        clock = other.sustained_clock or (1.0 if tiles else self.sustained_clock)
        return replace(
            plain,
            name=f"{name}@{arithmetic}",
            arithmetic=arithmetic,
            peak_flop_per_s=other.peak_tflop_per_s * clock * TERA,
            sustained_clock=clock,
            efficiency=(other.efficiency or (like and like.efficiency) or self.efficiency).value(),
            convolution=None if tiles else plain.convolution,
            tiles=tiles.value(other.element_bytes) if tiles else None,
            table=other.kernels.value() if other.kernels else None if tiles else plain.table,
            fused=self._fused_in(arithmetic),
            element_bytes=other.element_bytes,
            in_float32=plain if self.arithmetic == "float32" and tiles else None,
            relative=self._relative_in(arithmetic),
            rows={},
            parts={},
        )

    def _relative_in(self, arithmetic: str) -> str:
        """Return the relative whose shares of the peak hold in an arithmetic; empty if rows of the device hold there.

        Errors of rows in the file's own arithmetic are named by their kind alone, others by their arithmetic before it.
        """
        if self.fit is None or self.fit.transferred_from is None:
            return ""
        other = {any(kind.startswith(f"{name} ") for name in ARITHMETICS) for kind in self.fit.errors}
        return "" if (arithmetic != self.arithmetic) in other else self.fit.transferred_from

    def _fused_in(self, arithmetic: str) -> dict[tuple[str, str], FusedEfficiency]:
        """Return the efficiencies of fused kernels in an arithmetic: its own, or those of one like it.

        Both types of sixteen bits have one peak, and the same kernels.  Where products multiply in eight bits attention
        and what only streams stay in sixteen; in wider types attention reaches the same share of a lower peak, and what
        only streams the same share of the bandwidth.  Experts are products, so theirs are taken over between types of
        sixteen bits alone.
        """
        own = self if arithmetic == self.arithmetic else self.precisions[cast(_Arithmetic, arithmetic)]
        like = self.precisions.get(_FUSED_LIKE[arithmetic])
        if own.fused or like is None or not like.fused:
            return _fused(own.fused or self.fused)
        clocks = (like.sustained_clock or 1.0) / (own.sustained_clock or 1.0)
        slower = like.peak_tflop_per_s / own.peak_tflop_per_s * clocks
        return {
            key: replace(each, ceiling=each.ceiling * min(slower, 1.0))
            for key, each in _fused(like.fused).items()
            if arithmetic in ("float16", "bfloat16") or key[0] != "moe"
        }

    def _plain(self, name: str) -> ComputeProfile:
        """Return the profile in the file's own arithmetic."""
        return ComputeProfile(
            name=name,
            description=self.description,
            sources=tuple(self.sources),
            arithmetic=self.arithmetic,
            peak_flop_per_s=self.peak_tflop_per_s * self.sustained_clock * TERA,
            memory_bytes_per_s=self.memory_bandwidth_gbyte_per_s * GIGA,
            launch_overhead_s=self.launch_overhead_us * MICRO,
            memory_bytes=self.memory_gib * GIB,
            multiprocessors=self.multiprocessors,
            efficiency=self.efficiency.value(),
            rows=_rows(self.measured),
            parts=_parts(self.measured),
            convolution=self.convolution.value() if self.convolution else None,
            table=self.kernels.value() if self.kernels else None,
            fused=self._fused_in(self.arithmetic),
            sustained_clock=self.sustained_clock,
            dispatch_s=self.dispatch_overhead_us * MICRO,
            relative=self._relative_in(self.arithmetic),
            launch=Launch(**self.launch.model_dump()) if self.launch else None,
            occupancies=_occupancies(self.measured),
            codecs=_codecs(self.compression.rows if self.compression else []),
        )


def _in_float64(plain: ComputeProfile, section: DoubleSection, relative: str) -> ComputeProfile:
    """Return a float32 profile in float64: where nothing was measured with the same shares of another peak.

    Libraries compute convolutions as products alone: cuDNN has Winograd's algorithm in float32 and half precision only.
    """
    convolution = plain.convolution
    if convolution:
        slower = (section.convolution_tflop_per_s or section.peak_tflop_per_s) / section.peak_tflop_per_s
        forward, activation, weight = (share * slower for share in convolution.ceiling)
        convolution = replace(convolution.by_products(), ceiling=(forward, activation, weight))
    return replace(
        plain,
        name=f"{plain.name}@float64",
        arithmetic="float64",
        peak_flop_per_s=section.peak_tflop_per_s * plain.sustained_clock * TERA,
        efficiency=replace(
            section.efficiency.value() if section.efficiency else plain.efficiency, winograd_speedup=1.0
        ),
        convolution=convolution,
        table=section.kernels.value() if section.kernels else None,
        element_bytes=8,
        relative=relative if section.kernels else plain.relative or plain.name,
        rows={},
        parts={},
    )


def _times(row: _Row) -> dict[str, float]:
    """Return the seconds of a row by phase."""
    times = {phase: getattr(row, f"{phase}_ms", None) for phase in PROFILE_PHASES}
    return {phase: time_ms * MILLI for phase, time_ms in times.items() if time_ms is not None}


def _rows(rows: list[_Row]) -> dict[tuple[str, str, str], MeasuredRow]:
    """Return the times of whole layers."""
    return {
        (row.model, row.layer, phase): MeasuredRow(row.batch, time_s)
        for row in rows
        if row.batch is not None
        for phase, time_s in _times(row).items()
    }


def _occupancies(rows: list[_Row]) -> dict[tuple[str, str, str], float]:
    """Return the measured occupancies."""
    return {
        (row.model, row.layer, phase): share
        for row in rows
        for phase in PROFILE_PHASES
        if (share := getattr(row, f"{phase}_occupancy")) is not None
    }


def _parts(rows: list[_Row]) -> dict[tuple[str, str, str], MeasuredParts]:
    """Return the times of parts of layers."""
    times_of: dict[tuple[str, str, str], dict[tuple[int, ...], float]] = {}
    for row in rows:
        if row.part is not None:
            for phase, time_s in _times(row).items():
                times_of.setdefault((row.model, row.layer, phase), {})[row.part] = time_s
    return {key: MeasuredParts(tuple(times), tuple(times.values())) for key, times in times_of.items()}


def _fused(rows: list[FusedSection]) -> dict[tuple[str, str], FusedEfficiency]:
    """Return the efficiencies of fused kernels."""
    return {(row.kind, row.phase): row.value() for row in rows}


def _codecs(rows: list[_CodecRow]) -> dict[tuple[str, str, str], CodecSpeed]:
    """Return the measured speeds of codecs."""
    return {
        (row.type, row.place, row.task): CodecSpeed(fixed_s=row.fixed_us * MICRO, elements_per_s=row.elements_per_s)
        for row in rows
    }


@cache
def catalogue() -> dict[str, Path]:
    """Return the file of every profile that ships with the package."""
    return {path.stem: path for path in FOLDER.glob("*.yaml")}


@cache
def _shipped(name: str, arithmetic: str) -> ComputeProfile:
    """Return a profile of the catalogue, read once."""
    return profile_file(name).profile(name, arithmetic)


def profile_names() -> list[str]:
    """Return the names of the catalogue's profiles, and of those that plug-ins offer, sorted."""
    return sorted({*catalogue(), *plugin_names("devices")})


def profile_path(name: str) -> Path:
    """Return the file of a profile: of the catalogue, of a plug-in, or of that path.

    Raises:
        ConfigError: It is none of these; the nearest name is given.
    """
    if name in catalogue() or Path(name).suffix in (".yaml", ".yml"):
        return catalogue().get(name, Path(name))
    if name in plugin_names("devices"):
        return plugin_path("devices", name)
    hint = did_you_mean(name, profile_names(), cutoff=0.3) or f"; known: {', '.join(profile_names())}"
    raise ConfigError(f"unknown compute profile {name!r}{hint}")


def load_profile(name: str) -> ComputeProfile:
    """Return a profile of the catalogue or of a plug-in, or the one in a YAML file.

    Args:
        name: One of ``profile_names()`` or the path of a file that ends in .yaml or .yml; ``@`` and one of
            ``ARITHMETICS`` behind it choose another arithmetic than the profile's own, as in ``v100-16gb@float16``.

    Raises:
        ConfigError: There is no such entry (the nearest is named) or file, the file breaks a rule (every broken rule
            is listed with its path), or does not know the arithmetic.
    """
    base, mark, arithmetic = name.rpartition("@")
    if not mark or arithmetic not in ARITHMETICS:
        base, arithmetic = name, ""
    return (
        _shipped(base, arithmetic) if base in catalogue() else profile_file(base).profile(Path(base).stem, arithmetic)
    )


def profile_file(name: str) -> ProfileFile:
    """Return the checked content of a profile of the catalogue or of a plug-in, or of the YAML file of that path.

    Raises:
        ConfigError: As for ``load_profile``.
    """
    path = profile_path(name)
    data = yaml_input(path, "compute profile")
    try:
        return ProfileFile.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"compute profile {path}: {broken_rules(error)}") from None


def profile_in(name: str, arithmetic: str) -> ComputeProfile:
    """Return a profile in an arithmetic.

    Raises:
        ConfigError: As for ``load_profile``; or the name says another arithmetic.
    """
    own = name.rpartition("@")[2]
    if own not in ARITHMETICS or not arithmetic:
        return load_profile(f"{name}@{arithmetic}" if arithmetic else name)
    if own != arithmetic:
        raise ConfigError(f"dtype must be {own}, as the compute profile {name!r} says, got {arithmetic!r}")
    return load_profile(name)
