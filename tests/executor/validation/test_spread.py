"""How far a median of few turns may be off, against order statistics, Student's distribution and drawn turns."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from executor.validation.spread import median_interval, median_spread


@given(count=st.integers(6, 60), repeats=st.integers(1, 9))
def test_many_turns_bound_their_median_by_their_order(count, repeats):
    """The chance that the median lies between two order statistics is a binomial sum; repeats add nothing."""
    from scipy.stats import binom  # half a second in every process that collects this file

    low, high = median_interval([[float(turn)] * repeats for turn in range(count)])
    left = int(low)
    assert high == count - 1 - left
    assert 1 - 2 * binom.cdf(left, count, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(left + 1, count, 0.5) < 0.95


@pytest.mark.parametrize("count", [3, 4, 5])
def test_few_turns_bound_their_median_by_students_distribution(count):
    from scipy.stats import t

    medians = np.random.default_rng(count).normal(1.0, 0.05, count)
    low, high = median_interval([[median - 1, median, median + 1] for median in medians])
    error = np.sqrt(np.pi / 2) * medians.std(ddof=1) / np.sqrt(count)
    assert (low, high) == pytest.approx(t.interval(0.95, count - 1, np.median(medians), error), rel=1e-4)


@pytest.mark.parametrize("count", [3, 6, 12])
def test_the_interval_holds_the_median_as_often_as_it_says(count):
    """Turns share a clock that differs by 5 % between them, and their 50 iterations differ by 1 %."""
    rng = np.random.default_rng(count)
    held = 0
    for _ in range(1000):
        turns = rng.normal(1.0, 0.05, (count, 1)) + rng.normal(0.0, 0.01, (count, 50))
        low, high = median_interval(list(turns))
        held += low <= 1.0 <= high
    assert 0.935 < held / 1000 < 0.99


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_turns_say_nothing_however_long_they_are(count):
    assert median_spread([np.ones(1000)] * count) == np.inf
    assert median_spread([np.ones(1)] * 3) == 0
