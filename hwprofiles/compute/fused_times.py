"""The time that a device takes for fused kernels of transformers."""

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.compute.convolution_efficiency import NAIVE_SHARE
from hwprofiles.compute.fused_kernels import FUSED_PHASES, HEAD_SIZE, FusedEfficiency, FusedKernels


def fused_s(profile: ComputeProfile, kernels: FusedKernels, phase: str = "forward") -> Floats:
    """Return the seconds of kernels, alone on the device.

    ``t = overhead + flop / (peak ceiling) (1 + h multiprocessors / blocks) (128 / min(head, 128))^e
    + bytes / (bandwidth fraction)``, the arithmetic at most that of a naive implementation.  A profile without the
    phase takes its other one; a profile without the kind takes the defaults of `FusedEfficiency`.

    Args:
        profile: The device.
        kernels: Kernels of one kind.
        phase: One of ``FUSED_PHASES``.

    Raises:
        ConfigError: ``phase`` is none of ``FUSED_PHASES``.
    """
    if phase not in FUSED_PHASES:
        raise ConfigError(f"phase of a fused kernel must be one of {', '.join(FUSED_PHASES)}, got {phase!r}")
    known = profile.fused
    e = known.get((kernels.kind, phase)) or known.get((kernels.kind, FUSED_PHASES[0])) or FusedEfficiency()
    edges = 1.0 + e.half_blocks * profile.multiprocessors / kernels.blocks
    factor = edges * (HEAD_SIZE / np.minimum(kernels.head_size, HEAD_SIZE)) ** e.head_exponent / e.ceiling
    arithmetic_s = kernels.flop / profile.peak_flop_per_s * np.minimum(factor, 1.0 / NAIVE_SHARE)
    return np.asarray(e.overhead_s + arithmetic_s + kernels.memory_bytes / (profile.memory_bytes_per_s * e.memory))
