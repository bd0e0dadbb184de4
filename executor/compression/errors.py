"""How far a data type's numbers are from those they stand for, on random numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.compression.base import DataType
from executor.compression.registry import data_type
from hwprofiles import ConfigError

__all__ = ["DISTRIBUTIONS", "Distribution", "ErrorRow", "error_table", "mean_errors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Numbers to encode, and the exponent offset of types that do not normalise them."""

    kind: str
    """``normal``, with mean 0, or ``uniform``, from 0."""
    spread: float
    """Standard deviation, or upper end."""
    offset: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("normal", "uniform"):
            raise ConfigError(f"distribution must be normal or uniform, got {self.kind!r}")
        if not 0 < self.spread < float("inf"):
            raise ConfigError(f"spread must be finite and > 0, got {self.spread!r}")

    @property
    def text(self) -> str:
        """Kind and spread."""
        return f"{self.kind} {self.spread:g}"

    def draw(self, count: int, seed: int) -> Tensor:
        """Random numbers, shape (count,), float32."""
        generator = torch.Generator().manual_seed(seed)
        sample = torch.randn if self.kind == "normal" else torch.rand
        return sample(count, generator=generator) * self.spread


DISTRIBUTIONS = (
    Distribution(kind="uniform", spread=1.0),
    Distribution(kind="normal", spread=0.2),
    Distribution(kind="normal", spread=0.5, offset=1),
    Distribution(kind="normal", spread=20.0, offset=2),
)
"""Scales that the offset of the exponent suits; Table 2 of the 8-bit paper has its own, see ``printed``."""
TYPES = ("dynamic-tree", "dynamic-tree:top=0.8", "linear", "static-tree:offset={}", "mantissa:offset={}")


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One line of the table."""

    distribution: str
    data_type: str
    mean_absolute_error: float
    mean_relative_error: float
    """A share, not a percentage."""


def mean_errors(values: Tensor, kind: DataType) -> tuple[float, float]:
    """Mean absolute and mean relative error of a type.

    The absolute error of ``x`` encoded as ``q`` is ``|x - q|``, its relative error ``|x - q| / |x|``: 1 where ``x``
    becomes 0.  Numbers that are 0 count in the first mean only.

    Args:
        values: Floating point, any shape, not empty; a residual, where the type needs one, is zero.
        kind: The type.
    """
    residual = torch.zeros_like(values, dtype=torch.float32) if kind.feedback else None
    decoded = kind.decode(kind.encode(values, residual).message, values.shape)
    error, size = (decoded - values).abs(), values.abs()
    relative = (error / size)[size > 0]
    return float(error.mean(dtype=torch.float64)), float(relative.sum(dtype=torch.float64)) / max(len(relative), 1)


def error_table(
    distributions: Sequence[Distribution] = DISTRIBUTIONS,
    types: Sequence[str] = TYPES,
    *,
    count: int = 25_000_000,
    seed: int = 0,
) -> list[ErrorRow]:
    """The errors of several types on random numbers.

    Args:
        distributions: What is drawn.
        types: As for ``data_type``; ``{}`` stands for the distribution's offset.
        count: Numbers drawn of each distribution, >= 1; the paper's 25 million.  The maximum, by which types
            normalise, grows with it.
        seed: Of the random numbers.

    Returns:
        A row for every distribution and type, in order.

    Raises:
        ConfigError: A type is unknown or ``count`` is < 1.

    Source:
        Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Section 3.4, Table 2.
    """
    if count < 1:
        raise ConfigError(f"count must be >= 1, got {count}")
    rows = []
    for distribution in distributions:
        values = distribution.draw(count, seed)
        for spec in types:
            kind = data_type(spec.format(distribution.offset))
            rows.append(ErrorRow(distribution.text, kind.spec.text, *mean_errors(values, kind)))
    return rows
