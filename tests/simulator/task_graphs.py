"""Small task graphs for the tests: written by hand, and drawn at random."""

import numpy as np
from hypothesis import strategies as st

from simulator.graph.task_graph import TaskGraph, pack_rows


def task_graph(capacity, tasks, *, exclusive=()):
    """Task graph from dicts with work, uses, after, latency_s, start_s, rate_limit, priority, stream."""

    def column(key, default, dtype=float):
        return np.array([task.get(key, default) for task in tasks], dtype=dtype)

    use_start, use_resource = pack_rows([list(task.get("uses", {})) for task in tasks])
    after_start, after = pack_rows([task.get("after", ()) for task in tasks])
    return TaskGraph(
        resource_names=tuple(f"link{r}" for r in range(len(capacity))),
        capacity=np.array(capacity, dtype=float),
        exclusive=np.isin(np.arange(len(capacity)), list(exclusive)),
        work=column("work", 1.0),
        latency_s=column("latency_s", 0.0),
        start_s=column("start_s", 0.0),
        rate_limit=column("rate_limit", np.inf),
        priority=column("priority", 0, np.int64),
        stream=column("stream", -1, np.int64),
        use_start=use_start,
        use_resource=use_resource,
        use_weight=np.array([weight for task in tasks for weight in task.get("uses", {}).values()], dtype=float),
        after_start=after_start,
        after=after,
    )


@st.composite
def task_graphs(draw, *, max_tasks=24, max_resources=6, priorities=True, exclusive=True):
    """Task graphs with many ties (small whole numbers) or few (floats)."""
    number = st.integers(1, 4).map(float) if draw(st.booleans()) else st.floats(0.1, 10)
    resources = draw(st.integers(1, max_resources))
    uses = st.dictionaries(st.integers(0, resources - 1), st.sampled_from([1.0, 1.0, 0.5, 2.0, 0.3]), max_size=3)
    task = st.fixed_dictionaries(
        {
            "work": st.one_of(number, number, st.just(0.0)),
            "uses": uses,
            "latency_s": st.sampled_from([0.0, 0.0, 0.5, 0.1]),
            "start_s": st.sampled_from([0.0, 0.0, 0.0, 1.0, 0.3]),
            "rate_limit": st.sampled_from([np.inf, np.inf, 0.5, 1.0, 0.1]),
            "priority": st.integers(0, 2) if priorities else st.just(0),
            "stream": st.sampled_from([-1, -1, 0, 1]),
        }
    )
    tasks = draw(st.lists(task, min_size=1, max_size=max_tasks))
    for i, drawn in enumerate(tasks):
        drawn["after"] = draw(st.sets(st.integers(0, i - 1), max_size=2)) if i else ()
    capacity = draw(st.lists(number, min_size=resources, max_size=resources))
    ports = draw(st.sets(st.integers(0, resources - 1), max_size=2)) if exclusive else ()
    return task_graph(capacity, tasks, exclusive=ports)
