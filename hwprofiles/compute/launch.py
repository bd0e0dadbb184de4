"""The limits of a device for kernels of several streams."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The limits of a device for kernels of several streams."""

    tile_rows: int
    """Rows of the output that one block of a matrix product computes."""
    tile_columns: int
    """Columns of the same."""
    blocks_per_multiprocessor: int
    """Number of such blocks that a multiprocessor holds at once, by registers, shared memory and threads."""
    priorities: int
    """Number of stream priorities that the device reports."""
    streams: int
    """Number of grids that run at once; further streams wait."""
