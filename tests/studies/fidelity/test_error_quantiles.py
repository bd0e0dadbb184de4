"""Quantiles of errors: cases by hand, and coverage on made-up devices whose errors are known."""

import math

import numpy as np
import pytest
from fidelity_rows import make_row

from planner.expected.likely_times import BY_RELATIVE, COMPUTATION, HALF, HALF_BY_RELATIVE
from studies.fidelity.error_quantiles import coverages, part_errors
from studies.fidelity.judged_row import PYTORCH_MEASURE, RELATIVE_MEASURE


def test_the_interval_of_two_devices_is_that_by_hand():
    """Medians 0 and 0.2, no spread within the devices but the least one."""
    from scipy.stats import t  # half a second in every process that collects this file

    rows = [make_row(1.0, 1.0, group="a"), make_row(math.exp(0.2), 1.0, group="b")]
    found = part_errors(rows)[COMPUTATION]

    half = t.ppf(0.9, 1) * math.sqrt(0.02 * 1.5 + 0.01**2)
    assert (found.low, found.median, found.high) == pytest.approx((0.1 - half, 0.1, 0.1 + half), rel=1e-3)


def test_half_precision_is_counted_apart():
    """Ten devices, float32 and float16 by 0.1 and 0.5 off: each part has the errors of its own rows."""
    rows = [
        make_row(math.exp(off), 1.0, group=f"device{i}", arithmetic=arithmetic, measure=measure)
        for i in range(10)
        for arithmetic, off, measure in (
            ("float32", 0.1, "training on one GPU"),
            ("float16", 0.5, PYTORCH_MEASURE),
            ("float16", 0.7, RELATIVE_MEASURE),
            ("float32", 0.3, RELATIVE_MEASURE),
        )
    ]
    medians = {part: error.median for part, error in part_errors(rows).items()}
    assert medians == pytest.approx({COMPUTATION: 0.1, BY_RELATIVE: 0.3, HALF: 0.5, HALF_BY_RELATIVE: 0.7}, abs=1e-3)
    assert {each.part: each.rows for each in coverages(rows)}[HALF] == 10


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
    assert errors.median == pytest.approx(0.3, abs=0.1)
    assert errors.high - errors.median == pytest.approx(1.28 * math.hypot(0.2, 0.1), rel=0.2)


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

    assert -0.05 < errors.low < errors.median
    assert errors.high == pytest.approx(1.0, abs=0.05)


def test_the_median_is_that_of_the_same_distribution_as_the_ends():
    """Half of the rows of devices that were not known lie below it, also where tails are long on one side."""
    rng = np.random.default_rng(3)
    below = []
    for _ in range(150):
        *known, new = rng.normal(0.2, 0.05, (6, 1)) + rng.exponential(0.3, (6, 60))
        rows = [make_row(math.exp(each), 1.0, group=f"device{i}") for i, row in enumerate(known) for each in row]
        error = part_errors(rows)[COMPUTATION]
        below.append([np.mean(new < end) for end in (error.low, error.median, error.high)])

    assert np.mean(below, axis=0) == pytest.approx([0.1, 0.5, 0.9], abs=0.03)


def test_rows_that_were_fitted_to_say_nothing():
    rows = [make_row(1.0, 1.0, group="a"), make_row(9.0, 1.0, group="b", fitted=True)]

    assert part_errors(rows)[COMPUTATION].rows == 1
