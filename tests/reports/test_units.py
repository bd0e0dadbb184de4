"""Numbers with units, and device lists, as people read them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from reports.style.device_lists import compact_devices
from reports.style.units import byte_unit, memory_unit, plain_unit, time_unit


@pytest.mark.parametrize(
    ("unit", "value", "printed"),
    [
        (time_unit([0.1234567]), 0.1234567, "123 ms"),
        (time_unit([2.5, 0.123]), 0.123, "123 ms"),
        (time_unit([2.5, 3.5, 0.0123]), 0.0123, "0.0123 s"),
        (time_unit([0.0]), 0.0, "0 s"),
        (time_unit([2.5, 1.5, 2.5, 3e-6]), 3e-6, "3.00e-6 s"),
        (byte_unit([3.21e9, 1.2519e10]), 3.21e9, "3.21 GB"),
        (byte_unit([12.0]), 12.0, "12 B"),
        (memory_unit([16 * 2.0**30]), 12.5 * 2**30, "12.5 GiB"),
        (plain_unit([1234.5]), 1234.5, "1,230"),
        (plain_unit([999.7]), 999.7, "1,000"),
        (plain_unit([9.996]), -9.996, "-10.0"),
        (time_unit([12.0, 5e-3, 6e-3, 7e-3]), 6e-3, "6.00 ms"),
        (time_unit([12.0, 5e-3, 6e-3, 7e-3]), 12.0, "12,000 ms"),
        (plain_unit([math.nan]), math.nan, "–"),
        (plain_unit([9.99e14]), 9.99e14, "999,000,000,000,000"),
        (plain_unit([2.79e122]), 2.79e122, "2.79e122"),
    ],
)
def test_numbers_print_in_the_unit_of_their_column(unit, value, printed):
    assert unit.full(value) == printed


@given(st.floats(1e-8, 1e4))
def test_a_time_has_three_digits(value_s):
    """In a unit in which it is neither long nor small."""
    unit = time_unit([value_s])
    shown = unit.text(value_s).replace(",", "")
    assert float(shown) * unit.factor == pytest.approx(value_s, rel=5.001e-3)
    assert len(shown.replace(".", "").lstrip("0").rstrip("0")) <= 3
    assert len(unit.text(value_s)) <= 6


@pytest.mark.filterwarnings("error")
def test_the_largest_numbers_have_a_unit():
    assert time_unit([1.7e308, 2e-3]).name == "s"
    assert byte_unit([1.7e308]).name == "TB"


@given(st.floats(1e-7, 1e3), st.lists(st.floats(1, 9), min_size=4, max_size=12), st.floats(1e-12, 1e12))
def test_one_outlier_does_not_choose_the_unit(least, usual, outlier):
    """Values within a factor of ten are shown as briefly as without it, but for what it can save itself."""
    usual = [least * value for value in usual]
    alone, beside = time_unit(usual), time_unit([*usual, outlier])
    assert sum(len(beside.text(value)) - len(alone.text(value)) for value in usual) <= 4
    assert all(len(beside.text(value)) <= 7 for value in usual)


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
        ((0, 4, 1, 5, 2, 6, 3, 7), "0-7 by 4, then 1"),
        ((8, 12, 10, 14, 9, 13, 11, 15), "8-15 by 4, then 2, then 1"),
        ((0, 1, 8, 9, 16, 17), "0-17 by 1, then 8"),
        ((0, 2, 1, 3, 2, 4), "0, 2, 1, 3, 2, 4"),  # 1 and 2, each counted up to where the next begins
    ],
)
def test_device_lists_are_drawn_together(devices, printed):
    assert compact_devices(tuple(devices)) == printed


@st.composite
def meshes(draw):
    """Return the devices of a mesh, or of every other coordinate of one, in any order of its axes."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    devices = np.arange(np.prod(sizes)).reshape(sizes).transpose(draw(st.permutations(range(len(sizes)))))
    return devices[:: draw(st.integers(1, 2))].ravel().tolist()


@given(st.lists(st.integers(0, 40), max_size=30) | meshes())
def test_a_printed_device_list_can_be_read_back_in_order(devices):
    text, read = compact_devices(devices), []
    for run in filter(None, [text] if "then" in text else text.split(", ")):
        ends, _, steps = run.partition(" by ")
        first, _, last = ends.partition("-")
        steps = list(map(int, (steps or "1").split(", then ")))
        left, counts = int(last or first) - int(first), {}
        for step in sorted(steps, reverse=True):
            counts[step], left = divmod(left, step)
        counted = itertools.product(*([step * i for i in range(counts[step] + 1)] for step in reversed(steps)))
        read += [int(first) + sum(reached) for reached in counted]
    assert read == devices
