"""Both engines against a simulator that shares nothing with them but the meaning."""

import numpy as np
from fluid_reference import reference_schedule
from hypothesis import given, settings, strategies as st
from task_graphs import task_graph

from simulator.engines.engine import simulate

TENTHS = st.integers(1, 60).map(lambda tenths: tenths / 10)
SMALL = st.integers(1, 4).map(float)


@st.composite
def decimal_graphs(draw):
    """Graphs of short decimals: what meets at one instant does so exactly."""
    resources, number = draw(st.integers(0, 5)), draw(st.sampled_from([TENTHS, SMALL]))
    weight = st.sampled_from([1.0, 1.0, 0.5, 2.0, 0.3])
    task = st.fixed_dictionaries(
        {"work": st.one_of(number, number, st.just(0.0))},
        optional={
            "uses": st.dictionaries(st.integers(0, resources - 1), weight, max_size=3) if resources else st.just({}),
            "latency_s": st.sampled_from([0.5, 0.1, 1.0]),
            "start_s": st.sampled_from([1.0, 0.3, 2.5]),
            "rate_limit": st.sampled_from([0.5, 1.0, 0.1]),
            "priority": st.integers(-1, 1),
            "stream": st.integers(0, 2),
        },
    )
    tasks = draw(st.lists(task, max_size=14))
    for i, drawn in enumerate(tasks):
        drawn["after"] = draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else ()
    capacity = draw(st.lists(number, min_size=resources, max_size=resources))
    return task_graph(capacity, tasks, exclusive=draw(st.sets(st.integers(0, max(resources - 1, 0)), max_size=2)))


@settings(max_examples=20)
@given(graph=decimal_graphs())
def test_engines_agree_with_the_reference(graph):
    """To 1e-9 on every time of every task."""
    expected = reference_schedule(graph)

    for engine in ("simpy", "compiled"):
        schedule = simulate(graph, engine=engine)
        for name in ("ready_s", "start_s", "end_s"):
            times_s = np.array(getattr(expected, name), dtype=float)
            np.testing.assert_allclose(getattr(schedule, name), times_s, rtol=1e-9, atol=0, err_msg=f"{engine} {name}")
