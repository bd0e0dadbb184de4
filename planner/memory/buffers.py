"""Buffers of a program as rows: contents, device, size, allocation and release."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints

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
MEMORY_KINDS = {
    "parameters": ("parameters",),
    "gradients": ("parameter gradients",),
    "optimizer_state": ("optimizer state",),
    "activations": (
        "data",
        "activations",
        "assembled inputs",
        "kept for backward",
        "activation gradients",
        "statistics",
    ),
}
"""Kinds of buffers by the words of the field; all others are ``buffers``: messages, residuals and workspace."""
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
        rows = list(rows)
        return cls(**{name: np.concatenate([getattr(row, name) for row in rows]) for name in _COLUMNS})

    @classmethod
    def joined(cls, rows: Iterable["BufferRows"]) -> "Buffers":
        """Join rows, without buffers that are empty or never allocated."""
        rows = [row for row in rows if len(row.device)] or [NOTHING_HELD]
        counts = [len(row.device) for row in rows]
        joined = cls(
            device=np.concatenate([row.device for row in rows]),
            layer=_joined([row.layer for row in rows], counts, np.int64),
            kind=np.repeat([BUFFERS.index(row.kind) for row in rows], counts),
            size_bytes=_joined([row.size_bytes for row in rows], counts, np.float64),
            allocated_s=_joined([row.allocated_s for row in rows], counts, np.float64),
            released_s=_joined([row.released_s for row in rows], counts, np.float64),
        )
        real = joined.released_s > joined.allocated_s
        real &= (joined.size_bytes > 0) & np.isfinite(joined.allocated_s)
        return joined if real.all() else joined.take(real)

    def take(self, keep: Bools) -> "Buffers":
        """Return the buffers where ``keep`` is true."""
        return Buffers(**{name: getattr(self, name)[keep] for name in _COLUMNS})


def bytes_by_kind(kinds: Ints, size_bytes: Floats) -> dict[str, float]:
    """Return the bytes of buffers by the words of ``MEMORY_KINDS``, and those of all others as ``buffers``.

    Args:
        kinds: Indices into ``BUFFERS``.
        size_bytes: Their sizes, of the same shape.
    """
    sums = dict(zip(BUFFERS, np.bincount(kinds, size_bytes, minlength=len(BUFFERS)).tolist(), strict=True))
    named = {word: sum(sums.pop(kind) for kind in members) for word, members in MEMORY_KINDS.items()}
    return {**named, "buffers": sum(sums.values())}


class BufferRows(NamedTuple):
    """Buffers of one kind before they are joined: to make arrays of each would take longer than all the rest."""

    kind: str
    """One of ``BUFFERS``."""
    layer: Ints | int
    """Shape (B,), or one for all, as are the three sizes and times."""
    device: Ints
    """Shape (B,)."""
    size_bytes: Floats | float
    allocated_s: Floats | float
    """Times of allocation; infinite for buffers that are never allocated."""
    released_s: Floats | float


def _joined(values: Sequence[Any], counts: Sequence[int], kind: type[np.float64] | type[np.int64]) -> NDArray[Any]:
    """Join values of some counts: arrays of that shape, or one number for all."""
    columns = [
        value if isinstance(value, np.ndarray) and value.shape == (count,) else np.full(count, value)
        for value, count in zip(values, counts, strict=True)
    ]
    return np.concatenate(columns, dtype=kind)


NOTHING_HELD = BufferRows("parameters", 0, np.empty(0, dtype=np.int64), 0.0, 0.0, 0.0)
"""No buffers."""
