"""Table 2 of the 8-bit paper, computed with our types and with the types of the paper's implementation.

The paper does not say which distribution each of its groups A to D is.  With the implementation's tables and search
all sixteen relative errors determine it up to powers of ten: A is uniform, B and C are normal with a deviation that is
a power of ten, in decades of different parity, D is normal with twice a power of ten.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.4, Table 2.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.compression.base import DataType
from executor.compression.published import published_type
from executor.compression.registry import TableType, data_type
from groundwork.errors import ConfigError
from groundwork.progress import Progress
from planner.compression.data_types import compression
from studies.eight_bit.paper_tables import read_table
from studies.reproduce.paper_claims import Claim, ComputedValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Distribution of elements to compress, with the exponent offset of types that do not normalise them."""

    kind: str
    """``normal``, with mean 0, or ``uniform``, from 0."""
    spread: float
    """Standard deviation, or upper end of the interval."""
    offset: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("normal", "uniform"):
            raise ConfigError(f"distribution must be normal or uniform, got {self.kind!r}")
        if not 0 < self.spread < float("inf"):
            raise ConfigError(f"spread must be finite and > 0, got {self.spread!r}")

    @property
    def text(self) -> str:
        """Kind and spread as text."""
        return f"{self.kind} {self.spread:g}"

    def draw(self, count: int, seed: int) -> Tensor:
        """Return random elements, shape (count,), float32."""
        generator = torch.Generator().manual_seed(seed)
        sample = torch.randn if self.kind == "normal" else torch.rand
        return sample(count, generator=generator) * self.spread


def mean_errors(values: Tensor, kind: DataType) -> tuple[float, float]:
    """Return the mean absolute and the mean relative error of a type.

    The absolute error of an element ``x`` that becomes ``q`` is ``|x - q|``, its relative error ``|x - q| / |x|``: 1
    where ``x`` becomes 0.  Elements that are 0 count in the first mean only.

    Args:
        values: Floating point, any shape, not empty; a residual, where the type needs one, is zero.
        kind: The type.

    Source:
        Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.4, Table 2.
    """
    residual = torch.zeros_like(values, dtype=torch.float32) if kind.feedback else None
    decompressed = kind.decompress(kind.compress(values, residual).message, values.shape)
    error, size = (decompressed - values).abs(), values.abs()
    relative = (error / size)[size > 0]
    return float(error.mean(dtype=torch.float64)), float(relative.sum(dtype=torch.float64)) / max(len(relative), 1)


GROUPS = {
    "A": Distribution(kind="uniform", spread=1.0),
    "B": Distribution(kind="normal", spread=0.1, offset=1),
    "C": Distribution(kind="normal", spread=10.0, offset=2),
    "D": Distribution(kind="normal", spread=0.2),
}
COUNT = 25_000_000
"""Number of elements of each group that the paper drew."""


def _ours(name: str, offset: int) -> TableType:
    kind = data_type(name if compression(name)["normalised"] else f"{name}:offset={offset}")
    assert isinstance(kind, TableType)
    return kind


TABLE_2_WAYS: dict[str, Callable[[str, int], TableType]] = {
    "as published": lambda name, offset: published_type(name, 0 if compression(name)["normalised"] else offset),
    "our types": _ours,
}
"""The two ways to compute a line of the table: functions that make a type from its name and exponent offset."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A printed line of Table 2."""

    group: str
    type: str
    absolute: str
    relative: str


def table_2(*, count: int = COUNT, seed: int = 0, progress: Progress | None = None) -> Iterator[ComputedValue]:
    """Yield the relative and absolute errors of every group and type, each as published and by our types.

    Args:
        count: Number of elements of each group; the maximum, by which two of the types normalise, grows with it.
        seed: Seed of the random elements; one sample serves all normal groups, scaled.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: ``count`` is < 1.

    Source:
        Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.4, Table 2.
    """
    if count < 1:
        raise ConfigError(f"count must be >= 1, got {count}")
    lines = [
        _Line(row["group"], row["data_type"], row["mean_abs_error"], row["mean_rel_error_percent"])
        for row in read_table("table2_errors")
    ]
    kinds = {kind: Distribution(kind=kind, spread=1.0).draw(count, seed) for kind in ("uniform", "normal")}
    for done, line in enumerate(lines):
        if progress:
            progress(f"Table 2, {line.group}, {line.type}", done, len(lines))
        distribution = GROUPS[line.group]
        yield from _computed(line, distribution, kinds[distribution.kind] * distribution.spread)


def _computed(line: _Line, distribution: Distribution, values: Tensor) -> Iterator[ComputedValue]:
    name = {"linear quantization": "linear"}.get(line.type, line.type.replace(" ", "-"))
    errors = {way: mean_errors(values, make(name, distribution.offset)) for way, make in TABLE_2_WAYS.items()}
    about = f"{line.group} ({distribution.text}), {name}"
    for what, printed, unit in (("relative", line.relative, "%"), ("absolute", line.absolute, "")):
        claim = Claim("Table 2", f"{about}, {what} error", ("error", what, line.group, name), printed, unit)
        for way, pair in errors.items():
            ours = 100 * pair[1] if what == "relative" else pair[0]
            yield ComputedValue(claim, way, ours, _why(what, way))


def _why(what: str, way: str) -> str:
    if what == "absolute":
        return "the printed absolute errors agree neither with the relative ones nor with one another"
    if way == "our types":
        return "[0.1, 1] bisected in the middle, and always the nearest value"
    return "trees bisected first at 0.45, and a search that rounds every second interval down"
