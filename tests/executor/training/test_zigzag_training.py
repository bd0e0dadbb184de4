"""Positions in zigzag order: training is that of the undivided network, with its dropout and places of words."""

import pytest
from mesh_runs import RANKS, check_equal, trained
from plans import program_of, star
from ranks import pool_of
from undivided import wide

from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.strategies.degrees import ordered_graph
from planner.strategies.named_strategies import named_strategy, spaces_of

pytestmark = pytest.mark.timeout(120)

ranks = pool_of(RANKS)

MODELS = {
    "learned places and dropout": "gpt2:layers=2,hidden=16,heads=4,words=11,sequence=8",
    "rotary places": "llama-1b:layers=2,hidden=16,heads=4,kv_heads=2,ffn=12,words=11,sequence=16",
}
NAMES = {
    "learned places and dropout": ("context=4,zigzag", "data=2,context=2,zigzag", "pipeline=2,context=2,zigzag"),
    "rotary places": ("context=2,zigzag", "context=2,tensor=2,sequence,zigzag"),
}


def program(graph, name):
    prices = CostModel(ordered_graph(graph, name), star(RANKS), "ring", "reduced")
    if "pipeline" not in name:
        return program_of(prices, named_strategy(name, graph, RANKS))
    strategy, micro = strategy_and_micro_batching(prices, name)
    return lower(prices, spaces_of(graph, strategy, RANKS), micro_batching=micro)


@pytest.mark.parametrize("model", MODELS)
def test_training_is_that_of_positions_as_they_are(ranks, model):
    graph = wide(load_model(MODELS[model], batch=4))
    programs = {name: program(graph, name) for name in NAMES[model]}
    assert all(each.graph.zigzag > 1 for each in programs.values())
    losses, (parameters, *_), (momentum, *_), _ = next(trained(ranks, [program(graph, "data=1")]))
    check_equal(ranks, (losses, parameters, momentum), programs)
