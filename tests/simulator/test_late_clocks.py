"""Graphs whose clock is late, as those of measured traces: the replay is that of the same graph from zero."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from task_graphs import task_graph, task_graphs

from simulator.engines.engine import simulate

TEN_YEARS_S = 315_576_000.0
UNIX_S = 1_700_000_000.0
MICRO = 2.0**-20
"""About a microsecond, by which doubles are multiplied without rounding."""


def in_steps(graph, scale):
    """The graph with times and work multiplied, and starts in steps that a late clock can tell apart."""
    return replace(
        graph,
        work=graph.work * scale,
        latency_s=graph.latency_s * scale,
        start_s=np.round(graph.start_s * 4) / 4 * max(scale, MICRO),
    )


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
@settings(max_examples=12)
@given(task_graphs(), st.sampled_from([1.0, MICRO]), st.integers(1, int(TEN_YEARS_S)))
def test_every_task_lasts_as_long_as_without_the_shift(engine, graph, scale, shift_s):
    graph = in_steps(graph, scale)
    plain = simulate(graph, engine=engine)
    shifted = simulate(replace(graph, start_s=graph.start_s + shift_s), engine=engine)

    for name in ("ready_s", "start_s", "end_s"):
        later_s = shifted.origin_s - shift_s - plain.origin_s
        resolution_s = 1e-9 * scale
        np.testing.assert_allclose(getattr(shifted, name) + later_s, getattr(plain, name), rtol=1e-9, atol=resolution_s)


@settings(max_examples=25)
@given(task_graphs(), st.sampled_from([1.0, MICRO]), st.sampled_from([1000.0, 2.0**28, TEN_YEARS_S]), st.randoms())
def test_engines_agree_where_only_some_tasks_are_late(graph, scale, shift_s, random):
    """Within such a graph no clock is early: latencies end within the tolerance of the instant that starts them."""
    late = np.array([random.random() < 0.5 for _ in range(graph.size)])
    graph = in_steps(graph, scale)
    graph = replace(graph, start_s=graph.start_s + shift_s * late)
    clear, fast = (simulate(graph, engine=engine) for engine in ("simpy", "compiled"))

    assert clear.origin_s == fast.origin_s
    for name in ("ready_s", "start_s", "end_s"):
        np.testing.assert_allclose(getattr(fast, name), getattr(clear, name), rtol=4e-16, atol=1e-9 * scale)


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_two_chains_of_milliseconds_in_unix_time(engine):
    """A thousand tasks of 1 ms end after a second, those of 2 ms after two."""
    chain = [
        {"work": work_s, "start_s": UNIX_S, "after": [i - 2] if i > 1 else []}
        for i in range(2000)
        for work_s in [0.001 * (1 + i % 2)]
    ]
    schedule = simulate(task_graph([1.0], chain), engine=engine)

    assert schedule.origin_s == UNIX_S
    assert schedule.end_s[-2:] == pytest.approx([1.0, 2.0], rel=1e-9)
    np.testing.assert_allclose(schedule.end_s - schedule.start_s, [0.001, 0.002] * 1000, rtol=1e-9)


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_an_early_clock_stays_as_it_is(engine):
    """Times of a graph that starts at 2 s are those of its clock."""
    schedule = simulate(task_graph([1.0], [{"work": 3.0, "start_s": 2.0, "uses": {0: 1.0}}]), engine=engine)

    assert (schedule.origin_s, schedule.start_s[0], schedule.end_s[0]) == (0.0, 2.0, 5.0)


def test_what_waits_does_not_count_as_the_earliest_start():
    """A task behind another, in the graph or in its stream, may say that it could start at 0."""
    tasks = [{"start_s": UNIX_S, "stream": 0}, {"stream": 0}, {"after": [0]}]
    assert task_graph([1.0], tasks).earliest_s == UNIX_S
    assert task_graph([1.0], []).earliest_s == 0.0


@pytest.mark.parametrize("engine", ["simpy", "compiled"])
def test_a_latency_below_the_clocks_resolution_ends(engine):
    """It ends at the very time at which another has ended within the same instant."""
    tasks = [{}, {"start_s": UNIX_S, "latency_s": 1e-6}, {"start_s": UNIX_S + 1e-6, "latency_s": 1e-9}]
    schedule = simulate(task_graph([1.0], tasks), engine=engine)

    assert schedule.end_s == pytest.approx([1.0, UNIX_S + 1, UNIX_S + 1], rel=1e-12)
