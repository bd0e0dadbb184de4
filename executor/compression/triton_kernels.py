# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"
"""The table types on a GPU, compiled by Triton; the same results as ``executor.compression.torch_kernels``.

One load from a table of 32,768 entries, by the upper half of a number's bits, takes the place of the binary search
in shared memory of Dettmers, ICLR 2016, Section 3.2; numbers of like size meet in few lines of the first-level cache.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from executor.compression.tables import Table
from executor.compression.torch_kernels import absolute_maxima, on_device

__all__ = ["absolute_maxima", "decode", "encode"]

_PER_PROGRAM = 4096
_WARPS = 8


def encode(values: Tensor, scales: Tensor, block: int, table: Table, codes: Tensor) -> None:
    """As ``torch_kernels.encode``; the table has a lookup, and several scales have blocks of a power of two."""
    lookup = on_device(table, "lookup", values.device)
    _launch(_encode, (values, scales, lookup, codes), len(values), scales, block)


def decode(codes: Tensor, scales: Tensor, block: int, table: Table, values: Tensor) -> None:
    """As ``torch_kernels.decode``; several scales have blocks of a power of two."""
    signed = on_device(table, "signed", codes.device)
    _launch(_decode, (codes, scales, signed, values), len(codes), scales, block)


def _launch(kernel: Any, tensors: tuple[Tensor, ...], count: int, scales: Tensor, block: int) -> None:
    if not count:
        return
    shift = block.bit_length() - 1 if len(scales) > 1 else 62  # one scale: every number shifts to 0
    grid = (triton.cdiv(count, _PER_PROGRAM),)
    with torch.cuda.device_of(tensors[0]):
        kernel[grid](*tensors, count, SHIFT=shift, SIZE=_PER_PROGRAM, num_warps=_WARPS)


@triton.jit
def _encode(values, scales, lookup, codes, count, SHIFT: tl.constexpr, SIZE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    value = tl.load(values + at, mask=inside, other=0.0)
    scale = tl.load(scales + (at >> SHIFT), mask=inside, other=1.0)
    quotient = tl.div_rn(tl.abs(value), tl.where(scale > 0, scale, 1.0))
    bits = quotient.to(tl.int32, bitcast=True)
    entry = tl.load(lookup + (bits >> 16))
    code = (entry >> 17) + ((bits & 0xFFFF) >= (entry & 0x1FFFF)).to(tl.int32)
    sign = (value.to(tl.int32, bitcast=True) >> 24) & 0x80
    tl.store(codes + at, (code | sign).to(tl.uint8), mask=inside)


@triton.jit
def _decode(codes, scales, signed, values, count, SHIFT: tl.constexpr, SIZE: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    code = tl.load(codes + at, mask=inside, other=0).to(tl.int32)
    scale = tl.load(scales + (at >> SHIFT), mask=inside, other=1.0)
    tl.store(values + at, tl.load(signed + code) * scale, mask=inside)
