"""Occupancy: blocks on places by hand, bounds, and what a profile without launches says."""

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.compute.kernel_occupancy import launch_of, occupancy
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.profile_file import load_profile


def product(rows, columns, depth=10_000.0, samples=32.0):
    rows, columns, depth, samples = (np.array([float(v)]) for v in (rows, columns, depth, samples))
    return Kernels(
        flop=2 * rows * columns * depth,
        memory_bytes=4 * (rows * depth + columns * depth + rows * columns),
        rows=rows,
        columns=columns,
        depth=depth,
        samples=samples,
        streamed_bytes=np.zeros(1),
    )


@pytest.mark.parametrize(
    ("rows", "columns", "blocks", "waves"),
    [(1024, 128 * 14, 112, 1), (1024, 128 * 15, 120, 2), (129, 129, 4, 1), (512, 128 * 56, 224, 2)],
)
def test_blocks_on_the_places_of_a_p100(rows, columns, blocks, waves):
    """56 multiprocessors hold 2 blocks of 128 x 128 each: 112 places a wave."""
    profile = load_profile("p100")
    kernels = product(rows, columns)
    share = float(occupancy(profile, kernels, phase="weight_gradient")[0])
    reachable = profile.peak_flop_per_s * profile.efficiency.ceiling[2]
    work_s = profile.time_s(kernels, phase="weight_gradient")[0] - profile.launch_overhead_s
    speed = float(kernels.flop[0] / reachable / work_s)
    assert share == pytest.approx(max(blocks / (112 * waves), speed))


@pytest.mark.parametrize("device", ["p100", "k80", "titanx", "gtx-titan"])
@pytest.mark.parametrize("phase", ["forward", "activation_gradient", "weight_gradient"])
def test_no_kernel_is_faster_than_its_share_of_the_device(device, phase):
    """As many copies as fit would together not exceed what products reach at best; geometry is no less than speed."""
    profile, rng = load_profile(device), np.random.default_rng(5)
    sizes = [np.exp(rng.uniform(0, 12, 300)) for _ in range(4)]
    rows, columns, depth, samples = sizes
    kernels = Kernels(
        flop=2 * rows * columns * depth,
        memory_bytes=4 * (rows * depth + rows * columns),
        rows=rows,
        columns=columns,
        depth=depth,
        samples=np.maximum(samples, 1),
        streamed_bytes=rows * columns * 8,
    )
    work_s = profile.time_s(kernels, phase=phase) - profile.launch_overhead_s
    ceiling = dict(zip(("forward", "activation_gradient", "weight_gradient"), profile.efficiency.ceiling, strict=False))
    shares = {r: occupancy(profile, kernels, phase=phase, model=r) for r in ("geometry", "throughput")}
    assert np.all((shares["geometry"] > 0) & (shares["geometry"] <= 1))
    reached = kernels.flop / work_s / shares["geometry"]
    assert np.all(reached <= profile.peak_flop_per_s * ceiling[phase] * (1 + 1e-9))
    assert np.all(shares["throughput"] <= shares["geometry"] * (1 + 1e-9))


def test_streaming_takes_the_memory_so_the_device():
    size, zero = np.array([1e8]), np.zeros(1)
    kernels = Kernels(flop=zero, memory_bytes=size, rows=zero, columns=zero, depth=zero, samples=np.ones(1))
    assert occupancy(load_profile("p100"), kernels, phase="update")[0] == 1.0


def test_a_profile_without_launches_says_what_to_measure():
    with pytest.raises(ConfigError, match=r"'v100-16gb' must have a section 'launch'.*Nsight Compute.*PriorityRange"):
        launch_of(load_profile("v100-16gb"))
    with pytest.raises(ConfigError, match="occupancy must be one of geometry, throughput, got 'guess'"):
        occupancy(load_profile("p100"), product(8, 8), phase="forward", model="guess")
