"""Numbers with units, and device lists, as people read them."""

import math

import pytest
from hypothesis import given, strategies as st

from reports.style.device_lists import compact_devices
from reports.style.units import byte_unit, memory_unit, plain_unit, time_unit


@pytest.mark.parametrize(
    ("unit", "value", "printed"),
    [
        (time_unit([0.1234567]), 0.1234567, "123.5 ms"),
        (time_unit([2.5, 0.123]), 0.123, "0.123 s"),
        (time_unit([0.0]), 0.0, "0 s"),
        (byte_unit([3.21e9, 1.2519e10]), 3.21e9, "3.21 GB"),
        (byte_unit([12.0]), 12.0, "12 B"),
        (memory_unit([16 * 2.0**30]), 12.5 * 2**30, "12.50 GiB"),
        (plain_unit([1234.5]), 1234.5, "1,234"),
        (time_unit([2.5, 0.0123]), 0.0123, "0.0123 s"),
        (time_unit([12.0, 5e-3, 6e-3, 7e-3]), 6e-3, "6.00 ms"),
        (time_unit([12.0, 5e-3, 6e-3, 7e-3]), 12.0, "12,000 ms"),
        (plain_unit([math.nan]), math.nan, "–"),
    ],
)
def test_numbers_print_in_the_unit_of_their_column(unit, value, printed):
    assert unit.full(value) == printed


@given(st.floats(1e-8, 1e4))
def test_a_time_alone_keeps_at_least_three_digits(value_s):
    unit = time_unit([value_s])
    assert float(unit.text(value_s).replace(",", "")) * unit.factor == pytest.approx(value_s, rel=5e-3)


@pytest.mark.parametrize(
    ("devices", "printed"),
    [
        (range(32), "0-31"),
        ((5,), "5"),
        ((), ""),
        ((0, 4, 8, 12, 1, 5, 9, 13), "0-12 by 4, 1-13 by 4"),
        ((0, 1, 8, 9), "0-1, 8-9"),
        ((3, 1, 2, 0), "3, 1-2, 0"),
        ((0, 4), "0, 4"),
    ],
)
def test_device_lists_are_drawn_together(devices, printed):
    assert compact_devices(tuple(devices)) == printed


@given(st.lists(st.integers(0, 40), max_size=30))
def test_a_printed_device_list_can_be_read_back_in_order(devices):
    read = []
    for run in filter(None, compact_devices(devices).split(", ")):
        ends, _, step = run.partition(" by ")
        first, _, last = ends.partition("-")
        read += range(int(first), int(last or first) + 1, int(step or 1))
    assert read == devices
