"""Corrections of a fitted profile by its own measured kernels."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.kernel_table import KernelTable, TableRows
from studies.calibrate.measured_kernels import KernelGroup

_LENGTHS = (1.5, 0.7, 1.5, 1.0, 1.0)
"""Natural logarithms of rows, columns, depth, window positions, stride: a factor of 2 (columns) to 4.5 in a size."""
_SPREAD, _NOISE = 0.3, 0.12
_LARGEST = 1.5


def with_table(profile: ComputeProfile, groups: Sequence[KernelGroup]) -> ComputeProfile:
    """Return a profile whose table holds the measured kernels as corrections of its own formula.

    A correction explains the time that is left after overhead and samples' tiles; where memory traffic alone would take
    longer than measured, arithmetic that is hidden behind it explains nothing, and the traffic decides as before.
    """
    rows: list[tuple[int, list[float], int, int, float]] = []
    bare = replace(profile, table=None)
    for group in groups:
        if group.kernels.window and profile.tiles:
            continue  # tiles have no table
        kernels, number = group.kernels, PROFILE_PHASES.index(group.phase)
        section = profile.convolution if kernels.window else None
        overhead_s = section.overhead_s if section else profile.launch_overhead_s
        sizes = section.covered(kernels, number) if section else (kernels.rows, kernels.columns, kernels.depth)
        product_s = bare.model_s(*sizes, number, kernels.window)
        whole_s = bare.arithmetic_s(kernels, group.phase)
        spanned_s = np.maximum(whole_s - product_s, 0.0)
        streamed_s = kernels.streamed_bytes / (profile.memory_bytes_per_s * profile.efficiency.memory)
        left_s = np.maximum(group.time_s - overhead_s - spanned_s - streamed_s, 0.2 * group.time_s)
        corrections = np.clip(np.log(left_s / product_s), -_LARGEST, _LARGEST)
        positions, stride = (kernels.window.positions, kernels.window.stride) if kernels.window else (0, 1)
        tiled = whole_s >= product_s  # others are bounded by a kernel without tiles, of which tiles explain nothing
        for at in np.flatnonzero(tiled).tolist():
            correction = float(corrections[at])
            rows.append((number, [float(size[at]) for size in sizes], positions, stride, correction))
    if not rows:
        return bare
    phase, sizes_of, windows, strides, values = zip(*rows, strict=True)
    table = KernelTable(
        rows=TableRows(
            phase=np.array(phase),
            sizes=np.array(sizes_of),
            positions=np.array(windows),
            stride=np.array(strides),
            correction=np.array(values),
        ),
        lengths=_LENGTHS,
        spread=_SPREAD,
        noise=_NOISE,
    )
    return replace(profile, table=table)
