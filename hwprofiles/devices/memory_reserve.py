"""Memory of a device that programs cannot give to the tensors of a network."""

import math
from dataclasses import dataclass

from groundwork.errors import ConfigError
from groundwork.units import GIB

_MOST_FIXED = 0.1
"""Largest share of the memory that the fixed part takes: devices of a few MiB, which only questions have, would
have nothing left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReserve:
    """What a device's memory holds beside the tensors that the memory account knows; nothing unless given."""

    fixed_bytes: float = 0.0
    """Context, kernels, workspaces and communication buffers, which do not depend on the size of the memory."""
    share: float = 0.0
    """Share of the memory that the driver keeps, and that the allocator loses to fragmentation."""

    def __post_init__(self) -> None:
        if not 0 <= self.fixed_bytes < math.inf:
            raise ConfigError(f"MemoryReserve.fixed_bytes must be finite and >= 0 B, got {self.fixed_bytes!r}")
        if not 0 <= self.share <= 0.5:
            raise ConfigError(f"MemoryReserve.share must be >= 0 and <= 0.5, got {self.share!r}")

    def usable_bytes(self, memory_bytes: float) -> float:
        """Return what is left of a memory of a nominal size in bytes."""
        return memory_bytes * (1 - self.share) - min(self.fixed_bytes, _MOST_FIXED * memory_bytes)


GPU_RESERVE = MemoryReserve(fixed_bytes=0.75 * GIB, share=0.04)
"""The reserve of a GPU for which its cluster gives no other; sources in ``docs/memory.md``."""
