"""Errors of data types on random elements: distances between elements and what they become."""

from dataclasses import dataclass

import torch
from torch import Tensor

from executor.compression.base import DataType
from groundwork.errors import ConfigError


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
