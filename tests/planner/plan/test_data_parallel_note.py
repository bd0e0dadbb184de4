"""The sentence that says where data parallelism ties with the best."""

import re

import pytest
from plans import star

from planner.models.registry import load_model
from planner.plan.compare_strategies import compare


def exposed_share(batch, bandwidth):
    graph, cluster = load_model("alexnet", batch=batch), star(4, bandwidth=bandwidth)
    comparison = compare(graph, cluster, ["data"])
    (data,) = comparison.strategies
    return data.exposed_communication_s / data.simulated_s, comparison.notes[-1]


def test_the_batch_that_it_names_is_the_first_that_hides_the_sums():
    share, note = exposed_share(64, 5e9)
    named = int(re.search(r"from batch ([0-9,]+) on", note)[1].replace(",", ""))
    assert share > 0.05
    assert exposed_share(named // 2, 5e9)[0] > 0.05 >= exposed_share(named, 5e9)[0]


@pytest.mark.parametrize(
    ("bandwidth", "rule"),
    [
        (1e12, r"data hides its gradient synchronisation \(.* ms\) under the backward pass(: no|, all but [^0])"),
        (1e6, "even at batch 4,096 it does not|at every larger batch"),
    ],
)
def test_it_says_that_all_is_hidden_or_that_nothing_helps(bandwidth, rule):
    assert re.search(rule, exposed_share(64, bandwidth)[1])


def test_without_data_parallelism_there_is_nothing_to_say():
    assert compare(load_model("lenet5", batch=64), star(4), ["owt"]).notes == ()
