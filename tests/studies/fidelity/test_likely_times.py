"""Intervals: the formula against cases by hand, and coverage on made-up devices whose errors are known."""

import math

import numpy as np
import pytest
from fidelity_rows import make_row
from hypothesis import given, settings, strategies as st
from scipy.stats import t as student

from studies.fidelity.error_quantiles import coverages, part_errors
from studies.fidelity.likely_times import (
    COMPUTATION,
    INSIDE,
    OVERLAP,
    PartError,
    TimeParts,
    _quantiles_s,
    likely_s,
    told_apart,
)

ERRORS = {
    COMPUTATION: PartError(low=-0.1, centre=0.0, high=0.2, specific=0.03, rows=9),
    INSIDE[True]: PartError(low=-0.5, centre=0.0, high=0.5, specific=0.1, rows=9),
    OVERLAP: PartError(low=-0.05, centre=0.0, high=0.05, specific=0.01, rows=9),
}


def parts(total_s, exposed_s=0.0, devices=4):
    return TimeParts(total_s=total_s, exposed_s=exposed_s, devices=devices, message_bytes=2.0**25)


def test_one_device_has_the_errors_of_its_computation():
    assert likely_s(parts(2.0, devices=1), ERRORS) == pytest.approx((2 * math.exp(-0.1), 2 * math.exp(0.2)))


def test_shares_weigh_the_errors_of_several_devices():
    """A quarter of the time is exposed communication; without corrections the shares stay."""
    low, high = likely_s(parts(1.0, 0.25), ERRORS)

    assert math.log(low) == pytest.approx(-math.sqrt((0.75 * 0.1) ** 2 + (0.25 * 0.5) ** 2 + 0.05**2))
    assert math.log(high) == pytest.approx(math.sqrt((0.75 * 0.2) ** 2 + (0.25 * 0.5) ** 2 + 0.05**2))


def test_a_bias_moves_the_interval():
    """Where measurements take 30 % longer than predictions, so do likely times; the interval reaches down to 1."""
    errors = {COMPUTATION: PartError(low=math.log(1.2), centre=math.log(1.3), high=math.log(1.4), specific=0.0, rows=9)}
    alone = parts(1.0, devices=1)

    assert _quantiles_s(alone, errors) == pytest.approx((1.2, 1.4))
    assert likely_s(alone, errors) == pytest.approx((1.0, 1.4))


def test_a_prediction_that_is_too_slow_is_the_upper_end():
    """Of two devices, computation and overlap take 20 and 10 % less than predicted, within a hundredth."""
    fast, overlap = (math.log(1 - part) for part in (0.2, 0.1))
    errors = {
        COMPUTATION: PartError(low=fast - 0.003, centre=fast, high=fast + 0.003, specific=0.0, rows=9),
        OVERLAP: PartError(low=overlap - 0.004, centre=overlap, high=overlap + 0.004, specific=0.0, rows=9),
    }
    one = parts(2.0, devices=2)

    assert _quantiles_s(one, errors) == pytest.approx((1.44 * math.exp(-0.005), 1.44 * math.exp(0.005)))
    assert likely_s(one, errors) == pytest.approx((1.44 * math.exp(-0.005), 2.0))


def test_unknown_errors_give_no_interval():
    assert likely_s(parts(1.0), {COMPUTATION: ERRORS[COMPUTATION]}) is None


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-4, 1e4), st.floats(0, 1), st.floats(0, 1), st.floats(1, 3))
def test_telling_apart_is_symmetric_and_needs_a_difference(total_s, share, other_share, factor):
    one, other = parts(total_s, share * total_s), parts(factor * total_s, other_share * factor * total_s)

    assert told_apart(one, other, ERRORS) == told_apart(other, one, ERRORS)
    assert not told_apart(one, one, ERRORS)
    assert told_apart(one, parts(1e3 * total_s, share * 1e3 * total_s), ERRORS)


def test_common_errors_cancel():
    """Two strategies that only compute err alike: 8 % apart is enough, far less than their intervals are wide."""
    one, other = parts(1.0), parts(1.08)

    assert likely_s(one, ERRORS)[1] > likely_s(other, ERRORS)[0]
    assert told_apart(one, other, ERRORS)
    assert not told_apart(one, parts(1.04), ERRORS)
    assert not told_apart(one, parts(1.08, 0.4), ERRORS)  # an error of the links meets one of them only


def test_the_interval_of_two_devices_is_that_by_hand():
    """Medians 0 and 0.2, no spread within the devices but the least one."""
    rows = [make_row(1.0, 1.0, group="a"), make_row(math.exp(0.2), 1.0, group="b")]
    found = part_errors(rows)[COMPUTATION]

    half = student.ppf(0.9, 1) * math.sqrt(0.02 * 1.5 + 0.01**2)
    assert (found.low, found.centre, found.high) == pytest.approx((0.1 - half, 0.1, 0.1 + half), rel=1e-3)


def test_intervals_cover_devices_that_were_left_out():
    """40 devices with normal errors of their own and of their rows: about 80 % of the rows are inside."""
    rng = np.random.default_rng(1)
    rows = [
        make_row(math.exp(off + rng.normal(0, 0.1)), 1.0, group=f"device{i}")
        for i, off in enumerate(rng.normal(0.3, 0.2, 40))
        for _ in range(10)
    ]
    (found,) = coverages(rows)

    assert (found.part, found.rows, found.groups) == (COMPUTATION, 400, 40)
    assert 0.75 <= found.inside <= 0.85
    errors = part_errors(rows)[COMPUTATION]
    assert errors.centre == pytest.approx(0.3, abs=0.1)
    assert errors.high - errors.centre == pytest.approx(1.28 * math.hypot(0.2, 0.1), rel=0.2)


def test_intervals_from_few_devices_with_many_rows_cover_new_ones():
    """Five devices of 40 rows, whose rows differ more than the devices: 80 % of the rows of a sixth are inside."""
    rng = np.random.default_rng(2)
    inside = []
    for _ in range(100):
        *known, new = rng.normal(0, 0.1, (6, 1)) + rng.normal(0, 0.4, (6, 40))
        rows = [make_row(math.exp(each), 1.0, group=f"device{i}") for i, row in enumerate(known) for each in row]
        errors = part_errors(rows)[COMPUTATION]
        inside.append(np.mean((new >= errors.low) & (new <= errors.high)))

    assert np.mean(inside) == pytest.approx(0.8, abs=0.03)


def test_long_tails_on_one_side_do_not_widen_the_other():
    """Rows are hardly off but for one in seven, which takes e times as long: more than the 10 % above an interval."""
    tail = [0.0] * 6 + [1.0]
    rows = [make_row(math.exp(at + 0.001 * i), 1.0, group=f"device{i}") for i in range(10) for at in tail]
    errors = part_errors(rows)[COMPUTATION]

    assert -0.05 < errors.low < errors.centre
    assert errors.high == pytest.approx(1.0, abs=0.05)


def test_rows_that_were_fitted_to_say_nothing():
    rows = [make_row(1.0, 1.0, group="a"), make_row(9.0, 1.0, group="b", fitted=True)]

    assert part_errors(rows)[COMPUTATION].rows == 1
