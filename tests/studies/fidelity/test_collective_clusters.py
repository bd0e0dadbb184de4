"""Clusters that stand for measured systems: collectives that nothing was fitted to, against sums by hand."""

import pytest

from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import routes_of_cluster
from studies.fidelity.collective_times import judged_cluster

SIZE = 2.0**30


@pytest.mark.parametrize(
    ("spec", "busiest_share", "gbyte_per_s"),
    [
        # Every rank sends half of its buffer to the other machine through a thread of its own.
        ("polaris:nodes=2,link.slingshot.transport=sockets", 0.5, 1.5),
        # Three of four GPUs have the first card as near as the other or nearer: it carries the halves of three.
        ("polaris:nodes=2", 1.5, 18.0),
    ],
)
def test_an_all_to_all_leaves_a_machine_by_the_threads_or_the_nearest_cards(spec, busiest_share, gbyte_per_s):
    seconds = library_collective_s(routes_of_cluster(judged_cluster(spec)), "all-to-all", tuple(range(8)), SIZE)
    assert seconds == pytest.approx(busiest_share * SIZE / (gbyte_per_s * 1e9), rel=0.01)
