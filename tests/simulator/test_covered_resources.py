"""Resources that the compiled engine leaves out: against the rule by sets, and without any effect on schedules."""

import numpy as np
from hypothesis import given, settings, strategies as st
from task_graphs import task_graph, task_graphs

import simulator.compiled.initial as initial
from simulator.compiled.covered import covered_resources
from simulator.engines.engine import simulate

COLUMNS = ("use_start", "use_resource", "use_weight", "capacity", "exclusive")
NAMES = ("ready_s", "start_s", "end_s")


@st.composite
def routed_graphs(draw):
    """Messages over chains of links, some of which no message crosses apart."""
    chains = [[0, 1, 2], [1, 2], [2, 3], [4, 5, 3], [4, 5], [6]]
    weights = st.sampled_from([1.0, 1.0, 2.0])
    tasks = []
    for i in range(draw(st.integers(1, 20))):
        route = draw(st.sampled_from(chains)) + draw(st.sampled_from([[], [7, 8]]))
        tasks.append(
            {
                "work": draw(st.floats(0.5, 4)),
                "uses": {link: draw(weights) for link in route},
                "start_s": draw(st.sampled_from([0.0, 1.0])),
                "priority": draw(st.integers(0, 1)),
                "after": draw(st.sets(st.integers(0, i - 1), max_size=1)) if i else (),
            }
        )
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=9, max_size=9))
    return task_graph(capacity, tasks, exclusive=draw(st.sets(st.integers(0, 8), max_size=4)))


def may_cover(graph, q, r):
    """Whether resource q covers r, by the rule: sets of users and the rates that both leave them."""
    seconds = [{}, {}]
    for resource, rows in zip((q, r), seconds, strict=True):
        for task, used, weight in zip(graph.use_owners, graph.use_resource, graph.use_weight, strict=True):
            if used == resource:
                rows[task] = weight / graph.capacity[resource]
    if not seconds[1] or not seconds[1].keys() <= seconds[0].keys():
        return False
    tighter = all(seconds[0][task] >= seconds[1][task] for task in seconds[1])
    return bool(graph.exclusive[q] or (tighter and not graph.exclusive[r]))


@settings(max_examples=15, deadline=None)
@given(graph=st.one_of(task_graphs(), routed_graphs()))
def test_every_covered_resource_has_one_that_stays(graph):
    covered = covered_resources(*(getattr(graph, name) for name in COLUMNS))
    everyone = range(len(graph.capacity))
    for r in everyone:
        others = [q for q in everyone if q != r and may_cover(graph, q, r)]
        assert covered[r] == any(not covered[q] for q in others)


@settings(max_examples=15, deadline=None)
@given(graph=st.one_of(task_graphs(), routed_graphs()))
def test_schedules_are_the_same_with_all_resources(graph):
    fast, known = simulate(graph, engine="compiled"), initial.covered_resources
    try:
        initial.covered_resources = lambda *arrays, in_python: np.zeros(len(arrays[3]), dtype=np.bool_)
        whole = simulate(graph, engine="compiled")
    finally:
        initial.covered_resources = known
    clear = simulate(graph, engine="simpy")
    for name in NAMES:
        np.testing.assert_allclose(getattr(fast, name), getattr(whole, name), rtol=1e-12, atol=0, err_msg=name)
        np.testing.assert_allclose(getattr(fast, name), getattr(clear, name), rtol=1e-9, atol=0, err_msg=name)
