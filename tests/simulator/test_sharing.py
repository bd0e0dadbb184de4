"""The reference solver carries a certificate: every flow has a bottleneck."""

import numpy as np
import pytest
from hypothesis import given
from task_graphs import task_graphs

from simulator.graph.sharing import alone_rates, max_min_rates


def solve(graph):
    flow = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    uses = {"capacity": graph.capacity, "flow": flow, "resource": graph.use_resource, "weight": graph.use_weight}
    alone = alone_rates(**uses, rate_limit=graph.rate_limit)
    return flow, alone, max_min_rates(**uses, rate_limit=alone, priority=graph.priority)


@given(graph=task_graphs())
def test_every_flow_is_at_its_limit_or_at_a_bottleneck(graph):
    """A bottleneck is full, and nobody of the same or a lower class gets more there.

    Feasible rates with such a certificate are the max-min fair ones: Bertsekas and Gallager, "Data
    Networks", 2nd ed., Sec. 6.5.2.
    """
    flow, alone, rate = solve(graph)
    used = np.bincount(graph.use_resource, graph.use_weight * rate[flow], minlength=len(graph.capacity))
    assert np.all(used <= graph.capacity * (1 + 1e-9))
    assert np.all(rate <= alone * (1 + 1e-9))
    full = used >= graph.capacity * (1 - 1e-9)
    for i in range(graph.size):
        resources = graph.use_resource[graph.use_start[i] : graph.use_start[i + 1]]
        at_bottleneck = any(
            full[r]
            and all(
                rate[other] <= rate[i] + 1e-9 * graph.capacity[r]
                for other in flow[graph.use_resource == r]
                if graph.priority[other] <= graph.priority[i]
            )
            for r in resources
        )
        assert at_bottleneck or rate[i] >= alone[i] * (1 - 1e-9)


def test_textbook_example():
    """Bertsekas and Gallager, Fig. 6.10 in our words: three links, five flows, 1/3 1/3 1/3 2/3 1."""
    flow = np.array([0, 1, 2, 2, 3, 4])
    resource = np.array([0, 0, 0, 1, 1, 2])
    uses = {"capacity": np.ones(3), "flow": flow, "resource": resource, "weight": np.ones(6)}

    rate = max_min_rates(**uses, rate_limit=np.full(5, np.inf), priority=np.zeros(5, dtype=np.int64))

    assert rate == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3, 1.0])
