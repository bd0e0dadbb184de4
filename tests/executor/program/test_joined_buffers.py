"""Which sums join one buffer: by hand, from the sizes of the layers of a known network."""

import pytest
from plans import cluster_of, program_of

from executor.program.buckets import MOST_JOIN_BYTES, gradient_buckets, largest_bucket_bytes
from executor.program.messages import region_messages_of
from executor.program.rank_program import RankProgram
from executor.runtime.run_options import JOIN_BYTES
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        # Mbyte: fc3 0.02, fc2 1.05, fc1 2.10, conv5 2.36, conv4 3.54, conv3 2.66, conv2 1.23, conv1 0.02
        (2, ["fc3 fc2 fc1", "conv5", "conv4", "conv3", "conv2 conv1"]),  # up to 4.19, at the end up to 2.10
        (4, ["fc3 fc2 fc1 conv5", "conv4 conv3 conv2 conv1"]),  # up to 16.8, at the end up to 8.39
    ],
)
def test_gradients_join_up_to_a_size_and_the_last_up_to_half(replicas, expected):
    graph = load_model("alexnet-cifar", batch=16)
    program = program_of(CostModel(graph, cluster_of("titanx-4", replicas)), named_strategy("data", graph, replicas))
    for rank in range(replicas):
        groups = gradient_buckets(RankProgram(program, rank, region_messages_of(program)), JOIN_BYTES)
        assert [" ".join(graph.layers[chains[0].layer].name for chains in group) for group in groups] == expected


def test_more_replicas_join_more_up_to_a_bound():
    assert [largest_bucket_bytes(JOIN_BYTES, count) / 2**20 for count in (2, 4, 5, 64)] == [4, 16, 25, 25]
    assert largest_bucket_bytes(2.0 * MOST_JOIN_BYTES, 4) == 2.0 * MOST_JOIN_BYTES
    assert largest_bucket_bytes(0.0, 8) == 0.0
