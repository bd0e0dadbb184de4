"""A small network of experts: divided training is that of the undivided network, rows travel to experts and back."""

import numpy as np
import pytest
from mesh_runs import RANKS, check_equal, random_mesh_strategy, trained
from plans import program_of, star
from ranks import pool_of
from small_experts import graph

from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.strategies.named_strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(120)

ranks = pool_of(RANKS)


def model():
    return CostModel(graph(), star(RANKS), "ring", "reduced")


@pytest.fixture(scope="module")
def expected(ranks):
    """Losses, parameters and momentum of the undivided network."""
    programs = [program_of(model(), named_strategy("data", graph(), 1))]
    losses, (parameters, *_), (momentum, *_), _ = next(trained(ranks, programs))
    return losses, parameters, momentum


def test_named_strategies(ranks, expected):
    """Experts over devices that split samples elsewhere, beside other axes and in stages; three of four experts."""
    names = ("expert=4", "data=2,expert=2", "expert=2,tensor=2", "context=2,expert=2")
    names += ("tensor=2,sequence", "tensor=3", "expert=2,tensor=2,slicing", "data=2,tensor=2,slicing")
    names += ("tensor=3,slicing", "tensor=4,sequence,slicing", "context=2,tensor=2,slicing")
    programs = {name: program_of(model(), named_strategy(name, graph(), RANKS)) for name in names}
    for name in ("pipeline=2,expert=2", "pipeline=2,tensor=2"):
        stages = Pipeline(stage_at=("experts.gate",))  # two layers read the norm of the stage before
        strategy, micro = strategy_and_micro_batching(model(), name, pipeline=stages)
        programs[name] = lower(model(), spaces_of(graph(), strategy, RANKS), micro_batching=micro)
    check_equal(ranks, expected, programs)
    kinds = [each.kind for each in programs["expert=4"].collectives.values()]
    assert kinds.count("all-to-all") == 6, "rows, and weights of their sums, to the experts and back, and gradients"


def test_random_splits(ranks, expected):
    strategies = [random_mesh_strategy(graph(), np.random.default_rng(seed)) for seed in range(3)]
    programs = {f"seed {seed}": program_of(model(), strategy) for seed, strategy in enumerate(strategies)}
    check_equal(ranks, expected, programs)
