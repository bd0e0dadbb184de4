# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"
"""Kernels of the table types on a GPU, compiled by Triton; the same results as ``executor.compression.torch_kernels``.

One load from a table of 32,768 entries, by the upper half of an element's bits, replaces the binary search in shared
memory of Dettmers, ICLR 2016, Section 3.2; elements of similar size share few lines of the first-level cache.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from executor.compression.tables import Table
from executor.compression.torch_kernels import TorchKernels, on_device

_PER_PROGRAM = 4096
_WARPS = 8


class TritonKernels(TorchKernels):
    """Table types compiled for a GPU, other types as in ``TorchKernels``.

    The table must have a lookup; where there are several scales, their blocks must be powers of two.
    """

    def compress_table(self, values: Tensor, scales: Tensor, block: int, table: Table, indices: Tensor) -> None:
        """Write the index and the sign of every element, by the table's lookup."""
        lookup = on_device(table, "lookup", values.device)
        _launch(_compress, (values, scales, lookup, indices), len(values), scales, block)

    def decompress_table(self, indices: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
        """Write the signed value of every index times its scale."""
        signed = on_device(table, "signed", indices.device)
        _launch(_decompress, (indices, scales, signed, values), len(indices), scales, block)


def _launch(kernel: Any, tensors: tuple[Tensor, ...], count: int, scales: Tensor, block: int) -> None:
    if not count:
        return
    shift = block.bit_length() - 1 if len(scales) > 1 else 62  # one scale: every position shifts to 0
    grid = (triton.cdiv(count, _PER_PROGRAM),)
    with torch.cuda.device_of(tensors[0]):
        kernel[grid](*tensors, count, SHIFT=shift, SIZE=_PER_PROGRAM, num_warps=_WARPS)


@triton.jit
def _compress(values, scales, lookup, indices, count, SHIFT: tl.constexpr, SIZE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value = tl.load(values + at, mask=inside, other=0.0)
    scale = tl.load(scales + (at >> SHIFT), mask=inside, other=1.0)
    quotient = tl.div_rn(tl.abs(value), tl.where(scale > 0, scale, 1.0))
    bits = quotient.to(tl.int32, bitcast=True)
    # an entry holds the index times 2**17, plus the lower bits from which the next index holds: see ``Table.lookup``
    entry = tl.load(lookup + (bits >> 16))
    index = (entry >> 17) + ((bits & 0xFFFF) >= (entry & 0x1FFFF)).to(tl.int32)
    sign = (value.to(tl.int32, bitcast=True) >> 24) & 0x80
    tl.store(indices + at, (index | sign).to(tl.uint8), mask=inside)


@triton.jit
def _decompress(indices, scales, signed, values, count, SHIFT: tl.constexpr, SIZE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    index = tl.load(indices + at, mask=inside, other=0).to(tl.int32)
    scale = tl.load(scales + (at >> SHIFT), mask=inside, other=1.0)
    tl.store(values + at, tl.load(signed + index) * scale, mask=inside)
