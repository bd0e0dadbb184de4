"""Schedules of pipelines: the published orders, closed forms of time and memory, and what they refuse."""

import pytest
from hypothesis import given, strategies as st

from groundwork.errors import ConfigError
from planner.strategies.pipeline_schedule import BACKWARD, FORWARD, PIPELINE_SCHEDULES, PipelineSchedule, ScheduleEvent

ONE_EACH = ["1f1b", "gpipe"]
WHOLE = [*ONE_EACH, "interleaved"]
"""Those that go back through a stage in one go."""


@st.composite
def schedules(draw, kinds=tuple(WHOLE)):
    kind, groups = draw(st.sampled_from(kinds)), draw(st.integers(1, 6))
    if kind == "interleaved":
        shares, micro_batches = draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    else:
        shares, micro_batches = 1, draw(st.integers(1, 12))
    return PipelineSchedule(kind=kind, micro_batches=micro_batches, groups=tuple(range(groups)) * shares)


def words(schedule, group):
    """F or B, the stage's place on its group, and the micro-batch."""
    return " ".join(
        f"{'F' if phases == FORWARD else 'B'}{stage // schedule.group_count}{batch}"
        for phases, stage, batch in schedule.streams[group]
    )


def makespan(schedule, forward_s, backward_s):
    """End of the last event where each takes its time and waits for what it reads and for its group."""
    free, ends = [0.0] * schedule.group_count, {}
    for event in schedule.events:
        phases, stage, batch = event
        group = schedule.groups[stage]
        reads = [("F", stage - 1)] if phases == FORWARD else [("F", stage), ("B", stage + 1)]
        start = max([free[group], *(ends[kind, s, batch] for kind, s in reads if 0 <= s < len(schedule.groups))])
        free[group] = start + (forward_s if phases == FORWARD else backward_s)
        ends["F" if phases == FORWARD else "B", stage, batch] = free[group]
    return max(free)


# GPipe, Fig. 2c; PipeDream-flush, ICML 2021, Fig. 3; Megatron-LM, SC 2021, Fig. 4: four devices, micro-batches from 0.
PUBLISHED = {
    ("gpipe", 4, 1, 0): "F00 F01 F02 F03 B03 B02 B01 B00",
    ("1f1b", 8, 1, 0): "F00 F01 F02 F03 B00 F04 B01 F05 B02 F06 B03 F07 B04 B05 B06 B07",
    ("1f1b", 8, 1, 2): "F00 F01 B00 F02 B01 F03 B02 F04 B03 F05 B04 F06 B05 F07 B06 B07",
    ("1f1b", 8, 1, 3): "F00 B00 F01 B01 F02 B02 F03 B03 F04 B04 F05 B05 F06 B06 F07 B07",
    ("interleaved", 8, 2, 0): (
        "F00 F01 F02 F03 F10 F11 F12 F13 F04 F05 F06 B10 F07 B11 F14 B12 F15 B13 F16 B00 F17 B01 "
        "B02 B03 B14 B15 B16 B17 B04 B05 B06 B07"
    ),
    ("interleaved", 8, 2, 3): (
        "F00 F01 F02 F03 F10 B10 F11 B11 F12 B12 F13 B13 F04 B00 F05 B01 F06 B02 F07 B03 "
        "F14 B14 F15 B15 F16 B16 F17 B17 B04 B05 B06 B07"
    ),
}


@pytest.mark.parametrize(("kind", "micro_batches", "shares", "group"), PUBLISHED)
def test_each_group_works_in_the_published_order(kind, micro_batches, shares, group):
    schedule = PipelineSchedule(kind=kind, micro_batches=micro_batches, groups=tuple(range(4)) * shares)
    assert words(schedule, group) == PUBLISHED[kind, micro_batches, shares, group]


@given(schedules())
def test_events_are_all_work_in_an_order_that_can_run(schedule):
    stages, batches = range(len(schedule.groups)), range(schedule.micro_batches)
    place = {event: k for k, event in enumerate(schedule.events)}
    assert set(place) == {(p, s, m) for p in (FORWARD, BACKWARD) for s in stages for m in batches}
    assert len(place) == len(schedule.events)
    for (phases, stage, batch), at in place.items():
        if phases == BACKWARD:
            assert place[FORWARD, stage, batch] < at
        after = stage - 1 if phases == FORWARD else stage + 1
        assert after not in stages or place[phases, after, batch] < at
    for group in range(schedule.group_count):
        mine = tuple(event for event in schedule.events if schedule.groups[event.stage] == group)
        assert mine == schedule.streams[group]


@given(schedules(ONE_EACH), st.integers(1, 9), st.integers(1, 9))
def test_equal_stages_take_the_published_time(schedule, forward_s, backward_s):
    stages, batches = len(schedule.groups), schedule.micro_batches
    assert makespan(schedule, forward_s, backward_s) == (batches + stages - 1) * (forward_s + backward_s)


@given(schedules(["interleaved"]), st.integers(1, 9), st.integers(1, 9))
def test_interleaving_divides_the_bubble(schedule, forward_s, backward_s):
    """(S - 1)/v of the time of a whole stage: SC 2021, Sec. 2.2."""
    devices, shares = schedule.group_count, len(schedule.groups) // schedule.group_count
    ideal_s = schedule.micro_batches * shares * (forward_s + backward_s)
    assert makespan(schedule, forward_s, backward_s) == ideal_s + (devices - 1) * (forward_s + backward_s)


@given(schedules(ONE_EACH))
def test_micro_batches_in_flight(schedule):
    """All in GPipe; in 1F1B no more than stages to the end."""
    stages, batches = len(schedule.groups), schedule.micro_batches
    most = {"gpipe": [batches] * stages, "1f1b": [min(batches, stages - s) for s in range(stages)]}
    assert list(schedule.in_flight) == most[schedule.kind]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"kind": "2f2b", "micro_batches": 4},
            "schedule must be one of gpipe, 1f1b, interleaved, zero-bubble, got '2f2b'",
        ),
        ({"kind": "1f1b", "micro_batches": 0}, "micro_batches must be >= 1, got 0"),
        ({"kind": "gpipe", "micro_batches": 4, "groups": (0, 1, 0, 1)}, "gpipe needs devices of its own for each of 4"),
        ({"kind": "interleaved", "micro_batches": 4, "groups": (0, 0, 1, 1)}, "needs its 4 stages in turn"),
        ({"kind": "interleaved", "micro_batches": 4, "groups": (0, 1, 0)}, "stages must be a multiple of their 2"),
        ({"kind": "interleaved", "micro_batches": 5, "groups": (0, 1, 0, 1)}, "micro_batches must be a multiple of"),
    ],
)
def test_bad_schedules_are_refused(values, reason):
    with pytest.raises(ConfigError, match=reason):
        PipelineSchedule(**values)


# Qi et al., 2023, Fig. 3: four devices; F forward, B gradients of activations, W of parameters, micro-batches from 0.
ZERO_BUBBLE = {
    (6, 0): "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 B3 W3 B4 W4 B5 W5",
    (6, 2): "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 B5 W3 W4 W5",
    (6, 3): "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 W3 W4 W5",
    (2, 3): "F0 B0 F1 B1 W0 W1",
}
LETTERS = {FORWARD: "F", ("activation_gradient",): "B", ("weight_gradient",): "W"}


@pytest.mark.parametrize(("micro_batches", "stage"), ZERO_BUBBLE)
def test_zero_bubble_by_hand(micro_batches, stage):
    """Gradients of parameters come as many micro-batches later as stages come before."""
    stream = PipelineSchedule(kind="zero-bubble", micro_batches=micro_batches, groups=(0, 1, 2, 3)).streams[stage]
    assert " ".join(f"{LETTERS[e.phases]}{e.micro_batch}" for e in stream) == ZERO_BUBBLE[micro_batches, stage]


def ends_of(schedule, times):
    """End of every event, by letter, stage and micro-batch, where each waits for what it reads and for its group."""
    free, ends = [0.0] * schedule.group_count, {}
    last = len(schedule.groups) - 1
    for phases, stage, batch in schedule.events:
        letter = LETTERS[phases]
        reads = {"F": [("F", stage - 1)], "B": [("F", stage), ("B", stage + 1)], "W": [("B", stage)]}[letter]
        ready = (ends[kind, s, batch] for kind, s in reads if 0 <= s <= last)
        free[stage] = max([free[stage], *ready]) + times[letter]
        ends[letter, stage, batch] = free[stage]
    return ends


@given(schedules(["zero-bubble"]), st.integers(1, 9))
def test_zero_bubble_leaves_a_third_of_the_bubble(schedule, unit_s):
    """(S - 1)(F + B - W) of equal sub-tasks, against (S - 1)(F + B + W) of 1F1B: Qi et al., Table 1."""
    stages, batches = len(schedule.groups), schedule.micro_batches
    ends = ends_of(schedule, dict.fromkeys("FBW", unit_s))
    assert set(ends) == {(k, s, m) for k in "FBW" for s in range(stages) for m in range(batches)}
    plain = PipelineSchedule(kind="1f1b", micro_batches=batches, groups=schedule.groups)
    assert makespan(plain, unit_s, 2 * unit_s) == (batches + stages - 1) * 3 * unit_s
    if batches >= stages:
        assert max(ends.values()) == 3 * batches * unit_s + (stages - 1) * unit_s
    assert max(ends.values()) <= makespan(plain, unit_s, 2 * unit_s)


@given(schedules(["zero-bubble"]))
def test_zero_bubble_keeps_no_more_micro_batches_than_the_first_stage_of_1f1b(schedule):
    stages, batches = len(schedule.groups), schedule.micro_batches
    assert list(schedule.in_flight) == [min(batches, stages)] * stages
    events = schedule.events
    assert len(set(events)) == len(events) == 3 * stages * batches
    assert all(isinstance(event, ScheduleEvent) for event in events)
    assert "zero-bubble" in PIPELINE_SCHEDULES
