"""Thresholds by bisection against looking everywhere, and against those that can be worked out."""

from dataclasses import replace

import numpy as np
import pytest
from eight_bit_crossover_points import crossover
from hypothesis import given, settings, strategies as st

from groundwork.errors import ConfigError
from hwprofiles.devices.latency import Latency
from studies.eight_bit.many_machines import (
    EIGHT_BIT_COST,
    FLOAT32_COST,
    ElementCost,
    Interpretation,
    Setting,
    sub_batch_times,
)
from studies.eight_bit.paper_tables import alexnet

CLUSTER = Setting(
    sub_batch=512.0,
    machines=32.0,
    devices_per_machine=3.0,
    bytes_per_s=4.5e9,
    latency=Latency((0.0, 1e6), (5e-6, 3e-4)),
)
CODINGS = st.builds(
    ElementCost, st.just("any"), st.sampled_from([0.125, 1.0, 2.0]), st.floats(0, 5e-9), st.floats(0, 1e-9)
)


def pays(setting, coding, least_gain, reading):
    mine, other = (sub_batch_times(alexnet(), setting, each, reading).speedup for each in (coding, FLOAT32_COST))
    return mine > (1 + least_gain) * other


@given(
    CODINGS, st.sampled_from(list(Interpretation)), st.sampled_from([0.0, 0.1]), st.sampled_from([128.0, 512.0, 2048.0])
)
def test_bandwidths_against_a_fine_grid(coding, reading, least_gain, sub_batch):
    """Between the thresholds the answer is what the grid says at each of its points."""
    setting, grid = replace(CLUSTER, sub_batch=sub_batch), np.geomspace(1e8, 1e12, 5001)
    everywhere = pays(replace(setting, bytes_per_s=grid), coding, least_gain, reading)
    found = crossover(
        alexnet(),
        setting,
        coding,
        over="bytes_per_s",
        low=1e8,
        high=1e12,
        least_gain=least_gain,
        interpretation=reading,
    )

    flips = np.searchsorted(found.thresholds, grid * (1 + 1e-12), side="right")
    assert np.mean((flips % 2 == 0) == (everywhere == found.pays_at_low)) > 1 - 2e-3  # two within a step may be missed
    for threshold in found.thresholds:
        below, above = (
            pays(replace(setting, bytes_per_s=threshold * f), coding, least_gain, reading) for f in (1 - 1e-9, 1 + 1e-9)
        )
        assert below != above


@pytest.mark.parametrize("over", ["sub_batch", "machines"])
@settings(max_examples=14)
@given(CODINGS, st.sampled_from(list(Interpretation)), st.sampled_from([1e9, 4.5e9, 2e10]))
def test_whole_values_against_every_value(over, coding, reading, bytes_per_s):
    setting = replace(CLUSTER, bytes_per_s=bytes_per_s)
    values = [float(v) for v in range(2, 130) if (12288 % v if over == "sub_batch" else 384 * v % 512) == 0]
    everywhere = [bool(pays(replace(setting, **{over: value}), coding, 0.0, reading)) for value in values]
    flips = [values[i] for i in range(1, len(values)) if everywhere[i] != everywhere[i - 1]]
    found = crossover(alexnet(), setting, coding, over=over, low=2, high=129.5, interpretation=reading)

    assert (found.pays_at_low, list(found.thresholds)) == (everywhere[0], flips)


def test_a_threshold_that_can_be_worked_out():
    """No latency, nothing hidden: 8 bits pay while coding a sub-batch takes less than the bytes that they save."""
    bare = replace(alexnet(), linear_s=1e-12, product_s=0.0)
    setting = replace(CLUSTER, latency=Latency.constant(0.0))
    numbers, machines = 512 * 9216, 32
    coding_s = numbers / 96 * (1e-9 + 95 * 0.5e-9)
    at = 31 * 3 * numbers / machines / coding_s
    found = crossover(bare, setting, EIGHT_BIT_COST, over="bytes_per_s", low=1e8, high=1e12)

    assert found.pays_at_low
    assert found.thresholds == (pytest.approx(at, rel=1e-9),)


def test_free_compression_never_loses_in_a_schedule():
    for reading in (Interpretation.SCHEME, Interpretation.IN_TURN):
        found = crossover(
            alexnet(), CLUSTER, ElementCost("free", 1.0), over="bytes_per_s", low=1e6, high=1e13, interpretation=reading
        )
        assert found == type(found)(True, ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"over": "bytes_per_s", "low": 2.0, "high": 1.0}, "low and high must be 0 < low < high, got 2.0 and 1.0"),
        ({"over": "bytes_per_s", "low": 0.0, "high": 1.0}, "got 0.0 and 1.0"),
        ({"over": "machines", "low": 5.0, "high": 7.0}, "machines must divide into whole sub-batches somewhere in 5"),
        ({"over": "machines", "low": 2.0, "high": 1e9}, "high must be at most 1000000 machines, got 1e[+]09"),
        ({"over": "sub_batch", "low": 13000.0, "high": 14000.0}, "sub_batch must divide into whole sub-batches"),
        ({"over": "bandwidth", "low": 1.0, "high": 8.0}, "over must be one of bytes_per_s, sub_batch, machines, got"),
    ],
)
def test_bad_ranges_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        crossover(alexnet(), CLUSTER, EIGHT_BIT_COST, **options)
