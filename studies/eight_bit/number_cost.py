"""What a number costs while it travels: its bytes, and the time to encode and to decode it."""

import math
from dataclasses import dataclass

from hwprofiles import ConfigError

__all__ = ["EIGHT_BIT_COST", "FLOAT32_COST", "NumberCost"]


@dataclass(frozen=True, slots=True)
class NumberCost:
    """A data type on the wire."""

    name: str
    element_bytes: float
    """Of one number; a fraction where several share a byte."""
    encode_s: float = 0.0
    """A number, on the device that sends it."""
    decode_s: float = 0.0
    """A number, on the device that receives it."""

    def __post_init__(self) -> None:
        if not 0 < self.element_bytes < math.inf:
            raise ConfigError(f"element_bytes of coding {self.name} must be > 0, got {self.element_bytes}")
        if not (0 <= self.encode_s < math.inf and 0 <= self.decode_s < math.inf):
            raise ConfigError(
                f"encode_s and decode_s of coding {self.name} must be >= 0, got {self.encode_s} and {self.decode_s}"
            )


FLOAT32_COST = NumberCost("32-bit", 4.0)
"""What the network computes in."""
EIGHT_BIT_COST = NumberCost("8-bit", 1.0, 1.0e-9, 0.5e-9)
"""Times on a GTX Titan (Sec. 3.2).  The paper's tables for clusters leave them out."""
