"""What is expected of an iteration: the formula against cases by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.profile_file import load_profile
from planner.expected.likely_times import (
    BY_RELATIVE,
    COMPUTATION,
    HALF,
    HALF_BY_RELATIVE,
    INSIDE,
    OVERLAP,
    PartError,
    TimeParts,
    expected_s,
    likely_ratio,
    likely_s,
    told_apart,
)
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.make_plan import simulated_plan
from planner.plan.plan_request import PlanRequest

ERRORS = {
    COMPUTATION: PartError(low=-0.1, median=0.0, high=0.2, specific=0.03, rows=9),
    INSIDE[True]: PartError(low=-0.5, median=0.0, high=0.5, specific=0.1, rows=9),
    OVERLAP: PartError(low=-0.05, median=0.0, high=0.05, specific=0.01, rows=9),
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
    """Where measurements take 30 % longer than simulations, so do expected times: no likely time is as short as 1."""
    errors = {COMPUTATION: PartError(low=math.log(1.2), median=math.log(1.3), high=math.log(1.4), specific=0.0, rows=9)}
    alone = parts(1.0, devices=1)

    assert likely_s(alone, errors) == pytest.approx((1.2, 1.4))
    assert expected_s(alone, errors) == pytest.approx(1.3)


def test_errors_of_several_devices_multiply():
    """Of two devices, computation and overlap take 20 and 10 % less than simulated, within a hundredth."""
    fast, overlap = (math.log(1 - part) for part in (0.2, 0.1))
    errors = {
        COMPUTATION: PartError(low=fast - 0.003, median=fast, high=fast + 0.003, specific=0.0, rows=9),
        OVERLAP: PartError(low=overlap - 0.004, median=overlap, high=overlap + 0.004, specific=0.0, rows=9),
    }
    one = parts(2.0, devices=2)

    assert likely_s(one, errors) == pytest.approx((1.44 * math.exp(-0.005), 1.44 * math.exp(0.005)))
    assert expected_s(one, errors) == pytest.approx(1.44)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1e-4, 1e4),
    st.floats(0, 1),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([1, 4]),
    st.floats(0, 1e9),
    st.booleans(),
    st.floats(0, 1),
    st.floats(0.1, 10),
)
def test_what_is_expected_lies_in_its_interval(total_s, share, devices, nodes, size, real, other_share, factor):
    """With the errors that ship; so does the ratio of two expected times in that of the two strategies."""
    one = TimeParts(
        total_s=total_s, exposed_s=share * total_s, devices=devices, nodes=nodes, message_bytes=size, real=real
    )
    other = replace(one, total_s=factor * total_s, exposed_s=other_share * factor * total_s)
    low, high = likely_s(one)
    assert low < expected_s(one) < high
    low, high = likely_ratio(one, other)
    assert low <= expected_s(one) / expected_s(other) <= high


def test_a_device_that_was_not_measured_has_the_errors_of_those_that_were_left_out():
    errors = ERRORS | {BY_RELATIVE: PartError(low=-0.5, median=0.1, high=0.4, specific=0.0, rows=9)}
    alone, several = (replace(parts(2.0, devices=count), by_relative=True) for count in (1, 2))

    assert likely_s(alone, errors) == pytest.approx((2 * math.exp(-0.5), 2 * math.exp(0.4)))
    assert expected_s(several, errors) == pytest.approx(2 * math.exp(0.1))
    assert math.log(likely_s(several, errors)[1] / 2) == pytest.approx(0.1 + math.hypot(0.3, 0.05))
    assert likely_s(alone, ERRORS) is None


def test_half_precision_has_errors_of_its_own_where_they_were_recorded():
    own = PartError(low=-0.3, median=0.2, high=0.6, specific=0.0, rows=9)
    lent = PartError(low=-0.5, median=0.1, high=0.4, specific=0.0, rows=9)
    half, by_relative = (replace(parts(2.0, devices=1), half=True, by_relative=flag) for flag in (False, True))
    known = ERRORS | {BY_RELATIVE: lent}

    assert expected_s(half, known) == expected_s(replace(half, half=False), known)  # nothing was recorded for it
    assert expected_s(half, known | {HALF: own}) == pytest.approx(2 * math.exp(0.2))
    assert likely_s(half, known | {HALF: own})[1] == pytest.approx(2 * math.exp(0.6))
    assert expected_s(by_relative, known | {HALF: own}) == pytest.approx(2 * math.exp(0.1))
    assert expected_s(by_relative, known | {HALF_BY_RELATIVE: own}) == pytest.approx(2 * math.exp(0.2))


def test_plans_know_their_precision():
    device = load_cluster("dgx-a100").take(1)
    for dtype, element_bytes, half in (("float32", 4, False), ("tf32", 4, False), ("bfloat16", 2, True)):
        graph = load_model("lenet5", batch=8, element_bytes=element_bytes)
        request = PlanRequest(model="", cluster="", batch=8, strategy="data", dtype=dtype)
        assert simulated_plan(graph, device, request).replayed.time_parts.half is half


@pytest.mark.parametrize(
    ("name", "relative"),
    [("h100-80gb", "a100-40gb"), ("h100-80gb@tf32", ""), ("h200@float8", ""), ("v100-16gb", ""), ("rtx-a6000", "")],
)
def test_a_profile_names_its_relative_where_no_row_of_the_device_holds(name, relative):
    """A100, H100, H200 and B200 were measured in tensor cores alone; plans say so beside a wider interval."""
    assert load_profile(name).relative == relative


def test_a_plan_says_whose_shares_of_the_peak_it_has():
    graph, device = load_model("lenet5", batch=8), load_cluster("dgx-h100").take(1)
    single, rounded = (
        simulated_plan(graph, device, PlanRequest(model="", cluster="", batch=8, strategy="data", dtype=dtype))
        for dtype in ("float32", "tf32")
    )
    (compared,) = compare(graph, device, ["data"]).strategies
    note = (
        "nothing was measured in float32 on h100-80gb: it reaches the shares of its peak that a100-40gb reaches, and"
        " likely times are as wide as where another device stands in"
    )
    assert single.plan.notes == (note,)
    assert not [each for each in rounded.plan.notes if "measured in" in each]
    assert single.replayed.likely_s == compared.likely_s
    (low, high), (rounded_low, rounded_high) = single.replayed.likely_s, rounded.replayed.likely_s
    assert high / low > 1.5 * rounded_high / rounded_low


def test_unknown_errors_give_no_interval():
    known = {COMPUTATION: ERRORS[COMPUTATION]}

    assert likely_s(parts(1.0), known) is None
    assert expected_s(parts(1.0), known) == 1.0


@settings(max_examples=15, deadline=None)
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
