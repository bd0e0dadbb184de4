"""Expected times with failures against simulated failures, and the best interval against a search."""

import math

import numpy as np
import pytest

from groundwork.errors import ConfigError
from studies.size.failures import Failures, expected_time_s, least_time_s, optimal_interval_s


def simulated_s(work_s, interval_s, checkpoint_s, restart_s, mtbf_s, random):
    """Time of one run whose failures are drawn: also during checkpoints and restarts, as the formula has it."""
    now, done, strike = 0.0, 0.0, random.exponential(mtbf_s)
    while done < work_s:
        segment = min(interval_s, work_s - done) + checkpoint_s
        if now + segment <= strike:
            now, done = now + segment, done + interval_s
            continue
        now, strike = strike, strike + random.exponential(mtbf_s)
        while now + restart_s > strike:
            now, strike = strike, strike + random.exponential(mtbf_s)
        now += restart_s
    return now


@pytest.mark.parametrize(
    ("interval_s", "restart_s", "mtbf_s"), [(10.0, 2.0, 60.0), (25.0, 0.0, 40.0), (5.0, 8.0, 30.0)]
)
def test_the_expected_time_is_the_mean_of_drawn_runs(interval_s, restart_s, mtbf_s):
    """Within four standard errors of the mean of 3,000 runs."""
    random = np.random.default_rng(7)
    failures = Failures(node_mtbf_s=mtbf_s * 2, checkpoint_s=1.5, restart_s=restart_s)
    times = [simulated_s(200.0, interval_s, 1.5, restart_s, mtbf_s, random) for _ in range(3_000)]
    expected = expected_time_s(200.0, interval_s, failures, nodes=2)
    assert abs(np.mean(times) - expected) < 4 * np.std(times) / math.sqrt(len(times))


@pytest.mark.parametrize("checkpoint_s", [0.001, 1.0, 30.0, 500.0, 5_000.0])
@pytest.mark.parametrize("mtbf_s", [1e3, 1e5, 1e7])
def test_the_best_interval_is_that_of_a_search(checkpoint_s, mtbf_s):
    """No interval on a fine grid takes less expected time."""
    best_s = optimal_interval_s(checkpoint_s, mtbf_s)
    failures = Failures(node_mtbf_s=mtbf_s, checkpoint_s=checkpoint_s, restart_s=60.0)
    work_s = 1e9 if best_s < 1e9 else math.inf
    least = expected_time_s(work_s, best_s, failures, 1)
    others = [expected_time_s(work_s, best_s * factor, failures, 1) for factor in np.geomspace(0.2, 5, 201)]
    assert least <= min(others) * (1 + 1e-9)


@pytest.mark.parametrize("work_s", [60.0, 3e3, 1e5, 1e7])
@pytest.mark.parametrize("mtbf_s", [1e3, 1e5, 1e8])
def test_no_checkpoint_comes_later_than_the_end(work_s, mtbf_s):
    """Either one comes before the end, or none; no interval on a grid, and none at all, is expected to end sooner."""
    failures = Failures(node_mtbf_s=mtbf_s, checkpoint_s=30.0, restart_s=60.0)
    every_s, total_s = least_time_s(work_s, failures, 1)
    assert every_s < work_s or math.isinf(every_s)
    assert total_s == expected_time_s(work_s, every_s, failures, 1)
    others = [expected_time_s(work_s, at * work_s, failures, 1) for at in np.geomspace(1e-6, 0.999, 300)]
    assert total_s <= min(others) * (1 + 1e-9)
    without_s = mtbf_s * math.exp(60 / mtbf_s) * math.expm1(work_s / mtbf_s) if work_s / mtbf_s < 500 else math.inf
    assert total_s <= without_s * (1 + 1e-9)
    assert math.isinf(every_s) == (total_s == pytest.approx(without_s, rel=1e-12))


def test_short_checkpoints_have_youngs_interval():
    """sqrt(2 C M) where C is much less than M; Daly's second term brings it nearer."""
    for checkpoint_s, mtbf_s in ((1e-3, 1e5), (1.0, 1e6), (30.0, 1e7)):
        young = math.sqrt(2 * checkpoint_s * mtbf_s)
        daly = young * (1 + math.sqrt(checkpoint_s / (2 * mtbf_s)) / 3 + checkpoint_s / (18 * mtbf_s)) - checkpoint_s
        assert optimal_interval_s(checkpoint_s, mtbf_s) == pytest.approx(young, rel=2e-3)
        assert optimal_interval_s(checkpoint_s, mtbf_s) == pytest.approx(daly, rel=1e-6)


def test_the_two_forms_of_the_interval_meet():
    """The series next to the branch point continues Lambert's function."""
    below, above = (optimal_interval_s(1.0, 1.0 / small) for small in (0.9999e-6, 1.0001e-6))
    assert below / above == pytest.approx(math.sqrt(1.0001 / 0.9999), rel=1e-6)


def test_runs_that_never_end_take_for_ever():
    """Restarts a thousand times as long as the time between failures."""
    failures = Failures(node_mtbf_s=1.0, checkpoint_s=1.0, restart_s=1000.0)
    assert math.isinf(expected_time_s(100.0, 1.0, failures, 1))


def test_costs_that_are_no_times_are_refused():
    for wrong in ({"node_mtbf_s": 0.0}, {"checkpoint_s": -1.0}, {"restart_s": math.nan}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Failures(**({"node_mtbf_s": 1.0, "checkpoint_s": 1.0, "restart_s": 1.0} | wrong))
