"""The pipeline's form by stages: against a plain loop, its limits, and the replay of plans."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from plans import cluster_of

from planner.models.registry import load_model
from planner.simulation.program_replay import replay
from studies.oracle.cases import case_of, inputs_of
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.pipelines import pipeline_makespan_s
from studies.oracle.projection import oracle
from studies.oracle.simulated_cases import program_of_case

STAGES = {"gradients": "layers", "activations": "direct", "pipeline": "stages"}


def by_loops(forward, backward, update, transfer, segments, behind):
    """Micro-batch by micro-batch, each once it has come and its stage is free; backward in two pieces of work."""
    stages = range(len(forward))
    free, came = [0.0 for _ in stages], [0.0] * segments
    for k in stages:
        for m in range(segments):
            free[k] = max(free[k], came[m]) + forward[k]
            came[m] = free[k] + (transfer[k] if k + 1 < len(forward) else 0.0)
    came = [free[-1]] * segments
    for k in reversed(stages):
        for turn, m in enumerate(reversed(range(segments))):
            handed = max(free[k], came[m]) + backward[k, turn] - behind[k, turn]
            free[k], came[m] = handed + behind[k, turn], handed + (transfer[k - 1] if k else 0.0)
    return max(free[k] + update[k] for k in stages)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**32))
def test_the_makespan_is_that_of_a_plain_loop(stages, segments, seed):
    rng = np.random.default_rng(seed)
    forward, update, backward = rng.random(stages), rng.random(stages), rng.random((stages, segments))
    transfer, behind = rng.random(stages - 1), backward * rng.random((stages, segments))

    found = pipeline_makespan_s(forward, backward, update, transfer, segments, behind)

    assert found == pytest.approx(by_loops(forward, backward, update, transfer, segments, behind))


@pytest.mark.parametrize(("stages", "segments"), [(1, 1), (1, 8), (4, 1), (4, 8), (16, 32)])
def test_equal_stages_and_free_transfers_are_row_layer(stages, segments):
    """(p + S - 1) (FW + BW) + WU."""
    ones = np.ones(stages)

    found = pipeline_makespan_s(2 * ones, 3 * ones[:, None], 5 * ones, np.zeros(stages - 1), segments)

    assert found == pytest.approx((stages + segments - 1) * 5 + 5)


@pytest.mark.parametrize(
    ("model", "strategy"), [("alexnet", "layer"), ("vgg16", "channel"), ("resnet18", "layer"), ("resnet18", "channel")]
)
def test_stages_and_slices_are_within_five_percent_of_the_replay(model, strategy):
    """With overlap, without which a pipeline would be none, and without contention."""
    graph, cluster = load_model(model, batch=64), cluster_of("abci-v100", 8)
    request = OracleRequest(dataset="imagenet", devices=(8,), strategies=(strategy,), **STAGES)
    table = oracle(graph, cluster, request)
    case = case_of(inputs_of(graph, cluster, request), strategy, 8)

    replayed = replay(
        program_of_case(graph, cluster, case), overlap=strategy == "layer", contention=False, iterations=1
    )

    assert table.rows[0].iteration_s == pytest.approx(replayed.iteration_s, rel=0.05)


def test_stages_one_by_one_are_never_slower_than_the_table():
    """The table pairs the slowest forward with the slowest backward pass, and hides no transfer."""
    graph, cluster = load_model("vgg16", batch=64), cluster_of("abci-v100", 16)
    rows = [
        oracle(
            graph,
            cluster,
            OracleRequest(dataset="imagenet", devices=(2, 4, 8, 16), strategies=("layer",), **options),
        ).rows
        for options in (STAGES, {})
    ]

    assert all(one.iteration_s <= table.iteration_s for one, table in zip(*rows, strict=True))
