"""Compute profiles as YAML files: their rules, and the catalogue in ``hwprofiles/profiles``."""

from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hwprofiles import GIB, GIGA, MICRO, MILLI, TERA, ConfigError, broken_rules, did_you_mean, yaml_input
from hwprofiles.compute.compute_profile import (
    PROFILE_PHASES,
    CodecSpeed,
    ComputeProfile,
    Efficiency,
    MeasuredParts,
    MeasuredRow,
)
from hwprofiles.compute.launch import Launch

__all__ = ["ProfileFile", "catalogue", "load_profile", "profile_names"]

FOLDER = Path(__file__).parents[1] / "profiles"

# Strict: a boolean or a quoted number is an error.  The bound keeps the conversion to SI finite.
_Positive = Annotated[float, Field(ge=1e-9, le=1e12, allow_inf_nan=False, strict=True)]
Fraction = Annotated[float, Field(ge=1e-9, le=1, strict=True)]
Share = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False, strict=True)]
_Count = Annotated[int, Field(gt=0, strict=True)]


class _Section(BaseModel):
    """A mapping of a profile file, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Ceiling(_Section):
    """Largest fractions of the peak, by phase."""

    forward: Fraction
    activation_gradient: Fraction
    weight_gradient: Fraction


class _HalfSizes(_Section):
    """Half sizes; see ``Efficiency``."""

    rows: _Positive
    columns: _Positive
    depth: _Positive
    output_elements: _Positive
    samples: _Positive
    positions: _Positive


class _Efficiency(_Section):
    """The section ``efficiency``; see ``Efficiency``."""

    ceiling: _Ceiling
    winograd_speedup: Annotated[float, Field(ge=1, le=9, strict=True)]
    half_sizes: _HalfSizes
    memory: Fraction


class _Launch(_Section):
    """The section ``launch``; see ``Launch``."""

    tile_rows: _Count
    tile_columns: _Count
    blocks_per_multiprocessor: _Count
    priorities: _Count
    streams: _Count


class _Row(_Section):
    """A row of ``measured``: times and occupancies of a whole layer or of a part of it."""

    model: str
    layer: str
    batch: _Count | None = None
    part: Annotated[tuple[_Count, ...], Field(min_length=2, max_length=6)] | None = None
    spread: Share | None = None
    forward_ms: _Positive | None = None
    activation_gradient_ms: _Positive | None = None
    weight_gradient_ms: _Positive | None = None
    update_ms: _Positive | None = None
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


def _renamed_keys(mapping: Any, new_names: dict[str, str]) -> Any:
    """Return a mapping of a file with new names for old keys; a key that is there by both names stays as it is."""
    if not isinstance(mapping, dict):
        return mapping
    return {
        new_names[key] if key in new_names and new_names[key] not in mapping else key: mapping[key] for key in mapping
    }


class _CodecRow(_Section):
    """A row of ``compression``: the measured speed of a codec."""

    type: Annotated[str, Field(min_length=1)]
    place: Literal["gradients", "activations"]
    task: Literal["compress", "decompress", "sum"]
    elements_per_s: Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False, strict=True)]
    fixed_us: Share
    elements: Annotated[list[_Count], Field(min_length=1)]
    median_ms: list[_Positive]
    spread: Share

    @model_validator(mode="before")
    @classmethod
    def _new_names(cls, row: Any) -> Any:
        """Accept the names of version 0.1: ``numbers`` for ``elements``, and so for their rate."""
        return _renamed_keys(row, {"numbers": "elements", "numbers_per_s": "elements_per_s"})

    @model_validator(mode="after")
    def _one_median_each(self) -> Self:
        """Raise unless there are as many times as sizes."""
        if len(self.median_ms) != len(self.elements):
            raise ValueError(f"needs a median_ms for each of its {len(self.elements)} sizes")
        return self


class _CodecSection(_Section):
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


class ProfileFile(_Section):
    """The keys of a profile file, in vendor units, which are converted here and nowhere else."""

    description: str
    sources: Annotated[list[str], Field(min_length=1)]
    arithmetic: Literal["float32", "tf32"]
    peak_tflop_per_s: _Positive
    memory_bandwidth_gbyte_per_s: _Positive
    memory_gib: _Positive
    launch_overhead_us: _Positive
    multiprocessors: _Count
    efficiency: _Efficiency
    launch: _Launch | None = None
    measured: list[_Row] = []
    compression: _CodecSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _new_names(cls, file: Any) -> Any:
        """Accept the name of version 0.1: ``coding`` for ``compression``."""
        return _renamed_keys(file, {"coding": "compression"})

    def profile(self, name: str) -> ComputeProfile:
        """Return the profile in SI units."""
        return ComputeProfile(
            name=name,
            description=self.description,
            sources=tuple(self.sources),
            arithmetic=self.arithmetic,
            peak_flop_per_s=self.peak_tflop_per_s * TERA,
            memory_bytes_per_s=self.memory_bandwidth_gbyte_per_s * GIGA,
            launch_overhead_s=self.launch_overhead_us * MICRO,
            memory_bytes=self.memory_gib * GIB,
            multiprocessors=self.multiprocessors,
            efficiency=_efficiency(self.efficiency),
            rows=_rows(self.measured),
            parts=_parts(self.measured),
            launch=Launch(**self.launch.model_dump()) if self.launch else None,
            occupancies=_occupancies(self.measured),
            codecs=_codecs(self.compression.rows if self.compression else []),
        )


def _efficiency(section: _Efficiency) -> Efficiency:
    """Return the efficiency of a profile."""
    half, ceiling = section.half_sizes, section.ceiling
    return Efficiency(
        ceiling=tuple(getattr(ceiling, phase, 1.0) for phase in PROFILE_PHASES),  # reductions and updates only stream
        winograd_speedup=section.winograd_speedup,
        half_rows=half.rows,
        half_columns=half.columns,
        half_depth=half.depth,
        half_output=half.output_elements,
        half_samples=half.samples,
        half_positions=half.positions,
        memory=section.memory,
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
def _shipped(name: str) -> ComputeProfile:
    """Return a profile of the catalogue, read once."""
    return _read(catalogue()[name])


def profile_names() -> list[str]:
    """Return the names of the catalogue's profiles, sorted."""
    return sorted(catalogue())


def load_profile(name: str) -> ComputeProfile:
    """Return a profile of the catalogue, or the one in a YAML file.

    Args:
        name: A catalogue entry (`profile_names`) or the path of a file that ends in .yaml or .yml.

    Raises:
        ConfigError: There is no such entry (the nearest is named) or file, or the file breaks a rule; every
            broken rule is listed with its path.
    """
    if name in catalogue():
        return _shipped(name)
    if Path(name).suffix in (".yaml", ".yml"):
        return _read(Path(name))
    hint = did_you_mean(name, catalogue(), cutoff=0.3) or f"; known: {', '.join(profile_names())}"
    raise ConfigError(f"unknown compute profile {name!r}{hint}")


def _read(path: Path) -> ComputeProfile:
    """Read and check a profile file."""
    data = yaml_input(path, "compute profile")
    try:
        return ProfileFile.model_validate(data).profile(path.stem)
    except ValidationError as error:
        raise ConfigError(f"compute profile {path}: {broken_rules(error)}") from None
