"""Plans that split what layers sum over: what their files keep, what reads them, and what is refused."""

import json

import pytest
from plans import cluster_of, star
from reducing import network

from groundwork.errors import ConfigError
from planner.cost.compressed_sync import gradient_sync_choices
from planner.cost.cost_model import CostModel
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration
from planner.models.builder import ModelBuilder
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import lower_plan, lowered
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import micro_batching_of
from planner.strategies.named_strategies import named_strategy, spaces_of

# Plans


def test_plans_keep_the_model_and_its_configurations(tmp_path):
    graph, cluster = network(), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy="channel", gradient_sync="auto", batch_norm="reduced")
    assert plan.model_digest == graph.digest
    assert set(plan.configurations) == {layer.name for layer in graph.layers}
    assert plan.configurations["conv2"].describe() == "n=1 c=1 k=4 h=1 w=1"
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.configurations == plan.configurations
    assert replay(lower_plan(again, graph, cluster)).iteration_s == plan.simulated_s
    model = CostModel(graph, cluster, "auto", "reduced")
    assert named_strategy(str(tmp_path / "plan.json"), graph, 4) == plan.configurations
    assert additive_s(model, again.configurations) == plan.additive_s
    assert gradient_sync_choices(model, again.configurations) == plan.gradient_syncs


def test_plan_files_by_degrees_are_read(tmp_path):
    """As files were before meshes: ``in_channel`` among the degrees, with devices."""
    graph, cluster = network(), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy="channel")
    save_plan(plan, tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())
    for name, row in content["configurations"].items():
        if "mesh" in row:
            degrees = {"in_channel" if dim == SUMMED else dim: degree for dim, degree in row["degrees"].items()}
            content["configurations"][name] = {"degrees": degrees, "devices": plan.configurations[name].devices}
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert load_plan(tmp_path / "old.json").configurations == plan.configurations
    assert named_strategy(str(tmp_path / "old.json"), graph, 4) == plan.configurations


def test_a_file_may_say_that_sums_are_not_split():
    graph = network()
    rows = named_strategy("filter", graph, 2)
    said = {n: Configuration.of({**c.degrees, "in_channel": 1}, c.devices) for n, c in rows.items()}
    assert said == rows


def test_pipelines_split_sums_in_their_stages():
    graph, cluster = network(), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy="pipeline=2,channel=2")
    assert any(SUMMED in each.degrees for each in plan.configurations.values())
    program = lower_plan(plan, graph, cluster)
    assert (program.moves_activations & (program.micro_batch > 0)).any()


def test_cuts_behind_sums():
    graph = network()
    model, micro_batching = CostModel(graph, star(2)), micro_batching_of(network(), 2)
    program = lowered(model, named_strategy("channel", graph, 2), micro_batching=micro_batching)
    assert graph.layers[micro_batching.first].name == "fc1"
    behind = {graph.layers[int(i)].name for i in program.layer[program.micro_batch > 0]}
    assert behind == {"fc1", "fc2", "softmax"}


def test_comparison_adds_up():
    """Terms of the layers are those of Eq. 1, where layers complete sums too."""
    comparison = compare(network(), cluster_of("titanx-4", 4), ["data", "filter", "channel"])
    rows = {result.name: {layer.name: layer for layer in result.layers} for result in comparison.strategies}
    assert rows["channel"]["conv2"].degrees[SUMMED] == 4
    assert rows["channel"]["conv2"].transfer_s > rows["filter"]["conv2"].transfer_s * 0.1
    for result in comparison.strategies:
        parts = sum(row.compute_s + row.gradient_sync_s + row.transfer_s for row in result.layers)
        assert parts == pytest.approx(result.additive_s)


# Mistakes

MISTAKES = {
    "data": ("conv1", {"in_channel": 4}, "conv1: degree of summed must be at most 3, got 4"),
    "pooling": ("pool1", {"in_channel": 2}, "pool1: summed is not one of its parallelizable dimensions"),
    "groups": ("conv3", {"in_channel": 2}, "conv3: summed is not one of its parallelizable dimensions"),
    "output": (
        "fc1",
        {"in_channel": 2, "channel": 3},
        "fc1: degrees of channel and summed must multiply to at most its 4 output channels, .* got 6",
    ),
    "other": ("conv2", {"in_channel": 2, "sample": 9}, "degree of sample must be at most 8, got 9"),
    "devices": ("conv2", {"in_channel": 2, "sample": 8}, "multiply to 16 parts, the cluster has 6 devices"),
    "number": ("conv2", {"in_channel": 2, "sample": 2}, "devices must be 4 different ones, got 2"),
    "zero": ("conv2", {"in_channel": 0}, "degree of summed .* got 0"),
}


def mistaken():
    net = ModelBuilder("mistaken", batch=8, image=(3, 8, 8))
    net.conv(8, 3, pad=1)
    net.conv(6, 3, pad=1)
    net.pool("max", 2)
    net.conv(4, 3, pad=1, groups=2)
    net.linear(4)
    net.loss()
    return net.build()


@pytest.mark.parametrize(("layer", "degrees", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_split_is_refused(layer, degrees, message):
    graph, parts = mistaken(), 1
    for degree in degrees.values():
        parts *= degree
    devices = range(2 if "4 different" in message else parts)
    strategy = {**named_strategy("filter", graph, 1), layer: Configuration.of(degrees, devices)}
    with pytest.raises(ConfigError, match=message) as caught:
        spaces_of(graph, strategy, 6)
    assert "\n" not in str(caught.value)


def test_strategy_files_take_in_channel(tmp_path):
    """Where a layer cannot have it, a default leaves it out, as with dimensions that only some layers have."""
    path = tmp_path / "mine.yaml"
    path.write_text("""
configurations:
  default: {degrees: {in_channel: 2}}
  conv1: {degrees: {channel: 2, in_channel: 1}}
  fc1: {degrees: {sample: 2, in_channel: 2}, devices: [2, 0, 3, 1]}
  fc2: {degrees: {summed: 2}}
""")
    graph = network()
    strategy = named_strategy(str(path), graph, 4)
    assert strategy["fc1"] == Configuration.of({"sample": 2, "channel": 1, SUMMED: 2}, (2, 0, 3, 1))
    assert strategy["conv2"].describe() == "n=1 c=1 k=2 h=1 w=1"
    assert strategy["fc2"].describe() == "n=1 c=1 k=2"
    assert strategy["pool1"].parts == 1
    assert SUMMED not in strategy["conv1"].degrees
    path.write_text("configurations: {default: {degrees: {sample: 1}}, conv1: {degrees: {in_channel: 4}}}")
    with pytest.raises(ConfigError, match="degree of summed must be at most 3, got 4"):
        named_strategy(str(path), graph, 4)
