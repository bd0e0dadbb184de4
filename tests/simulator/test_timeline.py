"""Use of resources, lower bounds, and unions of intervals."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from task_graphs import task_graph, task_graphs

from simulator.engines.engine import simulate
from simulator.timelines.timeline import busiest_resource, longest_path_s, lower_bound, resource_use, union


def test_use_of_a_shared_link_by_hand():
    """Two flows share a link for 2 s; one goes on to 3 s; the other link is half used by it."""
    graph = task_graph([1.0, 2.0], [{"work": 1.0, "uses": {0: 1.0}}, {"work": 2.0, "uses": {0: 1.0, 1: 1.0}}])
    schedule = simulate(graph)

    use = resource_use(graph, schedule, np.array([0.0, 2.0, 3.0, 5.0]))

    # The longer flow counts as even, 2/3 B/s over 3 s.
    assert use == pytest.approx(np.array([[1 / 2 + 2 / 3, 2 / 3, 0], [1 / 3, 1 / 3, 0]]))


@settings(max_examples=35, deadline=None)
@given(graph=task_graphs(), bins=st.integers(1, 9))
def test_use_adds_up_to_what_was_moved(graph, bins):
    """Conservation, whatever the bins."""
    schedule = simulate(graph)
    edges_s = np.linspace(0.0, schedule.makespan_s + 1.0, bins + 1)

    moved = (resource_use(graph, schedule, edges_s) * np.diff(edges_s)).sum(axis=1) * graph.capacity

    owner = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    asked = np.bincount(graph.use_resource, graph.use_weight * graph.work[owner], minlength=len(graph.capacity))
    assert moved == pytest.approx(asked, rel=1e-9, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(graph=task_graphs(), window=st.tuples(st.floats(0, 5), st.floats(0.1, 5)))
def test_use_in_a_window_is_that_of_finer_bins(graph, window):
    schedule = simulate(graph)
    fine = np.linspace(window[0], window[0] + window[1], 13)

    whole, parts = (resource_use(graph, schedule, edges_s) for edges_s in (fine[[0, -1]], fine))

    assert parts.mean(axis=1) == pytest.approx(whole[:, 0], rel=1e-9, abs=1e-9)


def test_bounds_by_hand():
    """Chain 0.5 + 1 then 2 / 2; the first link carries 1 + 1 at 1, which is more than neither."""
    tasks = [
        {"work": 1.0, "uses": {0: 1.0}, "latency_s": 0.5},
        {"work": 2.0, "uses": {1: 1.0}, "after": [0], "rate_limit": 2.0},
        {"work": 1.0, "uses": {0: 1.0}},
    ]
    graph = task_graph([1.0, 4.0], tasks)

    assert longest_path_s(graph) == pytest.approx(2.5)
    assert busiest_resource(graph) == (0, pytest.approx(2.0))
    assert lower_bound(graph).reason.startswith("longest path")


def test_exclusive_resource_is_held_while_another_limits():
    """Each transfer holds the port 1 s though the port alone would take 0.1 s."""
    graph = task_graph([10.0, 1.0, 1.0], [{"uses": {0: 1.0, link: 1.0}} for link in (1, 2)], exclusive=[0])

    bound = lower_bound(graph)

    assert bound.seconds == pytest.approx(2.0)
    assert bound.reason == "busiest resource: link0"
    assert simulate(graph).makespan_s == pytest.approx(bound.seconds)


def test_no_resources_no_busiest():
    assert busiest_resource(task_graph([], [{"work": 1.0}])) == (-1, 0.0)


@given(rows=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=20))
def test_union_equals_the_set_of_covered_units(rows):
    start = np.array([row[0] for row in rows], dtype=float)
    end = start + np.array([row[1] for row in rows], dtype=float)

    starts, ends = union(start, end)

    covered = {unit for row in rows for unit in range(row[0], row[0] + row[1])}
    assert {unit for a, b in zip(starts, ends, strict=True) for unit in range(int(a), int(b))} == covered
    assert np.all(starts[1:] > ends[:-1])
