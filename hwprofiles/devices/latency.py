"""Latency of a link: a constant, or a table by message size."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError

_Size = TypeVar("_Size", float, Floats)


@dataclass(frozen=True, slots=True)
class Latency:
    """The time before the first byte arrives, by the size of the message.

    It is linear in size between the rows and constant beyond the first and the last; one row is a constant.
    """

    sizes_bytes: tuple[float, ...]
    """Sizes of messages, strictly rising, >= 0."""
    seconds: tuple[float, ...]
    """Latency for each size, finite and >= 0."""

    def __post_init__(self) -> None:
        if not self.sizes_bytes or len(self.sizes_bytes) != len(self.seconds):
            raise ConfigError(
                "Latency needs as many seconds as sizes and at least one, "
                f"got {len(self.sizes_bytes)} sizes and {len(self.seconds)} seconds"
            )
        if not all(0 <= value < math.inf for value in (*self.sizes_bytes, *self.seconds)):
            raise ConfigError(f"Latency rows must be finite and >= 0, got {self.sizes_bytes} and {self.seconds}")
        if not all(low < high for low, high in pairwise(self.sizes_bytes)):
            raise ConfigError(f"Latency.sizes_bytes must rise strictly, got {self.sizes_bytes}")

    @classmethod
    def constant(cls, seconds: float) -> "Latency":
        """Return a latency that is the same for messages of any size."""
        return cls((0.0,), (seconds,))

    def at(self, size_bytes: _Size) -> _Size:
        """Return the latency in seconds of one message, or of an array of messages of any shape."""
        value = np.interp(size_bytes, self.sizes_bytes, self.seconds)
        return value if isinstance(size_bytes, np.ndarray) else float(value)
