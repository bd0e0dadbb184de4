"""The chain that a makespan follows from."""

import pytest
from hypothesis import given, settings
from task_graphs import task_graph, task_graphs

from simulator.engines.engine import simulate
from simulator.timelines.path_analysis import critical_path


def reasons(graph):
    return [(step.task, step.reason) for step in critical_path(graph, simulate(graph))]


def test_dependency_stream_and_start():
    tasks = [
        {"work": 1.0, "start_s": 0.5, "stream": 0},
        {"work": 1.0, "stream": 0},
        {"work": 1.0, "after": [1], "latency_s": 0.25},
        {"work": 0.5},
    ]
    graph = task_graph([], tasks)

    assert reasons(graph) == [(0, "start"), (1, "stream"), (2, "dependency")]
    assert critical_path(graph, simulate(graph))[2].latency_s == pytest.approx(0.25)


def test_exclusive_port_leads_to_its_holder():
    graph = task_graph([1.0], [{"uses": {0: 1.0}}, {"uses": {0: 1.0}}], exclusive=[0])

    assert reasons(graph) == [(0, "start"), (1, "resource")]


def test_sharing_is_a_wait_at_the_resource_that_is_shared():
    """Both links of flow 0 are used by others, the second by more."""
    tasks = [
        {"work": 2.0, "uses": {0: 1.0, 1: 1.0}},
        {"work": 0.1, "uses": {0: 1.0}},
        {"work": 1.0, "uses": {1: 1.0}},
    ]
    step = critical_path(graph := task_graph([1.0, 1.0], tasks), simulate(graph))[-1]

    assert (step.task, step.resource) == (0, 1)
    assert (step.work_s, step.wait_s) == pytest.approx((2.0, 1.0))


def test_a_wait_is_at_the_fullest_resource_not_at_that_which_others_use_most():
    """Four copies over two ports, half of whose bytes cross one link, which more of them share: the ports are full."""
    tasks = [{"work": 1.0, "uses": {task // 2: 1.0, 2: 0.5}} for task in range(4)]

    def makespan_s(port, link):
        return simulate(task_graph([port, port, link], tasks)).makespan_s

    (step,) = critical_path(graph := task_graph([4.5, 4.5, 6.0], tasks), simulate(graph))
    assert step.resource == step.task // 2
    assert makespan_s(9.0, 6.0) < makespan_s(4.5, 6.0) == pytest.approx(2 / 4.5)
    assert makespan_s(4.5, 12.0) == pytest.approx(makespan_s(4.5, 6.0))


@settings(max_examples=25, deadline=None)
@given(graph=task_graphs())
def test_steps_add_up_to_the_makespan(graph):
    schedule = simulate(graph)

    steps = critical_path(graph, schedule)

    parts_s = sum(step.latency_s + step.wait_s + step.work_s for step in steps)
    first_s = schedule.ready_s[steps[0].task]
    assert first_s + parts_s == pytest.approx(schedule.makespan_s, rel=1e-9, abs=1e-9)
    assert first_s == graph.start_s[steps[0].task]
    assert steps[0].reason == "start"
    assert len({step.task for step in steps}) == len(steps)


def test_empty_graph_has_no_path():
    graph = task_graph([1.0], [])
    assert critical_path(graph, simulate(graph)) == []
