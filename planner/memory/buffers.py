"""Buffers of a program as rows: contents, device, size, allocation and release."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Bools, Floats, Ints

__all__ = ["BUFFERS", "NOTHING_HELD", "Buffers"]


BUFFERS = (
    "parameters",
    "optimizer state",
    "parameter gradients",
    "data",
    "activations",
    "assembled inputs",
    "kept for backward",
    "activation gradients",
    "messages",
    "compressed messages",
    "residuals",
    "statistics",
    "workspace",
)
"""Kinds of buffers; ``Buffers.kind`` holds indices into this tuple."""
_COLUMNS = ("device", "layer", "kind", "size_bytes", "allocated_s", "released_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buffers:
    """Buffers of a replay, or of one iteration in program order, as arrays of one shape (B,)."""

    device: Ints
    layer: Ints
    """Layer that owns the parameters or the tensor."""
    kind: Ints
    size_bytes: Floats
    allocated_s: Floats
    released_s: Floats
    """Infinite for what is allocated for the whole run."""

    @classmethod
    def of(cls, rows: Iterable["Buffers"]) -> "Buffers":
        """Concatenate several sets of buffers."""
        rows = [row for row in rows if len(row.device)] or [NOTHING_HELD]
        return cls(**{name: np.concatenate([getattr(row, name) for row in rows]) for name in _COLUMNS})

    @classmethod
    def made(
        cls, kind: str, layer: Ints | int, device: Ints, size_bytes: Floats | float, allocated_s: Floats | float,
        released_s: Floats | float,
    ) -> "Buffers":  # fmt: skip
        """Return buffers of one kind, without those that are empty or never allocated.

        Args:
            kind: One of ``BUFFERS``.
            layer: Shape (B,), or one for all, as are the three sizes and times.
            device: Shape (B,).
            size_bytes: Sizes.
            allocated_s: Times of allocation; infinite for buffers that are never allocated.
            released_s: Times of release.
        """
        count = len(device)
        size, allocated, released = (_column(row, count, np.float64) for row in (size_bytes, allocated_s, released_s))
        layers = _column(layer, count, np.int64)
        real = (size > 0) & (released > allocated) & np.isfinite(allocated)
        number = np.full(count, BUFFERS.index(kind))
        rows = device, layers, number, size, allocated, released
        return cls(**dict(zip(_COLUMNS, rows if real.all() else [row[real] for row in rows], strict=True)))

    def take(self, keep: Bools) -> "Buffers":
        """Return the buffers where ``keep`` is true."""
        return Buffers(**{name: getattr(self, name)[keep] for name in _COLUMNS})


def _column(value: Ints | Floats | float, count: int, kind: type[np.float64] | type[np.int64]) -> NDArray[Any]:
    """Return an array of shape (count,), or one value repeated: broadcasting takes longer than either."""
    column = np.asarray(value, dtype=kind)
    return column if column.shape == (count,) else np.full(count, column)


NOTHING_HELD = Buffers.made("parameters", 0, np.empty(0, dtype=np.int64), 0.0, 0.0, 0.0)
"""No buffers."""
