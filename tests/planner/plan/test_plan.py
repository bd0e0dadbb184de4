"""Plans: made, priced, lowered again; and the choice among the layer-wise optimum and the usual strategies."""

import dataclasses
import pickle
from itertools import cycle

import pytest
from hypothesis import given, settings
from plans import cluster_of, inception_module, program_of, questions, residual_block

from groundwork.errors import ConfigError, InfeasiblePlanError
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.layerwise_choice import NoCandidateFitsError, layerwise
from planner.plan.lowered_plan import lower_plan, lowered
from planner.plan.make_plan import make_plan
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.collectives.schemes import ALL_REDUCES


def lenet5():
    return load_model("lenet5", batch=8)


@settings(max_examples=8)
@given(questions())
def test_additive_cost_is_the_sum_of_the_tables(question):
    """Node by node and layout by layout, against the search's own evaluation."""
    model, strategy = question
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    total_s = sum(float(model.node_costs(i, space).total_s[0]) for i, space in enumerate(spaces))
    for edges in model.graph.consumers:
        asked = {}
        for edge in edges:
            layout = int(model.transfer_times.layouts(edge, spaces[edge.consumer])[0])
            asked[layout] = model.transfer_times.table(edge, spaces[edge.producer], spaces[edge.consumer])[0, 0]
        total_s += sum(asked.values())

    assert additive_s(model, strategy) == pytest.approx(total_s, rel=1e-12)


@pytest.mark.parametrize(
    ("strategy", "gradient_sync"), list(zip([*NAMED, "layerwise"], cycle(["ring", "ps"]), strict=False))
)
def test_a_plan_says_what_its_program_takes(strategy, gradient_sync):
    graph, cluster = lenet5(), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy=strategy, gradient_sync=gradient_sync)
    program = lower_plan(plan, graph, cluster)

    assert replay(program).iteration_s == plan.simulated_s
    assert replay(program, overlap=False, contention=False).iteration_s == pytest.approx(plan.additive_s, rel=1e-9)
    assert set(plan.configurations) == set(graph.index)
    assert (plan.model, plan.batch, plan.strategy, plan.gradient_sync) == ("lenet5", 8, strategy, gradient_sync)
    assert (plan.model_digest, plan.cluster_digest) == (graph.digest, cluster.digest)
    assert plan.costs_digest == CostModel(graph, cluster).compute_times.digest
    assert (plan.width > 0) == (strategy == "layerwise")


@pytest.mark.parametrize(("case", "gradient_sync"), list(enumerate(list(ALL_REDUCES)[::2])))
def test_layerwise_is_never_worse(case, gradient_sync):
    """By Eq. 1 the search beats every named strategy; by simulation the choice among them does."""
    make, count = ((lenet5, 6), (inception_module, 8), (residual_block, 4))[case % 3]
    graph, cluster = make(), cluster_of("p100-4x4", count)
    model = CostModel(graph, cluster, gradient_sync)
    found, best, notes = layerwise(model)
    known = {}
    for name in NAMED:
        try:
            known[name] = named_strategy(name, graph, len(cluster.devices))
        except ConfigError:
            assert any(note.startswith(f"{name} is no candidate: batch must be") for note in notes)
    assert set(known) >= {"model", "spatial"}
    for strategy in known.values():
        assert found.cost_s <= additive_s(model, strategy) * (1 + 1e-9)
        assert best.simulated_s <= replay(program_of(model, strategy)).iteration_s
    assert additive_s(model, found.strategy) == pytest.approx(found.cost_s, rel=1e-9)
    assert best.simulated_s == replay(program_of(model, best.strategy)).iteration_s
    finding = f"Layer-wise search found nothing faster than {best.name} "
    assert (best.name == "layerwise") != any(note.startswith(finding) for note in notes)


def test_progress_is_told():
    told = []
    make_plan(lenet5(), cluster_of("titanx-4", 2), progress=lambda *row: told.append(row))

    assert told[0][0] == "searching"
    assert {label for label, _, _ in told} >= {"simulating layerwise"}
    assert all(0 <= done < total for _, done, total in told)


def test_a_plan_for_another_model_is_refused():
    cluster = cluster_of("titanx-4", 2)
    plan = make_plan(lenet5(), cluster, strategy="data")
    for other in (load_model("lenet5", batch=16), load_model("lenet5:classes=11", batch=8), inception_module()):
        with pytest.raises(ConfigError, match=f"made for another lenet5 with batch 8: .*{plan.model_digest}"):
            lower_plan(plan, other, cluster)


def test_a_plan_of_layers_that_are_not_there_is_refused():
    cluster = cluster_of("titanx-4", 2)
    plan = make_plan(lenet5(), cluster, strategy="data")
    known = dict(plan.configurations)
    changed = dataclasses.replace(plan, configurations={**known, "conv99": known["conv1"]})
    with pytest.raises(ConfigError, match="configurations must be of layers of lenet5, got 'conv99'"):
        lower_plan(changed, lenet5(), cluster)


def test_a_plan_for_more_devices_is_refused():
    plan = make_plan(lenet5(), cluster_of("titanx-4", 4), strategy="data")
    with pytest.raises(ConfigError, match="degrees multiply to 4 parts, the cluster has 2 devices"):
        lower_plan(plan, lenet5(), cluster_of("titanx-4", 2))


@pytest.mark.parametrize("strategy", ["data", "layerwise"])
def test_bad_names_are_refused(strategy):
    with pytest.raises(ConfigError, match="strategy must be one of"):
        make_plan(lenet5(), cluster_of("titanx-4", 2), strategy="datta")
    with pytest.raises(ConfigError, match=r"gradient_sync must be one of ring, .*got 'rings'"):
        make_plan(lenet5(), cluster_of("titanx-4", 2), strategy=strategy, gradient_sync="rings")


def test_what_does_not_fit_is_refused():
    """A million samples of LeNet-5 are too many for every strategy on two devices."""
    graph, cluster = load_model("lenet5", batch=2**20), cluster_of("titanx-4", 2)
    model = CostModel(graph, cluster)
    with pytest.raises(InfeasiblePlanError, match=r"needs [0-9.]+ GiB, the device has 12\.00 GiB"):
        lowered(model, named_strategy("data", graph, 2))
    with pytest.raises(InfeasiblePlanError, match=r"layerwise: plan does not fit .* neither do the candidates data, "):
        make_plan(graph, cluster)


def test_without_other_candidates_none_is_said_not_to_fit():
    refused = {"layerwise": InfeasiblePlanError("plan does not fit")}
    assert str(NoCandidateFitsError(refused)) == "layerwise: plan does not fit"


@pytest.mark.parametrize("strategies", [["layerwise"], []])
def test_refusals_survive_a_pickle(strategies):
    """Sweeps compute in other processes; a copy knows the changes that were found before, and searches for none."""
    graph, cluster = load_model("lenet5", batch=2**22), cluster_of("titanx-4", 2)
    with pytest.raises(InfeasiblePlanError) as caught:
        make_plan(graph, cluster, strategy=strategies[0]) if strategies else compare(graph, cluster, ["data"])
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert (again.brief, again.needed_bytes) == (caught.value.brief, caught.value.needed_bytes)
    assert getattr(again, "batch", None) == getattr(caught.value, "batch", None)
    assert "that was tried" not in str(again)
    told = str(caught.value)  # now it has searched
    assert str(pickle.loads(pickle.dumps(caught.value))) == told
