"""The closed forms give the printed values, and follow from schedules worked out step by step."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from hwprofiles.devices.latency import Latency
from studies.eight_bit.machine import LinearLayers, machine_penalty_s, machine_speedup, machine_sync_s
from studies.eight_bit.many_machines import (
    EIGHT_BIT_COST,
    FLOAT32_COST,
    ElementCost,
    Interpretation,
    Setting,
    exposed_s,
    gradient_sync_s,
    single_pass_s,
    sub_batch_times,
)
from studies.eight_bit.paper_tables import BITS, alexnet, linear_layers, machine_gradient_s, pass_table, read_table

FREE = Latency.constant(0.0)
CLUSTER = Setting(sub_batch=512.0, machines=32.0, devices_per_machine=3.0, bytes_per_s=4.5e9, latency=FREE)
SIZES = st.floats(1e-5, 1e-1)

# Table 7 of the paper, typed in again: sub-batches down, both kernels and for each 32 and 8 bits across.
TABLE_7 = np.array(
    [
        [13.4, 13.8, 20.7, 21.4],
        [20.0, 24.4, 29.7, 35.2],
        [23.0, 39.3, 33.5, 51.9],
        [14.8, 48.6, 22.7, 61.0],
        [11.3, 50.6, 17.7, 62.8],
        [1.3, 9.7, 2.15, 15.5],
    ]
)


def table_7(kernels):
    """Our speedups of one kind of kernels from the printed single passes, shape (6, 2)."""
    load, table = alexnet(kernels), pass_table()
    passes = table.passes[:, None]
    exposed = exposed_s(table.single_pass_s, machines=32, passes=passes, product_s=1.3e-3, linear_s=6.5e-3)
    iteration_s = load.whole_s - load.own_linear_s + load.gradient_s + passes * load.linear_s + exposed
    return 96 * load.whole_s / iteration_s


def test_all_speedups_of_table_7_within_2_percent():
    ours = np.hstack([table_7("nervana"), table_7("convnet2")])

    np.testing.assert_allclose(ours, TABLE_7, rtol=0.02)
    assert ours.argmax(axis=0).tolist() == TABLE_7.argmax(axis=0).tolist()


def test_table_1_on_one_machine():
    """Printed to two digits after the point; the 8-bit penalty is not determined by what is left of the text."""
    nervana, convnet2 = (machine_speedup(s, linear_layers(), machine_gradient_s()) for s in (0.1041, 17 / 96))

    assert round(float(nervana[0]), 2) == 3.53
    assert nervana[1] == pytest.approx(3.67, rel=5e-3)
    assert convnet2[0] == pytest.approx(3.66, rel=0.015)  # "about 1 %" from what Krizhevsky measured


def test_penalties_of_one_machine_by_hand():
    """0.05 + 2 x 0.9 + 4 x (0.2 + 0.8 + 0.25) ms in 32 bits, 0.05 + 2 x 0.4 + 4 x (0 + 0.2 + 0.1) in 8."""
    np.testing.assert_allclose(machine_penalty_s(linear_layers(), machine_gradient_s()), [6.85e-3, 2.05e-3])


def test_what_nothing_hides_is_paid_whole():
    """Without arithmetic to hide behind, a machine pays every transfer: as many inputs as devices, and errors once."""
    layers = LinearLayers(
        alone_s=1.0, parallel_s=0.25, forward_s=np.zeros(2), input_sync_s=np.array(3.0), output_sync_s=np.ones(2)
    )
    assert machine_penalty_s(layers, 0.5) == pytest.approx(0.5 + 4 * 3 + 3 + 4 * 2)


@pytest.mark.parametrize(("devices", "messages"), [(2, 1), (3, 2), (4, 4), (8, 12)])
def test_messages_over_a_switch(devices, messages):
    pairs = [(a, b) for a in range(2) for b in range(2, devices)]  # from the first pair to all others

    assert messages == max(1, len(pairs))
    assert machine_sync_s(5.25e9, devices=devices) == pytest.approx(messages)


def test_single_passes_of_table_6_up_to_1024():
    """31 messages with Table 5's latencies at 4.5 GB/s: the digits that are printed, for both data types."""
    table = pass_table()
    ours = single_pass_s(table.message_bytes, table.latency_s, 4.5e9, 32)

    np.testing.assert_allclose(ours[:4], table.single_pass_s[:4], rtol=0.03)
    np.testing.assert_allclose(ours[:4, 0], table.single_pass_s[:4, 0], rtol=0.002)


def test_single_passes_beyond_need_other_latencies_than_table_5():
    """2048 has the latencies of 1024, and 12288 in 8 bits ten times the printed one."""
    table = pass_table()
    latency_s = table.latency_s.copy()
    latency_s[4], latency_s[5, 1] = latency_s[3], 10 * latency_s[5, 1]
    ours = single_pass_s(table.message_bytes, latency_s, 4.5e9, 32)

    np.testing.assert_allclose(ours[4:], table.single_pass_s[4:], rtol=0.015)


def test_message_sizes_of_table_5():
    """A 32nd of the sub-batch's 9216 inputs: exact in 32 bits but for two slips; an eighth of them in 8 bits."""
    table = pass_table()
    exact = table.sub_batch * 9216 * 4 / 32

    np.testing.assert_array_equal(table.message_bytes[:4, 0], exact[:4])
    np.testing.assert_allclose(table.message_bytes[4:, 0], exact[4:], rtol=0.004)
    np.testing.assert_array_equal(table.message_bytes[:, 0], 8 * table.message_bytes[:, 1])


def test_the_gradient_of_the_largest_convolution():
    """A.2.2: 1.9 ms, which is without the time on InfiniBand; 31 messages of 108 KiB at 6 GB/s, twice, add 1.1."""
    size = 384 * 256 * 9 * 4 / 32
    printed, whole = (gradient_sync_s(size, 3e-5, 32, bytes_per_s=rate) for rate in (np.inf, 6e9))

    assert printed == pytest.approx(1.9e-3, rel=0.01)
    assert whole - printed == pytest.approx(2 * 31 * size / 6e9)


def stepped_s(single_s, hidden_s, rounds):
    """Transfers one after another, each beside the arithmetic of the round before: when the last one ends."""
    moved, computed = single_s, 0.0
    for _ in range(rounds):
        start = max(moved, computed)
        moved, computed = start + single_s, start + hidden_s
    return max(moved, computed) - rounds * hidden_s


@given(SIZES, SIZES, st.integers(2, 40), st.integers(1, 100))
def test_exposed_transfers_follow_from_stepping_through_the_schedule(single_s, hidden_s, machines, passes):
    found = {
        reading: exposed_s(
            single_s, machines=machines, passes=passes, product_s=hidden_s, linear_s=hidden_s, interpretation=reading
        )
        for reading in Interpretation
    }

    assert found[Interpretation.IN_TURN] == pytest.approx(stepped_s(single_s, hidden_s, machines - 1))
    assert found[Interpretation.SCHEME] == pytest.approx(stepped_s(single_s, hidden_s, passes - 1))
    left_out = single_s if single_s > hidden_s else 0.0  # the first pass, where anything is exposed
    assert found[Interpretation.TABLE_6] + left_out == pytest.approx(found[Interpretation.IN_TURN])


def test_arrays_are_many_numbers_at_once():
    """Sub-batch down, bandwidth across, machines in depth: each cell is what its own numbers give."""
    cuts, rates, machines = np.array([128.0, 512.0]), np.array([1e9, 4.5e9, 2e10]), np.array([8.0, 32.0])
    latency = Latency((0.0, 1e6), (1e-5, 3e-4))
    base = replace(CLUSTER, latency=latency)
    grid = replace(base, sub_batch=cuts[:, None, None], bytes_per_s=rates[:, None], machines=machines)
    many = sub_batch_times(alexnet(), grid, EIGHT_BIT_COST, Interpretation.SCHEME)

    for i, j, k in np.ndindex(2, 3, 2):
        one = replace(base, sub_batch=cuts[i], bytes_per_s=rates[j], machines=machines[k])
        alone = sub_batch_times(alexnet(), one, EIGHT_BIT_COST, Interpretation.SCHEME)
        for field in fields(alone):
            assert getattr(many, field.name)[i, j, k] == pytest.approx(float(getattr(alone, field.name)), rel=1e-12)


def test_speedups_of_table_7_from_links():
    """Table 5's latencies by size and half a byte a number, as its 8-bit sizes say: as the printed single passes."""
    table, half = pass_table(), ElementCost("half a byte", 0.5)
    for column, coding in enumerate((FLOAT32_COST, half)):
        latency = Latency(tuple(table.message_bytes[:4, column]), tuple(table.latency_s[:4, column]))
        setting = replace(CLUSTER, sub_batch=table.sub_batch[:4].astype(float), latency=latency)
        np.testing.assert_allclose(sub_batch_times(alexnet(), setting, coding).speedup, TABLE_7[:4, column], rtol=0.02)


def test_coding_is_paid_for_every_number():
    """Each device encodes its own share of the mini-batch and decodes everyone else's, whatever the sub-batch."""
    times = sub_batch_times(alexnet(), replace(CLUSTER, sub_batch=np.array([128.0, 1024.0])), EIGHT_BIT_COST)
    own = 128 * 9216

    np.testing.assert_allclose(times.codec_s, own * 1e-9 + 95 * own * 0.5e-9)
    assert times.message_bytes.tolist() == [128 * 9216 / 32, 1024 * 9216 / 32]


@given(st.sampled_from([1e8, 1e9, 1e10]), st.sampled_from([1.5, 2.0, 10.0]), st.sampled_from(list(Interpretation)))
def test_faster_links_never_slow_the_schedules(bytes_per_s, factor, reading):
    """Nor do they in Table 6's form, but where a pass slips below the product and its whole is counted."""
    slow, fast = (replace(CLUSTER, bytes_per_s=rate) for rate in (bytes_per_s, factor * bytes_per_s))
    before, after = (sub_batch_times(alexnet(), each, FLOAT32_COST, reading) for each in (slow, fast))

    assert after.single_pass_s < before.single_pass_s
    if reading is not Interpretation.TABLE_6 or after.single_pass_s > 1.3e-3:
        assert after.iteration_s <= before.iteration_s


def test_table_4_adds_up_and_the_rest_is_not_itemised():
    convolutions = [line for line in read_table("table4_compute") if line["kind"] == "conv"]
    layers, steps = linear_layers(), ("fprop_ms", "bprop_ms", "update_ms")
    rows_ms = sum(float(line[step]) for line in convolutions for step in steps)

    assert (layers.alone_s, layers.parallel_s) == pytest.approx((6.5e-3, 3.34e-3))
    assert rows_ms + 6.5 == pytest.approx(94.5)  # of 104.1
    assert layers.output_sync_s.shape == (len(BITS), 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machines": 1.0}, "machines must be >= 2, got 1.0"),
        ({"bytes_per_s": 0.0}, "bytes_per_s must be > 0 and finite, got 0.0"),
        ({"sub_batch": np.nan}, "sub_batch must be > 0 and finite, got nan"),
        ({"sub_batch": 20000.0}, "sub_batch must be at most the mini-batch's samples, got 20000.0"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        sub_batch_times(alexnet(), replace(CLUSTER, **change), FLOAT32_COST)


def test_other_bad_values_are_refused():
    with pytest.raises(ConfigError, match="whole_s must be > 0"):
        sub_batch_times(replace(alexnet(), whole_s=-1.0), CLUSTER, FLOAT32_COST)
    with pytest.raises(ConfigError, match="element_bytes of x must be > 0, got 0"):
        ElementCost("x", 0)
    with pytest.raises(ConfigError, match="compress_s and decompress_s of x must be >= 0, got -1"):
        ElementCost("x", 1, -1)
    with pytest.raises(ConfigError, match="devices must be >= 2, got 1"):
        machine_sync_s(1.0, devices=1)
    with pytest.raises(ConfigError, match="kernels must be one of nervana, convnet2, got 'cudnn'"):
        alexnet("cudnn")
