"""A comparison's numbers: against each other, against the modules below, and against scipy."""

import json
import math

import pytest
from plans import cluster_of, inception_module

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.memory.peak_memory import peak_by_kind_bytes, peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import lowered
from planner.plan.make_plan import make_plan, request_for, simulated_plan
from planner.plan.no_strategy_fits import NoStrategyFitsError
from planner.plan.plan_file import save_plan
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.simulation.additive_cost import additive_s
from planner.simulation.lower_bound import iteration_bound
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy

EVERY = (*NAMED, "layerwise")


QUESTIONS = {
    "lenet5": lambda: (load_model("lenet5", batch=64), cluster_of("titanx-4", 4)),
    "branches": lambda: (inception_module(), cluster_of("titanx-4", 4)),  # consumers that share a transfer
}


@pytest.fixture(scope="module", params=QUESTIONS)
def question(request):
    return QUESTIONS[request.param]()


@pytest.fixture(scope="module")
def found(question):
    return compare(*question, EVERY)


def test_the_winner_has_the_least_simulated_time(found):
    by_name = {result.name: result for result in found.strategies}

    assert tuple(by_name) == EVERY
    assert by_name[found.winner].expected_s == min(result.expected_s for result in found.strategies)
    assert by_name["layerwise"].simulated_s == by_name[found.winner].simulated_s


def test_terms_of_the_layers_add_up(found):
    """The three terms of Eq. 1 to the additive cost, the bytes of the layers to the bytes moved."""
    for result in found.strategies:
        terms_s = sum(layer.compute_s + layer.gradient_sync_s + layer.transfer_s for layer in result.layers)
        assert terms_s == pytest.approx(result.additive_s, rel=1e-9)
        assert sum(layer.moved_bytes for layer in result.layers) == pytest.approx(result.moved_bytes)
        assert result.timeline["bytes"].sum() == pytest.approx(result.moved_bytes)


def test_shares_add_up(found):
    for result in found.strategies:
        parts = (result.compute_s, result.exposed_communication_s, result.idle_s)
        assert sum(parts) == pytest.approx(result.simulated_s, rel=1e-9)
        assert min(parts) >= -1e-9 * result.simulated_s


def test_the_ladder_and_the_bound(found, question):
    for result in found.strategies:
        above = ["interference", "spread"] if Conditions.of(question[1]).spread else []
        assert list(result.ladder_s) == ["additive", "overlap", "contention", *above]
        assert result.ladder_s["additive"] == result.additive_s
        assert list(result.ladder_s.values())[-1] == result.simulated_s
        assert result.ladder_s["overlap"] <= result.additive_s * (1 + 1e-9)
        assert 0 < result.lower_bound_s <= result.simulated_s * (1 + 1e-9)


def test_the_ladder_of_a_pipeline_ends_with_what_its_micro_batches_bring():
    """The steps before are those of the same layers on the same devices, which take the whole batch at once."""
    graph, cluster = load_model("lenet5", batch=64), cluster_of("titanx-4", 4)
    (result,) = compare(graph, cluster, ["pipeline"]).strategies
    model = CostModel(graph, cluster)
    strategy, micro_batching = strategy_and_micro_batching(model, "pipeline")
    whole = replay(lowered(model, strategy))
    assert micro_batching.parts > 1
    assert list(result.ladder_s) == ["additive", "overlap", "contention", "pipelining"]
    assert result.ladder_s["additive"] == additive_s(model, strategy)
    assert result.ladder_s["contention"] == whole.iteration_s
    assert (
        result.ladder_s["pipelining"]
        == result.simulated_s
        == replay(lowered(model, strategy, micro_batching=micro_batching)).iteration_s
    )
    # the stages work side by side, at most as many as there are
    assert result.ladder_s["pipelining"] >= whole.shares().compute_s / len(micro_batching.starts)


@pytest.mark.parametrize("name", NAMED)
def test_named_strategies_are_as_the_modules_below_say(found, question, name):
    graph, cluster = question
    model = CostModel(graph, cluster, conditions=Conditions.of(cluster))
    strategy = named_strategy(name, graph, len(cluster.devices))
    program = lowered(model, strategy)
    result = next(result for result in found.strategies if result.name == name)

    assert result.simulated_s == replay(program).iteration_s
    assert result.additive_s == pytest.approx(additive_s(model, strategy), rel=1e-12)
    assert result.lower_bound_s == iteration_bound(program)[0]
    assert result.peak_memory_bytes == tuple(peak_memory_bytes(program).tolist())
    assert result.tasks == program.size
    assert result.samples_per_s == pytest.approx(graph.batch / result.expected_s)
    assert {layer.name: layer.degrees for layer in result.layers} == {n: dict(c.degrees) for n, c in strategy.items()}


def test_speedup_is_against_all_on_one_device(found, question):
    graph, cluster = question
    alone = simulated_plan(graph, cluster.take(1), strategy="data").replayed

    assert found.one_device_s == pytest.approx(alone.expected_s)
    for result in found.strategies:
        assert result.speedup == pytest.approx(alone.expected_s / result.expected_s)
        assert result.speedup <= len(cluster.devices)


def test_data_parallelism_moves_the_parameters_in_rings(found, question):
    graph, cluster = question
    data = next(result for result in found.strategies if result.name == "data")

    assert data.moved_bytes == pytest.approx(2 * (len(cluster.devices) - 1) * graph.parameter_count * 4)


def test_rank_correlation_is_spearmans(found):
    from scipy.stats import spearmanr  # three quarters of a second in every process that collects this file

    tried = found.tried

    assert list(tried.columns) == ["name", "additive_s", "simulated_s"]
    assert tried["name"].tolist()[: len(EVERY)] == list(EVERY)
    assert len(tried) > len(EVERY)
    expected = spearmanr(tried["additive_s"], tried["simulated_s"]).statistic
    assert found.rank_correlation == pytest.approx(expected, rel=1e-12)
    for result in found.strategies:
        row = tried[tried["name"] == result.name].iloc[0]
        assert (row["additive_s"], row["simulated_s"]) == (result.additive_s, result.simulated_s)


def test_two_comparisons_are_equal(found, question):
    again = compare(*question, EVERY)

    assert again.tried.equals(found.tried)
    assert [r.timeline.equals(s.timeline) for r, s in zip(again.strategies, found.strategies, strict=True)] == [
        True
    ] * 5


def test_one_strategy_has_no_correlation():
    found = compare(load_model("lenet5", batch=8), cluster_of("titanx-4", 2), ["data"])

    assert (found.winner, len(found.tried)) == ("data", 1)
    assert math.isnan(found.rank_correlation)


def test_strategies_from_files_and_plans(tmp_path):
    graph, cluster = load_model("lenet5", batch=8), cluster_of("titanx-4", 2)
    (tmp_path / "mine.yaml").write_text("configurations: {default: {degrees: {sample: 2}}}")
    save_plan(make_plan(graph, cluster, strategy="owt"), tmp_path / "owt.json")
    mine, owt = str(tmp_path / "mine.yaml"), str(tmp_path / "owt.json")
    found = {
        result.name: result.simulated_s for result in compare(graph, cluster, ["data", mine, "owt", owt]).strategies
    }

    assert found[mine] == found["data"]
    assert found[owt] == found["owt"]


def with_memory(cluster, memory_bytes):
    """The same cluster with devices of another memory."""
    devices = [type(d)(name=d.name, node=d.node, profile=d.profile, memory_bytes=memory_bytes) for d in cluster.devices]
    return DeviceGraph("changed", devices, cluster.vertices[len(devices) :], cluster.links)


def test_what_does_not_fit_is_refused_with_the_reason():
    """Data parallelism keeps all parameters on every device, model parallelism a quarter of most."""
    graph, cluster = load_model("alexnet", batch=4), with_memory(cluster_of("titanx-4", 4), 5e8)
    found = compare(graph, cluster, ["data", "model"])

    assert [result.name for result in found.strategies] == ["model"]
    assert list(found.refused) == ["data"]
    assert "plan does not fit on" in found.refused["data"]
    assert "the device has 0.47 GiB" in found.refused["data"]
    assert found.tried["name"].tolist() == ["model"]


def test_where_nothing_fits_the_largest_batch_tried_that_does_is_named():
    """It fits, and the next larger eighth of its half does not; layer-wise search could have any of the usual ones."""
    cluster = with_memory(cluster_of("titanx-4", 4), 6e7)
    with pytest.raises(NoStrategyFitsError, match="model: plan does not fit") as caught:
        compare(load_model("lenet5", batch=4096), cluster, ["model", "layerwise"])
    fits = caught.value.batch
    assert f"what fits: --batch {fits}" in str(caught.value)
    assert compare(load_model("lenet5", batch=fits), cluster, ["model", "layerwise"]).strategies
    tried = {4096 * eighth // 8 >> half for half in range(12) for eighth in (8, 7, 6, 5, 4)}
    larger = min(batch for batch in tried if batch > fits)
    with pytest.raises(NoStrategyFitsError):
        compare(load_model("lenet5", batch=larger), cluster, ["model", "layerwise"])


def test_where_no_batch_fits_more_devices_are_the_advice():
    cluster = with_memory(cluster_of("titanx-4", 4), 5e8)
    with pytest.raises(NoStrategyFitsError, match=r"data: plan does not fit .*; use more devices") as caught:
        compare(load_model("alexnet", batch=4), cluster, ["data"])
    assert caught.value.batch is None


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ([], "strategies must name at least one, got none"),
        (["data", ""], "strategy must be one of .*, got ''$"),
        (["data", "modle"], "got 'modle'; did you mean 'model'"),
        (["nothing.yaml"], "strategy file nothing.yaml cannot be read"),
    ],
)
def test_bad_strategies(strategies, message):
    with pytest.raises(ConfigError, match=message):
        compare(load_model("lenet5", batch=8), cluster_of("titanx-4", 2), strategies)


def test_a_batch_that_does_not_divide():
    with pytest.raises(ConfigError, match="got 6; the nearest is 8"):
        compare(load_model("lenet5", batch=6), cluster_of("titanx-4", 4), ["data"])


def test_progress_counts_up():
    told = []
    compare(
        load_model("lenet5", batch=8), cluster_of("titanx-4", 2), ["data", "owt"], progress=lambda *r: told.append(r)
    )
    assert told == [("simulating data", 0, 3), ("simulating owt", 1, 3), ("validating the additive model", 2, 3)]


def test_comparisons_hold_what_json_can(found):
    """What the command prints: finite numbers."""
    for result in found.strategies:
        values = [result.ladder_s, result.samples_per_s, list(result.peak_memory_bytes), result.layers[0].degrees]
        assert json.loads(json.dumps(values, allow_nan=False)) == values


PLANS = (
    "data,micro-batches=4",
    "data,recompute=segments,optimizer=adam",
    "pipeline=4,schedule=gpipe,micro-batches=8,recompute=segments",
    "pipeline=2,data=2,schedule=1f1b,micro-batches=4",
    "owt,sub-batches=4,sub-batch-order=all",
    "data,gradient-sync-order=reuse",
    "owt,compress-gradients=dynamic-tree,compress-activations=float16",
    "data,framework=ddp:first_mib=0.01+bucket_mib=0.05",
    "fsdp,optimizer=adam,micro-batches=2",
    "data=2,filter=2,gradient-sync=tree,dtype=float64",
    "layerwise,refine=3",
    "hybrid",
)


@pytest.fixture(scope="module")
def compared_plans():
    graph, cluster = load_model("lenet5", batch=64), cluster_of("titanx-4", 4)
    return graph, cluster, compare(graph, cluster, ["data", *PLANS])


@pytest.mark.parametrize("text", PLANS)
def test_a_comparison_and_a_plan_have_one_number(compared_plans, text):
    """Whatever options the text of a plan has: the same times, bytes and memory, whoever is asked."""
    graph, cluster, comparison = compared_plans
    request = request_for(graph, cluster, strategy=text)
    planned = simulated_plan(graph.with_element_bytes(request.element_bytes), cluster, request)
    plan, replayed = planned.plan, planned.replayed
    (result,) = [each for each in comparison.strategies if each.name == text]

    assert plan.strategy == text
    assert (result.simulated_s, result.expected_s) == (plan.simulated_s, replayed.expected_s)
    assert result.additive_s == plan.additive_s
    assert (result.rates, result.moved_bytes) == (planned.rates, replayed.program.moved_bytes)
    assert result.memory_by_kind_bytes == peak_by_kind_bytes(replayed.program)
    assert result.planned.strategy == plan.configurations
    assert list(result.ladder_s.values())[-1] == plan.simulated_s
    assert result.lower_bound_s <= result.simulated_s * (1 + 1e-9)


def test_words_beside_a_strategy_leave_the_others_as_they_are(compared_plans):
    graph, cluster, comparison = compared_plans
    (alone,) = compare(graph, cluster, ["data"]).strategies
    data = comparison.strategies[0]

    assert data.name == "data"
    assert (data.simulated_s, data.speedup, data.layers) == (alone.simulated_s, alone.speedup, alone.layers)


def test_what_all_plans_have_in_common_is_no_word_of_theirs():
    graph, cluster = load_model("lenet5", batch=64), cluster_of("titanx-4", 4)
    common = compare(graph, cluster, ["data", "owt"], gradient_sync="tree", optimizer="adam").strategies
    words = [f"{name},gradient-sync=tree,optimizer=adam" for name in ("data", "owt")]

    for one, other in zip(common, compare(graph, cluster, words).strategies, strict=True):
        assert (one.simulated_s, one.peak_memory_bytes) == (other.simulated_s, other.peak_memory_bytes)
    with pytest.raises(ConfigError, match=r"gradient_sync must be 'ring' or left out beside strategy .*, got 'tree'"):
        compare(graph, cluster, ["data,gradient-sync=ring"], gradient_sync="tree")
