"""Cost of one element in a message: its bytes, and the time to compress and to decompress it."""

import math
from dataclasses import dataclass

from groundwork.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ElementCost:
    """Cost of an element of one data type."""

    name: str
    element_bytes: float
    """Bytes of one element; a fraction where several share a byte."""
    compress_s: float = 0.0
    """Seconds to compress one element, on the device that sends it."""
    decompress_s: float = 0.0
    """Seconds to decompress one element, on the device that receives it."""

    def __post_init__(self) -> None:
        if not 0 < self.element_bytes < math.inf:
            raise ConfigError(f"element_bytes of {self.name} must be > 0, got {self.element_bytes}")
        if not (0 <= self.compress_s < math.inf and 0 <= self.decompress_s < math.inf):
            raise ConfigError(
                f"compress_s and decompress_s of {self.name} must be >= 0, "
                f"got {self.compress_s} and {self.decompress_s}"
            )


FLOAT32_COST = ElementCost("32-bit", 4.0)
"""Data type in which the network computes."""
EIGHT_BIT_COST = ElementCost("8-bit", 1.0, 1.0e-9, 0.5e-9)
"""Times on a GTX Titan (Sec. 3.2).  The paper's tables for clusters leave them out."""
