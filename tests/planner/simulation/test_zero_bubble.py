"""ZB-H1 against 1F1B, lowered and simulated: the same work, a smaller bubble."""

import numpy as np
import pytest
from plans import cluster_of

from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.search.pipeline_strategy import Pipeline, pipeline_strategy
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import spaces_of


def pipeline(model, batch, stages, micro_batches, schedule):
    """Program of one iteration on machines of four P100."""
    graph, cluster = load_model(model, batch=batch), cluster_of("p100-4x4", stages)
    costs = CostModel(graph, cluster, "ring")
    asked = Pipeline(schedule=schedule, stages=stages, micro_batches=micro_batches)
    strategy, micro_batching = pipeline_strategy(costs, asked)
    return lower(costs, spaces_of(graph, strategy, stages), micro_batching=micro_batching), micro_batching


@pytest.mark.parametrize(("model", "batch", "stages", "micro_batches"), [("vgg16", 32, 4, 8), ("resnet18", 64, 4, 8)])
def test_the_bubble_is_smaller_and_the_work_the_same(model, batch, stages, micro_batches):
    """One iteration alone, cut at the same layers."""
    plain, micro_batching = pipeline(model, batch, stages, micro_batches, "1f1b")
    ours, same = pipeline(model, batch, stages, micro_batches, "zero-bubble")
    assert same.stages == micro_batching.stages
    for kind in np.unique(plain.kind):
        assert np.allclose(np.sort(plain.work_s[plain.kind == kind]), np.sort(ours.work_s[ours.kind == kind]))
    assert ours.moved_bytes == plain.moved_bytes
    spans = {name: replay(p, iterations=1).schedule.makespan_s for name, p in (("1f1b", plain), ("zb", ours))}
    busiest = max(np.bincount(plain.device[plain.is_compute], plain.work_s[plain.is_compute]))
    bubbles = {name: span - busiest for name, span in spans.items()}
    assert 0 < bubbles["zb"] < bubbles["1f1b"]
