"""Measured kernels in groups that are priced together: one phase and one geometry each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from groundwork.array_types import Bools, Floats
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """One measured kernel: a product, or a convolution as the product that implements it."""

    phase: str
    """One of ``PROFILE_PHASES``; of plain products, by which operands were transposed."""
    rows: int
    columns: int
    depth: int
    samples: int
    memory_bytes: float
    """Bytes of each operand once."""
    time_s: float
    family: str
    """Kernels that are held out together: those of one layer, whatever its batch; products of one weight."""
    source: str
    window: ConvolutionWindow | None = None
    precision: str = "float32"
    streamed_bytes: float = 0.0
    """Bytes of passes before or after the product."""


@dataclass(frozen=True, slots=True)
class KernelGroup:
    """Kernels of one phase and geometry, as arrays."""

    phase: str
    kernels: Kernels
    time_s: Floats
    families: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def kind(self) -> str:
        """Name of the kind of rows, under which errors are listed."""
        return f"convolution {self.phase.replace('_', ' ')}" if self.kernels.window else "product"

    def only(self, mine: Bools) -> "KernelGroup":
        """Return the group with some of its kernels."""
        k = self.kernels
        arrays = {
            n: getattr(k, n)[mine]
            for n in ("flop", "memory_bytes", "rows", "columns", "depth", "samples", "streamed_bytes")
        }
        families = tuple(family for family, keep in zip(self.families, mine, strict=True) if keep)
        return KernelGroup(self.phase, replace(k, **arrays), self.time_s[mine], families)


def grouped(kernels: Iterable[MeasuredKernel]) -> list[KernelGroup]:
    """Return the groups of measured kernels, in the order of their first."""
    groups: dict[tuple[str, ConvolutionWindow | None], list[MeasuredKernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.phase, kernel.window), []).append(kernel)
    return [_group(phase, window, rows) for (phase, window), rows in groups.items()]


def _group(phase: str, window: ConvolutionWindow | None, rows: Sequence[MeasuredKernel]) -> KernelGroup:
    names = ("rows", "columns", "depth", "samples", "memory_bytes", "time_s", "streamed_bytes")
    m, n, k, samples, moved, time_s, streamed = (
        np.array([getattr(row, name) for row in rows], dtype=float) for name in names
    )
    kernels = Kernels(
        flop=2 * m * n * k,
        memory_bytes=moved,
        rows=m,
        columns=n,
        depth=k,
        samples=samples,
        window=window,
        streamed_bytes=streamed,
    )
    return KernelGroup(phase, kernels, time_s, tuple(row.family for row in rows))


def log_errors(profile: ComputeProfile, groups: Sequence[KernelGroup]) -> Floats:
    """Return the logarithm of predicted over measured times, all groups in a row."""
    if not groups:
        return np.zeros(0)
    return np.concatenate([np.log(profile.time_s(group.kernels, phase=group.phase) / group.time_s) for group in groups])
