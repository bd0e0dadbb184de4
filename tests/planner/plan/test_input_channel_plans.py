"""Plans that split input channels: what their files keep, what reads them, and what is refused."""

import pytest
from plans import cluster_of, residual_block, star
from reducing import choices, network

from groundwork.errors import ConfigError
from planner.compression.settings import CompressionSettings
from planner.cost.applied_strategy import applied
from planner.cost.compressed_sync import gradient_sync_choices
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.models.builder import ModelBuilder
from planner.operations.partial import PartialSum
from planner.parallel.micro_batches import micro_batching_of
from planner.parallel.strategies import named_strategy, spaces_of
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import lower_plan, lowered
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay

# Plans


def test_plans_keep_the_model_and_its_configurations(tmp_path):
    graph, cluster = network(), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy="channel", gradient_sync="auto", batch_norm="reduced")
    assert plan.model_digest == graph.digest
    assert set(plan.configurations) == {layer.name for layer in graph.layers}
    assert plan.configurations["conv2"].describe() == "n=1 c=1 i=4 h=1 w=1"
    save_plan(plan, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again.configurations == plan.configurations
    assert replay(lower_plan(again, graph, cluster)).iteration_s == plan.simulated_s
    model = CostModel(graph, cluster, "auto", "reduced")
    assert named_strategy(str(tmp_path / "plan.json"), graph, 4) == plan.configurations
    assert additive_s(model, again.configurations) == plan.additive_s
    assert gradient_sync_choices(model, again.configurations) == plan.gradient_syncs


def test_a_plan_file_may_say_that_input_channels_are_not_split():
    graph = network()
    rows = named_strategy("filter", graph, 2)
    said = {n: Configuration({**c.degrees, "in_channel": 1}, c.devices) for n, c in rows.items()}
    assert [space.degrees.tolist() for space in spaces_of(graph, said, 2)] == [
        space.degrees.tolist() for space in spaces_of(graph, rows, 2)
    ]


def test_cuts_are_of_the_models_layers():
    """From the first linear layer on, with an index of the model's graph or of the larger one."""
    graph = network()
    model = CostModel(graph, star(2))
    micro_batching = micro_batching_of(graph, 2)
    strategy = named_strategy("channel", graph, 2)
    program = lowered(model, strategy, micro_batching=micro_batching)
    assert graph.layers[micro_batching.first].name == program.graph.layers[program.micro_batching.first].name == "fc1"
    behind = {program.graph.layers[int(i)].name for i in program.layer[program.micro_batch > 0]}
    assert behind >= {"fc1", "fc1 sum", "fc2", "softmax"}
    assert not behind & {"conv1", "conv2", "conv2 sum"}


def test_codes_pay_by_the_models_layers():
    graph = residual_block()
    cluster = cluster_of("fdr-32x3", 2)
    coded = CompressionSettings(activations="dynamic-tree")
    plan = make_plan(graph, cluster, strategy="channel", compress_activations=coded.activations, compress_where="pays")
    assert set(plan.compressed.activation_layers) <= {layer.name for layer in graph.layers}
    assert lower_plan(plan, graph, cluster).compressed == plan.compressed


def test_comparison_shows_pieces():
    comparison = compare(network(), cluster_of("titanx-4", 4), ["data", "filter", "channel"])
    rows = {result.name: {layer.name: layer for layer in result.layers} for result in comparison.strategies}
    assert "conv2 sum" not in rows["filter"]
    assert rows["channel"]["conv2"].degrees["in_channel"] == 4
    assert rows["channel"]["conv2 sum"].degrees["channel"] == 4
    assert rows["channel"]["conv2 sum"].kind == PartialSum.kind
    for result in comparison.strategies:
        parts = sum(row.compute_s + row.gradient_sync_s + row.transfer_s for row in result.layers)
        assert parts == pytest.approx(result.additive_s)


# Mistakes

MISTAKES = {
    "data": ("conv1", {"in_channel": 2}, r"conv1: degree of in_channel must divide its 3 input channels, got 2"),
    "pooling": (
        "pool1",
        {"in_channel": 2},
        r"in_channel splits convolutions of one group and linear layers only, "
        "this is a pooling",
    ),
    "groups": ("conv3", {"in_channel": 2}, "this is a convolution of 2 groups"),
    "input": ("conv2", {"in_channel": 3}, "degree of in_channel must divide its 8 input channels, got 3"),
    "output": (
        "conv2",
        {"in_channel": 2, "channel": 2},
        r"conv2: in_channel x channel must divide its 6 channels, "
        "which are summed in as many parts, got 2 x 2",
    ),
    "other": ("conv2", {"in_channel": 2, "sample": 3}, "degree of sample must divide 8, got 3"),
    "devices": ("conv2", {"in_channel": 2, "sample": 8}, "multiply to 16 parts, the cluster has 4 devices"),
    "zero": ("conv2", {"in_channel": 0}, "degree of in_channel must divide its 8 input channels, got 0"),
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
    graph = mistaken()
    strategy = {
        **named_strategy("filter", graph, 1),
        layer: Configuration(degrees, tuple(range(max(degrees.values())))),
    }
    with pytest.raises(ConfigError, match=message) as caught:
        applied(CostModel(graph, star(4)), strategy)
    assert "\n" not in str(caught.value)


def test_strategy_files_take_in_channel(tmp_path):
    """Where a layer cannot have it, a default leaves it out, as with dimensions that only some layers have."""
    path = tmp_path / "mine.yaml"
    path.write_text("""
configurations:
  default: {degrees: {in_channel: 2}}
  conv1: {degrees: {channel: 2, in_channel: 1}}
  fc1: {degrees: {sample: 2, in_channel: 2}, devices: [2, 0, 3, 1]}
""")
    graph = network()
    strategy = named_strategy(str(path), graph, 4)
    assert strategy["fc1"] == Configuration({"sample": 2, "channel": 1, "in_channel": 2}, (2, 0, 3, 1))
    assert strategy["conv2"].describe() == "n=1 c=1 i=2 h=1 w=1"
    assert strategy["pool1"].parts == 1
    assert "in_channel" not in strategy["conv1"].degrees
    path.write_text("configurations: {default: {degrees: {sample: 1}}, conv1: {degrees: {in_channel: 2}}}")
    with pytest.raises(ConfigError, match="must divide its 3 input channels, got 2"):
        named_strategy(str(path), graph, 4)


def test_choices_of_the_tests_are_what_is_allowed():
    """Random strategies (``reducing.choices``) reach every split that is not refused."""
    graph = mistaken()
    layer = graph.layers[1]
    allowed = {(r, c) for row in choices(layer, 4) for r, c in [(row.get("in_channel", 1), row["channel"])]}
    for r in range(1, 5):
        for c in range(1, 5 // r + 1):
            strategy = {
                **named_strategy("filter", graph, 1),
                "conv2": Configuration({"channel": c, "in_channel": r}, tuple(range(r * c))),
            }
            try:
                applied(CostModel(graph, star(4)), strategy)
            except ConfigError:
                assert (r, c) not in allowed
            else:
                assert (r, c) in allowed
