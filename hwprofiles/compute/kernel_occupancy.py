"""Occupancy: the share of a device that a kernel keeps busy, from the blocks that it launches and their room."""

from dataclasses import replace
from typing import Literal

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.launch import Launch

OCCUPANCY_MODELS: tuple[Literal["geometry", "throughput"], ...] = ("geometry", "throughput")
"""Limits of the kernels that run beside another: the room for its blocks, or only the units that it keeps busy."""


def launch_of(profile: ComputeProfile) -> Launch:
    """Return the launch section of a profile.

    Raises:
        ConfigError: The profile has none; the message names what to measure.
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
    model: str = "geometry",
) -> Floats:
    """Return the mean share of a device that kernels keep busy while they work, without launches.

    A matrix product launches ``b = ceil(rows / tile rows) ceil(columns / tile columns)`` blocks on
    ``s = multiprocessors x blocks each`` places: ``b / (s ceil(b / s))`` of them are taken, on average over its
    waves.  A product whose inner dimension is long is divided along it into more blocks, an unknown number, so the
    share is at least what the product's speed requires: of the arithmetic that products reach at best, and of the
    memory traffic that streams sustain.  Passes that only stream use all of the memory, hence all of the device.

    Args:
        profile: The device; it has a ``launch`` section.
        kernels: Sizes, arrays of one shape.
        phase: As for ``ComputeProfile.time_s``, with whose time shares are taken.
        model: ``geometry``, or ``throughput``: only the share of the data sheet's peak that the speed requires is
            taken, as if blocks of other kernels always fitted and filled every stall.

    Returns:
        Shares in (0, 1], shape of the input.

    Raises:
        ConfigError: The profile has no ``launch`` section, or ``model`` is none of ``OCCUPANCY_MODELS``.
    """
    if model not in OCCUPANCY_MODELS:
        raise ConfigError(f"occupancy must be one of {', '.join(OCCUPANCY_MODELS)}, got {model!r}")
    launch = launch_of(profile)
    if wide := profile.in_float32:  # of two kernels the faster one runs
        own = replace(profile, in_float32=None)
        faster = profile.most_s(kernels, phase) < own.time_s(kernels, phase=phase)
        return np.where(faster, *(occupancy(each, kernels, phase=phase, model=model) for each in (wide, own)))
    work_s = np.maximum(profile.time_s(kernels, phase=phase) - profile.overhead_s(kernels, phase), 1e-15)
    streamed_s = kernels.streamed_bytes / (profile.memory_bytes_per_s * profile.efficiency.memory)
    product_s = np.maximum(work_s - streamed_s, 1e-15)
    share = _required_share(profile, kernels, product_s, phase, of_peak=model == "throughput")
    if model == "geometry":
        places = profile.multiprocessors * launch.blocks_per_multiprocessor
        blocks = np.ceil(kernels.rows / launch.tile_rows) * np.ceil(kernels.columns / launch.tile_columns)
        waves = np.maximum(np.ceil(blocks / places), 1.0)
        share = np.maximum(share, blocks / (places * waves))
    # The mean over the product and its streaming passes, by time.
    streamed = np.where(kernels.matrix, np.minimum(streamed_s / work_s, 1.0), 1.0)
    share = np.where(kernels.matrix, share, 1.0) * (1.0 - streamed) + streamed
    return np.asarray(np.clip(share, 1e-6, 1.0), dtype=np.float64)


def _required_share(
    profile: ComputeProfile,
    kernels: Kernels,
    product_s: Floats,
    phase: str,
    *,
    of_peak: bool,
) -> Floats:
    """Return the share of the device that a product's speed requires, of its arithmetic or memory, whichever is more.

    Args:
        profile: The device.
        kernels: Sizes, arrays of one shape.
        product_s: Seconds of the products.
        phase: One of `PROFILE_PHASES`.
        of_peak: Take the share of the peak, not of what products reach at best.
    """
    windowed = kernels.window and phase in PROFILE_PHASES[:3]
    if windowed and profile.tiles:
        ceiling, share = profile.tiles.ceiling, profile.tiles.memory
    else:
        e = (profile.convolution if windowed else None) or profile.efficiency
        ceiling, share = e.ceiling[PROFILE_PHASES.index(phase)], e.memory
    ceiling = 1.0 if of_peak else ceiling
    flop = kernels.flop * profile.executed_share(kernels, phase)
    arithmetic = flop / (profile.peak_flop_per_s * ceiling) / product_s
    memory = kernels.memory_bytes / (profile.memory_bytes_per_s * share) / product_s
    return np.asarray(np.maximum(arithmetic, memory))
