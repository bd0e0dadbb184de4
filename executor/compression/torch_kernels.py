"""Kernels in plain torch operations on any device, for devices without compiled kernels."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from executor.compression.codec_kernels import CodecKernels
from executor.compression.tables import POSITIVE, Table


class TorchKernels(CodecKernels):
    """Table types, one-bit compression and thresholds in torch operations; see ``CodecKernels``."""

    def block_maxima(self, values: Tensor, block: int) -> Tensor:
        """Return the largest magnitude of every block."""
        return _of_blocks(values, block, lambda rows: torch.linalg.vector_norm(rows, ord=float("inf"), dim=1))

    def compress_table(self, values: Tensor, scales: Tensor, block: int, table: Table, indices: Tensor) -> None:
        """Write the index and the sign of every element, by a binary search in the table's cutoffs."""
        cutoffs = on_device(table, "cutoffs", values.device)
        divisor = _of_elements(torch.where(scales > 0, scales, 1.0), block, len(values))
        index = torch.bucketize(values.abs() / divisor, cutoffs, right=True, out_int32=True)
        indices.copy_(index + POSITIVE * torch.signbit(values))

    def decompress_table(self, indices: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
        """Write the signed value of every index times its scale."""
        signed = on_device(table, "signed", indices.device)
        torch.mul(signed[indices.int()], _of_elements(scales, block, len(indices)), out=values)

    def compress_signs(self, values: Tensor, block: int, means: Tensor, packed: Tensor) -> None:
        """Write signs and means, with sums in float64."""
        # sums are made in float64 and in one order, so that all devices get the same means
        positive = values >= 0
        for side, chosen in enumerate((~positive, positive)):
            rows = _rows(torch.where(chosen, values, 0.0).double(), block, len(means))
            count = _rows(chosen, block, len(means)).sum(dim=1)
            means[:, side] = (_halving_sum(rows) / count.clamp(min=1)).float()
        bits = torch.zeros(len(packed) * 8, dtype=torch.uint8, device=values.device)
        bits[: len(values)] = positive
        packed.copy_((bits.view(-1, 8) << _shifts(values.device)).sum(dim=1))

    def decompress_signs(self, means: Tensor, packed: Tensor, block: int, values: Tensor) -> None:
        """Write the mean that every sign stands for."""
        bits = ((packed[:, None] >> _shifts(values.device)) & 1).view(-1)[: len(values)].bool()
        low, high = (_of_elements(means[:, side], block, len(values)) for side in (0, 1))
        torch.where(bits, high, low, out=values)

    def positions_above(self, values: Tensor, threshold: float) -> Tensor:
        """Return the positions of magnitudes of at least a threshold."""
        return torch.nonzero(values.abs() >= threshold).view(-1)


def _halving_sum(rows: Tensor) -> Tensor:
    """Return the sum of every row, shape (R, n) to (R,), adding halves: one order, and the same bits on every device.

    A row of five elements, filled up with a zero wherever its length is odd::

        a       b       c       d  e  0
        a+d     b+e     c+0     0
        a+d+c   b+e+0
        a+d+c+b+e
    """
    while rows.shape[1] > 1:
        rows = torch.nn.functional.pad(rows, (0, rows.shape[1] % 2))
        half = rows.shape[1] // 2
        rows = rows[:, :half] + rows[:, half:]
    return rows[:, 0] + 0.0  # no minus zero


def _rows(values: Tensor, block: int, count: int) -> Tensor:
    """Return one row for each block, filled up with zeros."""
    return torch.nn.functional.pad(values, (0, count * block - len(values))).view(count, block)


def _shifts(device: torch.device) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=device)


def _of_elements(scales: Tensor, block: int, count: int) -> Tensor:
    """Return the scale of every element; a single scale is left as it is, to be broadcast."""
    return scales if len(scales) <= 1 else scales.repeat_interleave(block)[:count]


@lru_cache(maxsize=1024)
def on_device(table: Table, part: str, device: torch.device) -> Tensor:
    """Return an array of a table on a device, copied there once."""
    return torch.from_numpy(getattr(table, part)).to(device)


def _of_blocks(values: Tensor, block: int, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Reduce every block; the last may be shorter."""
    whole = len(values) // block * block
    parts = [reduce(values[:whole].view(-1, block))] if whole else []
    if whole < len(values):
        parts.append(reduce(values[whole:].view(1, -1)))
    return torch.cat(parts) if parts else values.new_zeros(0)
