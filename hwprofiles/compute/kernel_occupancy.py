"""How much of a device a kernel keeps busy: from the blocks that it launches and the room that there is for them."""

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Floats
from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.launch import Launch

__all__ = ["READINGS", "launch_of", "occupancy"]

READINGS = ("geometry", "throughput")
"""What limits who runs beside a kernel: the room for its blocks, or only the units that it keeps busy."""


def launch_of(profile: ComputeProfile) -> Launch:
    """What a profile says of launches.

    Raises:
        ConfigError: It says nothing; the message names what to measure.
    """
    if profile.launch is None:
        raise ConfigError(
            f"compute profile {profile.name!r} must have a section 'launch' for streams, got none; measure it: grid, "
            "block and registers of a convolution, and the blocks that fit a multiprocessor, as Nsight Compute's "
            "launch statistics and occupancy sections print them; priorities by cudaDeviceGetStreamPriorityRange; "
            "streams: the resident grids of its compute capability"
        )
    return profile.launch


def occupancy(
    profile: ComputeProfile,
    kernels: Kernels,
    *,
    phase: str,
    winograd: bool | NDArray[np.bool_] = False,
    reading: str = "geometry",
) -> Floats:
    """Mean share of a device that kernels keep busy while they work, launches left out.

    A matrix product launches ``b = ceil(rows / tile rows) ceil(columns / tile columns)`` blocks on
    ``s = multiprocessors x blocks each`` places: ``b / (s ceil(b / s))`` of them are taken, on average over its
    waves.  A product whose inner dimension is long is cut along it into more blocks; how far, is not known, so the
    share is at least what the product's speed asks for: of the arithmetic that products reach at best, and of the
    memory traffic that streams sustain.  Passes that only stream take all of the memory, so all of the device.

    Args:
        profile: The device; it has a ``launch`` section.
        kernels: Sizes, arrays of one shape.
        phase: As for ``ComputeProfile.time_s``, with whose time shares are taken.
        winograd: Likewise.
        reading: ``geometry``, or ``throughput``: what the speed asks for, of the data sheet's peak, is all that is
            taken, as if blocks of other kernels always found room and filled every stall.

    Returns:
        Shares in (0, 1], shape of the input.

    Raises:
        ConfigError: The profile has no such section, or ``reading`` is none of ``READINGS``.
    """
    if reading not in READINGS:
        raise ConfigError(f"occupancy must be one of {', '.join(READINGS)}, got {reading!r}")
    launch = launch_of(profile)
    work_s = np.maximum(profile.time_s(kernels, phase=phase, winograd=winograd) - profile.launch_overhead_s, 1e-15)
    streamed_s = kernels.streamed_bytes / (profile.memory_bytes_per_s * profile.efficiency.memory)
    product_s = np.maximum(work_s - streamed_s, 1e-15)
    share = _speed(profile, kernels, product_s, phase, winograd, of_peak=reading == "throughput")
    if reading == "geometry":
        places = profile.multiprocessors * launch.blocks_per_multiprocessor
        blocks = np.ceil(kernels.rows / launch.tile_rows) * np.ceil(kernels.columns / launch.tile_columns)
        waves = np.maximum(np.ceil(blocks / places), 1.0)
        share = np.maximum(share, blocks / (places * waves))
    streamed = np.where(kernels.matrix, np.minimum(streamed_s / work_s, 1.0), 1.0)
    share = np.where(kernels.matrix, share, 1.0) * (1.0 - streamed) + streamed
    return np.asarray(np.clip(share, 1e-6, 1.0), dtype=np.float64)


def _speed(
    profile: ComputeProfile,
    kernels: Kernels,
    product_s: Floats,
    phase: str,
    winograd: bool | NDArray[np.bool_],
    *,
    of_peak: bool,
) -> Floats:
    """Share of the device that a product's speed asks for: of its arithmetic or of its memory, whichever is more."""
    e = profile.efficiency
    ceiling = 1.0 if of_peak else e.ceiling[PROFILE_PHASES.index(phase)]
    flop = kernels.flop * np.where(winograd, 1.0 / e.winograd_speedup, 1.0)
    arithmetic = flop / (profile.peak_flop_per_s * ceiling) / product_s
    memory = kernels.memory_bytes / (profile.memory_bytes_per_s * e.memory) / product_s
    return np.asarray(np.maximum(arithmetic, memory))
