"""Summaries of compute profiles: how fast a device is, and how far its prices are from measurements."""

from dataclasses import dataclass

from groundwork.units import GIB, GIGA, TERA
from hwprofiles.compute.profile_file import profile_file


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileErrors:
    """Errors of one kind of measured rows that were left out of the fit."""

    kind: str
    """Such as ``bfloat16 product``."""
    rows: int
    median: float
    """Median of the absolute errors, as a share of the measured time."""
    p90: float
    """90th percentile of the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSummary:
    """What a profile says of a device, and from what."""

    name: str
    description: str
    peak_flop_per_s: dict[str, float]
    """Peak of the data sheet by arithmetic."""
    memory_bytes: float
    memory_bytes_per_s: float
    errors: tuple[ProfileErrors, ...]
    """Errors on rows that were held out; empty where the profile was not fitted."""
    transferred_from: str
    """Relative whose parameters stand for those that no row determines; empty without one."""
    sources: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of measured rows that the errors are those of."""
        return sum(each.rows for each in self.errors)


def describe_profile(name: str) -> ProfileSummary:
    """Return the summary of a profile.

    Args:
        name: A catalogue entry, or the path of a profile file.

    Raises:
        ConfigError: As for ``load_profile``.
    """
    file = profile_file(name)
    fit = file.fit
    others = {str(arithmetic): section.peak_tflop_per_s * TERA for arithmetic, section in file.precisions.items()}
    if file.float64:
        others["float64"] = file.float64.peak_tflop_per_s * TERA
    return ProfileSummary(
        name=name,
        description=file.description,
        peak_flop_per_s={file.arithmetic: file.peak_tflop_per_s * TERA, **others},
        memory_bytes=file.memory_gib * GIB,
        memory_bytes_per_s=file.memory_bandwidth_gbyte_per_s * GIGA,
        errors=tuple(
            ProfileErrors(kind=kind, rows=each.rows, median=each.median, p90=each.p90)
            for kind, each in (fit.errors if fit else {}).items()
        ),
        transferred_from=(fit.transferred_from or "") if fit else "",
        sources=tuple(file.sources),
    )
