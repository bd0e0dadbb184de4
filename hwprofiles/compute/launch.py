"""How a device takes the kernels of several streams."""

from dataclasses import dataclass

__all__ = ["Launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a device takes the kernels of several streams."""

    tile_rows: int
    tile_columns: int
    """Output that one block of a matrix product makes."""
    blocks_per_multiprocessor: int
    """Such blocks that a multiprocessor holds at once: registers, shared memory and threads permitting."""
    priorities: int
    """Stream priorities that the device reports."""
    streams: int
    """Grids that run at once: more streams than that wait for one another."""
