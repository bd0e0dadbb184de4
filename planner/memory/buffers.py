"""Buffers of a program as rows: what each holds, where, from when on and until when."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hwprofiles import Bools, Floats, Ints

__all__ = ["BUFFERS", "Buffers"]


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
    "codes",
    "residuals",
    "statistics",
    "workspace",
)
"""Kinds of buffers; ``Buffers.kind`` holds indices into this tuple."""
_COLUMNS = ("device", "layer", "kind", "size_bytes", "birth_s", "death_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Buffers:
    """Buffers of a replay or of one iteration in program order, arrays of one shape (B,)."""

    device: Ints
    layer: Ints
    """Layer that owns the parameters or the tensor."""
    kind: Ints
    size_bytes: Floats
    birth_s: Floats
    death_s: Floats
    """Infinite for what is always there."""

    @classmethod
    def of(cls, rows: Iterable["Buffers"]) -> "Buffers":
        """Several together."""
        rows = list(rows)
        return cls(**{name: np.concatenate([getattr(row, name) for row in rows]) for name in _COLUMNS})

    @classmethod
    def made(
        cls, kind: str, layer: Ints | int, device: Ints, size_bytes: Floats | float, birth_s: Floats | float,
        death_s: Floats | float,
    ) -> "Buffers":  # fmt: skip
        """Those of one kind, without what is empty or never lives.

        Args:
            kind: One of ``BUFFERS``.
            device: Shape (B,).
            layer, size_bytes, birth_s, death_s: Of the same shape, or one for all.
        """
        count = len(device)
        size, birth, death = (
            np.broadcast_to(np.asarray(row, dtype=float), (count,)) for row in (size_bytes, birth_s, death_s)
        )
        layers = np.broadcast_to(np.asarray(layer, dtype=np.int64), (count,))
        real = (size > 0) & (death > birth) & np.isfinite(birth)
        return cls(
            device=device[real], layer=layers[real], kind=np.full(int(real.sum()), BUFFERS.index(kind)),
            size_bytes=size[real], birth_s=birth[real], death_s=death[real],
        )  # fmt: skip

    def take(self, keep: Bools) -> "Buffers":
        """Some of them."""
        return Buffers(**{name: getattr(self, name)[keep] for name in _COLUMNS})
