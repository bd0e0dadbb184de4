"""The table types in plain torch operations, on any device: what runs where no compiled kernel does."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from executor.compression.tables import POSITIVE, Table

__all__ = ["absolute_maxima", "blocks_of", "decode", "encode", "on_device"]


def absolute_maxima(values: Tensor, block: int) -> Tensor:
    """Largest magnitude of every block; NaN where a block holds one.

    Args:
        values: Shape (n,), float32, contiguous.
        block: Numbers in a block, >= 1; the last block may be shorter.

    Returns:
        Shape (ceil(n / block),), float32.
    """
    return _of_blocks(values, block, lambda rows: torch.linalg.vector_norm(rows, ord=float("inf"), dim=1))


def encode(values: Tensor, scales: Tensor, block: int, table: Table, codes: Tensor) -> None:
    """Write the code of every number: the index of the value nearest to its magnitude over its scale, and its sign.

    The quotient is rounded to float32 once; what lies half-way goes down, what lies above the table to its largest
    value.  A scale of 0 counts as 1.

    Args:
        values: Shape (n,), float32, finite.
        scales: Shape (ceil(n / block),), float32, >= 0.
        block: Numbers that share a scale.
        table: The values and where they part.
        codes: Shape (n,), uint8; written.
    """
    cutoffs = on_device(table, "cutoffs", values.device)
    divisor = blocks_of(torch.where(scales > 0, scales, 1.0), block, len(values))
    index = torch.bucketize(values.abs() / divisor, cutoffs, right=True, out_int32=True)
    codes.copy_(index + POSITIVE * torch.signbit(values))


def decode(codes: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
    """Write the value of every code times its scale; arguments as for ``encode``, but that ``values`` is written."""
    torch.mul(on_device(table, "signed", codes.device)[codes.int()], blocks_of(scales, block, len(codes)), out=values)


def blocks_of(scales: Tensor, block: int, count: int) -> Tensor:
    """The scale of every number; one scale is left as it is."""
    return scales if len(scales) <= 1 else scales.repeat_interleave(block)[:count]


@lru_cache(maxsize=1024)
def on_device(table: Table, part: str, device: torch.device) -> Tensor:
    """A part of a table where it is needed; copied there once."""
    return torch.from_numpy(getattr(table, part)).to(device)


def _of_blocks(values: Tensor, block: int, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Reduce every block; the last may be shorter."""
    whole = len(values) // block * block
    parts = [reduce(values[:whole].view(-1, block))] if whole else []
    if whole < len(values):
        parts.append(reduce(values[whole:].view(1, -1)))
    return torch.cat(parts) if parts else values.new_zeros(0)
