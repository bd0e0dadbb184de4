"""Choice of the kernels for a device: compiled ones where they exist, else plain torch operations."""

from functools import cache
from importlib.util import find_spec

import torch

from executor.compression.codec_kernels import CodecKernels
from executor.compression.cpu_kernels import CpuKernels
from executor.compression.tables import Table
from executor.compression.torch_kernels import TorchKernels

_CPU, _TORCH = CpuKernels(), TorchKernels()


def kernels_for(device: torch.device) -> CodecKernels:
    """Return the kernels of everything but tables on a device."""
    return _CPU if device.type == "cpu" else _TORCH


def table_kernels_for(device: torch.device, table: Table) -> CodecKernels:
    """Return the kernels of a table on a device; the compiled ones need the table's lookup."""
    if table.lookup is None:
        return _TORCH
    if device.type == "cuda" and _has_triton():
        return _triton()
    return kernels_for(device)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _triton() -> CodecKernels:
    from executor.compression.triton_kernels import TritonKernels  # only where there is a GPU: it compiles for one

    return TritonKernels()
