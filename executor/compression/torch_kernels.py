"""The table types and one bit in plain torch operations, on any device: what runs where no compiled kernel does."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from executor.compression.tables import POSITIVE, Table

__all__ = ["absolute_maxima", "blocks_of", "decode", "decode_signs", "encode", "encode_signs", "on_device", "places"]


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


def encode_signs(values: Tensor, block: int, means: Tensor, packed: Tensor) -> None:
    """Write the signs, and the means of what has either sign in every block.

    Args:
        values: Shape (n,), float32, finite.
        block: Numbers that share two means.
        means: Shape (blocks, 2), float32, written: of the negative numbers, and of the others; 0 of none.
        packed: Shape (ceil(n / 8),), uint8, written: a bit a number, 1 for >= 0, from the lowest bit up.
    """
    positive = values >= 0
    for side, chosen in enumerate((~positive, positive)):
        rows = _rows(torch.where(chosen, values, 0.0).double(), block, len(means))
        count = _rows(chosen, block, len(means)).sum(dim=1)
        means[:, side] = (_halving_sum(rows) / count.clamp(min=1)).float()
    bits = torch.zeros(len(packed) * 8, dtype=torch.uint8, device=values.device)
    bits[: len(values)] = positive
    packed.copy_((bits.view(-1, 8) << _shifts(values.device)).sum(dim=1))


def decode_signs(means: Tensor, packed: Tensor, block: int, values: Tensor) -> None:
    """Write the mean that every sign stands for; arguments as for ``encode_signs``, but that ``values`` is written."""
    bits = ((packed[:, None] >> _shifts(values.device)) & 1).view(-1)[: len(values)].bool()
    low, high = (blocks_of(means[:, side], block, len(values)) for side in (0, 1))
    torch.where(bits, high, low, out=values)


def places(values: Tensor, threshold: float) -> Tensor:
    """Where numbers are at least a threshold in size, in order.

    Args:
        values: Shape (n,), float32, finite.
        threshold: Of float32.

    Returns:
        Shape (found,), int64.
    """
    return torch.nonzero(values.abs() >= threshold).view(-1)


def _halving_sum(rows: Tensor) -> Tensor:
    """Sum of every row, shape (R, n) to (R,), adding halves: in the same order, to the same bits, on every device."""
    while rows.shape[1] > 1:
        rows = torch.nn.functional.pad(rows, (0, rows.shape[1] % 2))
        half = rows.shape[1] // 2
        rows = rows[:, :half] + rows[:, half:]
    return rows[:, 0] + 0.0  # no minus zero


def _rows(values: Tensor, block: int, count: int) -> Tensor:
    """One row a block, filled up with zeros."""
    return torch.nn.functional.pad(values, (0, count * block - len(values))).view(count, block)


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)


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
