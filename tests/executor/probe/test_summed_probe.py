"""Slices of sums as they are measured: whole sums in their place in profiles, themselves beside runs."""

import pytest

from executor.probe.parts_to_measure import divided_parts, strategy_parts
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.supervision.status_board import own_status
from executor.validation.part_samples import PartSamples
from executor.validation.planned_variants import with_samples
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.plan.lowered_plan import lowered
from planner.strategies.named_strategies import named_strategy


def test_profiles_measure_whole_sums_in_place_of_slices():
    graph = load_model("lenet5", batch=8)
    [(own, parts)] = divided_parts(graph, ["channel"], 2, most=100)
    assert own is graph
    sizes = {graph.layers[part.index].name: part.sizes for part in parts}
    assert sizes["conv1"] == (8, 10, 24, 24)
    assert sizes["conv2"] == (8, 50, 8, 8)
    assert all(part.space.sums[0] == part.space.completed[0] == 1 for part in parts)
    plain = strategy_parts(graph, ["filter"], 2, most=100)
    both = strategy_parts(graph, ["filter", "channel"], 2, most=100)
    assert len(both) == len({(part.index, part.sizes) for part in [*plain, *parts]})
    with pytest.raises(ConfigError, match="max_parts must be at least"):
        divided_parts(graph, ["channel"], 2, most=3)


def test_samples_are_the_lengths_of_the_tasks_of_slices():
    graph, cluster = load_model("lenet5", batch=8), load_cluster("titanx-4")
    program = lowered(CostModel(graph, cluster), named_strategy("channel", graph, 2))
    rows = []
    for rank in (0, 1):
        samples = PartSamples(program, rank, CpuDevice(), own_status(rank), OptimizerSpec())
        samples.prepare()
        samples.sample()
        rows += samples.rows()
    priced = with_samples(program, rows)
    assert (priced.work_s[priced.is_compute] > 0).all()
    slices = program.spaces[graph.index["fc1"]].completed[0]
    assert slices == 2
