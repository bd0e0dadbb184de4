"""Splits of the input channels: partial sums as graphs, their prices, programs, plans and volumes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import SMALL_MODELS, cluster_of, residual_block, star
from reducing import choices, random_reducing_strategy

from hwprofiles.catalogue import cluster_names, load_cluster
from hwprofiles.compute import MeasuredParts
from hwprofiles.errors import ConfigError
from planner.additive import additive_s
from planner.compare import compare
from planner.compressed import PLAIN, Compressed
from planner.configurations import Configuration
from planner.costs import CostModel, kernel_s
from planner.cut import WHOLE, Cut, cut_of
from planner.graph import PHASES
from planner.lowering import lower
from planner.models import ModelBuilder, load_model
from planner.operations import PartialProduct, PartialSum
from planner.oracle import OracleOptions, oracle
from planner.oracle.forms import activation_exchange_s
from planner.partial_sums import expanded, slices_of
from planner.plan import exchange_choices, lower_plan, lowered, make_plan
from planner.plan_file import load_plan, save_plan
from planner.program import KINDS
from planner.replay import replay
from planner.strategies import ALIASES, NAMED, applied, named_strategy, spaces_of, strategy_names
from simulator.collectives import ALL_REDUCES

SAME = 1e-9
TRANSFER = KINDS.index("transfer")


def network(batch=8):
    """Convolutions and linear layers whose channels all divide by 4, but for those of the data."""
    net = ModelBuilder("small", batch=batch, image=(3, 8, 8))
    net.conv(8, 3, pad=1)
    net.conv(16, 3, pad=1)
    net.pool("max", 2)
    net.conv(8, 3, stride=2, pad=1)
    net.linear(12, activation="relu")
    net.linear(4)
    net.loss()
    return net.build()


def program_of(model, strategy, cut=WHOLE, compressed=PLAIN, **form):
    model, spaces, cut = applied(model, strategy, cut)
    return lower(model, spaces, cut=cut, compressed=compressed, **form)


# Graphs


def test_a_layer_becomes_a_product_of_slices_and_their_sum():
    graph = network()
    split = expanded(graph, {"conv2": 4, "fc1": 2})

    names = [layer.name for layer in split.layers]
    assert names == ["conv1", "conv2", "conv2 sum", "pool1", "conv3", "fc1", "fc1 sum", "fc2", "softmax"]
    assert split.origin == (0, 1, 1, 2, 3, 4, 4, 5, 6)
    assert split.undivided is graph
    by_name = {layer.name: layer for layer in split.layers}
    product, total = by_name["conv2"], by_name["conv2 sum"]
    assert product.output.dims == ("sample", "channel", "in_channel", "height", "width")
    assert product.output.sizes == (8, 16, 4, 8, 8)
    assert product.output.positions == (8, 8)
    assert total.output == graph.layers[1].output
    assert total.inputs == ("conv2",)
    assert by_name["pool1"].inputs == ("conv2 sum",)
    assert by_name["fc1"].output.sizes == (8, 12, 2)
    assert [(p.name, p.shape) for p in product.parameters] == [("weight", (16, 8, 3, 3))]
    assert [(p.name, p.shape) for p in total.parameters] == [("bias", (16,))]


def test_pieces_have_the_parameters_and_the_products_of_the_layer():
    """Of all layers, all slices: what is trained is the model's, and so are the products of all phases."""
    graph = network()
    split = expanded(graph, dict.fromkeys(("conv2", "conv3", "fc1", "fc2"), 2))
    assert split.parameter_count == graph.parameter_count
    for i, layer in enumerate(split.layers):
        if isinstance(layer.operation, PartialProduct):
            whole, sizes = graph.layers[split.origin[i]], {}
            for row in (layer, whole):
                sizes[row.name, len(row.output.dims)] = {
                    dim: np.array([float(size)]) for dim, size in zip(row.output.dims, row.output.sizes, strict=True)
                }
            for phase in PHASES[:3]:
                ours = layer.kernels(phase, sizes[layer.name, len(layer.output.dims)])
                theirs = whole.kernels(phase, sizes[whole.name, len(whole.output.dims)])
                assert ours.flop == theirs.flop


def test_another_batch_keeps_the_pieces():
    graph = network()
    small = expanded(graph, {"conv2": 4}).with_batch(2)
    assert [layer.output.sizes[0] for layer in small.layers] == [2] * len(small.layers)
    assert small.origin == expanded(graph, {"conv2": 4}).origin
    assert small.undivided.digest == graph.with_batch(2).digest


def test_each_part_reads_its_slice_and_adds_pieces_of_its_own():
    """2 x 2: no more of the input and of the weights than a part needs, and one piece of the sum already there."""
    graph = network()
    conv = {"conv2": Configuration({"channel": 2, "in_channel": 2}, (3, 1, 0, 2))}
    model = CostModel(graph, star(4))
    program = program_of(model, {**named_strategy("filter", graph, 4), **conv})
    index = program.graph.index
    product, total = program.spaces[index["conv2"]], program.spaces[index["conv2 sum"]]
    assert product.devices.tolist() == total.devices.tolist() == [3, 1, 0, 2]
    assert total.degrees.tolist() == [[1, 4, 1, 1]]
    mine = (program.kind == TRANSFER) & (program.consumer == index["conv2 sum"])
    ends = {(int(a), int(b)) for a, b in zip(program.device[mine], program.peer[mine], strict=True)}
    assert ends == {(3, 1), (1, 3), (0, 2), (2, 0)}  # within a piece of the channels
    assert set(program.size_bytes[mine].tolist()) == {8 * 4 * 64 * 4.0}
    read = (program.kind == TRANSFER) & (program.consumer == index["conv2"]) & ~program.backward
    low, high = program.box_low[read][:, 1], program.box_high[read][:, 1]
    assert set(zip((low // 4).tolist(), ((high - 1) // 4).tolist(), strict=True)) <= {(0, 0), (1, 1)}


def test_tasks_are_named_after_the_layer():
    graph = network()
    model = CostModel(graph, star(2))
    program = program_of(model, named_strategy("channel", graph, 2))
    names = {program.name(task) for task in range(program.size)}
    assert {"conv2 forward [1]", "conv2 sum forward [0]", "conv2 to conv2 sum (0 to 1)", "conv2 weight gradient [0]",
            "conv2 sum to conv2, gradient (1 to 0)", "conv2 sum update [1]"} <= names  # fmt: skip


# Prices


@st.composite
def reducing_questions(draw, models=SMALL_MODELS):
    """A cost model, and a strategy of which most layers that may do split their input channels."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.integers(2, min(8, max(2, len(load_cluster(spec).devices)))))
    graph = load_model(draw(st.sampled_from(models)), batch=draw(st.sampled_from([1, 2, 8])))
    scheme, norm = draw(st.sampled_from(list(ALL_REDUCES))), draw(st.sampled_from(["local", "reduced"]))
    model = CostModel(graph, cluster_of(spec, count), scheme, norm)
    return model, random_reducing_strategy(graph, count, np.random.default_rng(draw(st.integers(0, 2**32))))


@settings(max_examples=40, deadline=None)
@given(reducing_questions())
def test_replay_one_after_another_is_eq_1(question):
    model, strategy = question
    replayed = replay(program_of(model, strategy), overlap=False, contention=False)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy), rel=SAME)


@settings(max_examples=25, deadline=None)
@given(
    reducing_questions(models=("lenet5", "alexnet", "conv1d")), st.sampled_from(["each", "all"]),
    st.sampled_from(["", "dynamic-tree"]), st.integers(0, 2**32),
)  # fmt: skip
def test_so_is_that_of_codes_and_sub_batches(question, order, activations, seed):
    model, strategy = question
    graph, rng = model.graph, np.random.default_rng(seed)
    parts = 2 if graph.batch % 2 == 0 else 1
    first = int(rng.integers(len(graph.layers)))
    strategy = {  # samples of a sub-batch divide alike
        name: Configuration({**c.degrees, "sample": 1}, c.devices[: c.parts // c.degrees["sample"]])
        for name, c in strategy.items()
    }
    cut = Cut(parts=parts, first=first, order=order)
    kinds = Compressed(activations=activations)
    replayed = replay(program_of(model, strategy, cut, kinds), overlap=False, contention=False, iterations=1)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy, cut, kinds), rel=SAME)


def test_weights_of_a_slice_are_exchanged_among_its_replicas_only():
    """Two samples x two slices: each pair exchanges half the weights, and a half each of the bias."""
    graph = network()
    strategy = {**named_strategy("data", graph, 4), "fc1": Configuration({"sample": 2, "in_channel": 2}, (0, 1, 2, 3))}
    program = program_of(CostModel(graph, star(4), "ring"), strategy)
    for name, size, pairs in (("fc1", 12 * 32 / 2, {(0, 2), (1, 3)}), ("fc1 sum", 12 / 2, {(0, 2), (1, 3)})):
        layer = program.graph.index[name]
        rows = [c for task, c in program.collectives.items() if program.layer[task] == layer]
        assert {c.devices for c in rows} == pairs
        assert {c.buffer_bytes for c in rows} == {size * 4}


def test_parts_are_priced_by_their_slice():
    """A quarter of the input channels: a quarter of the arithmetic, in a shorter product."""
    graph, model = network(), CostModel(network(), cluster_of("titanx-4", 4))
    quarter = Configuration({"in_channel": 4}, (0, 1, 2, 3))
    split = applied(model, {**named_strategy("filter", graph, 1), "conv2": quarter}).model
    layer = split.graph.layers[split.graph.index["conv2"]]
    part = {"sample": 8, "channel": 16, "in_channel": 1, "height": 8, "width": 8}
    work = layer.kernels("forward", {dim: np.array([float(size)]) for dim, size in part.items()})
    assert work.flop == [2 * 16 * 8 * 64 * 2 * 9]
    assert work.depth == [2 * 9]
    assert work.memory_bytes == [4 * (8 * 2 * 64 + 16 * 2 * 9 + 8 * 16 * 64)]


def test_measured_layers_price_their_slices():
    """Where only the whole layer was measured, by the roofline's ratio; where slices were, by their own time."""
    graph, cluster = network(), cluster_of("titanx-4", 4)
    model = CostModel(graph, cluster)
    profile = model.profiles[0]
    split = expanded(graph, {"conv2": 4})
    whole, layer = graph.layers[1], split.layers[1]
    part = {dim: np.array([float(s)]) for dim, s in zip(layer.output.dims, (8, 16, 1, 8, 8), strict=True)}
    full = {dim: size for dim, size in part.items() if dim != "in_channel"}
    plain_s = [kernel_s(profile, "small", row, "forward", sizes) for row, sizes in ((layer, part), (whole, full))]
    assert plain_s[0] < plain_s[1]
    parts = {("small", "conv2", "forward"): MeasuredParts(((8, 16, 8, 8),), (3.0,))}
    measured = replace(profile, parts=parts)
    assert kernel_s(measured, "small", layer, "forward", part) == pytest.approx(3.0 * plain_s[0] / plain_s[1])
    parts["small", "conv2, in_channel 4", "forward"] = MeasuredParts(((8, 16, 1, 8, 8),), (0.5,))
    assert kernel_s(replace(profile, parts=parts), "small", layer, "forward", part) == 0.5
    other = expanded(graph, {"conv2": 2}).layers[1]  # of halves nothing is known
    assert kernel_s(replace(profile, parts=parts), "small", other, "forward", part) > 0.5


# Strategies


def degrees_of(strategy):
    return {name: {d: n for d, n in c.degrees.items() if n > 1} for name, c in strategy.items()}


def test_channel_splits_inputs_but_those_of_the_data():
    assert degrees_of(named_strategy("channel", network(), 4)) == {
        "conv1": {"channel": 4}, "conv2": {"in_channel": 4}, "pool1": {"channel": 4}, "conv3": {"in_channel": 4},
        "fc1": {"in_channel": 4}, "fc2": {"in_channel": 4}, "softmax": {},
    }  # fmt: skip


def test_channel_splits_as_far_as_input_and_output_divide():
    """Of 20 and 50 channels 2 on 4 devices; a convolution of groups by its outputs."""
    assert degrees_of(named_strategy("channel", load_model("lenet5", batch=8), 4))["conv2"] == {"in_channel": 2}
    alexnet = degrees_of(named_strategy("channel", load_model("alexnet", batch=8), 4))
    assert alexnet["conv1"] == {"channel": 4}
    assert {row.get("in_channel", 0) for name, row in alexnet.items() if name.startswith("fc")} == {4}


def test_filter_is_model():
    assert ALIASES == {"filter": "model"}
    assert named_strategy("filter", network(), 4) == named_strategy("model", network(), 4)
    assert {"filter", "channel"} <= set(strategy_names())
    assert not any(slices_of(named_strategy(name, network(), 4)) for name in NAMED)


@pytest.mark.parametrize("p", [2, 4])
def test_volume_is_two_thirds_of_paradls(p):
    """Worked by hand: nothing moves but the pieces of sums, their gradients, and the outputs that the loss gathers.

    Each of p devices receives p - 1 pieces of B |y| / p forward, and as many backward: row Channel has 3 times p - 1,
    of an all-reduce forward (2) and an all-gather backward (1).  A reduce-scatter is enough forward, because the next
    layer reads only the piece that is there.
    """
    graph, batch = network(), 8
    program = program_of(CostModel(graph, star(p)), named_strategy("channel", graph, p))
    elements = {"conv2": 16 * 64, "conv3": 8 * 4, "fc1": 12, "fc2": 4}
    moved = {}
    for task in np.flatnonzero(program.kind == TRANSFER).tolist():
        ends = program.graph.layers[program.layer[task]].name, program.graph.layers[program.consumer[task]].name
        moved[ends] = moved.get(ends, 0.0) + program.size_bytes[task]
    each = {(name, f"{name} sum"): 2 * (p - 1) * batch * count * 4.0 for name, count in elements.items()}
    assert moved == {**each, ("fc2 sum", "softmax"): 2 * (p - 1) / p * batch * 4 * 4.0}
    tensors = np.array([batch * count * 4.0 for count in elements.values()])
    printed, needed = (activation_exchange_s(p, tensors, 0.0, 1.0, passes=passes) for passes in (3, 2))
    per_device = sum(each.values()) / p
    assert per_device == needed == pytest.approx(2 / 3 * printed, rel=1e-15)


@pytest.mark.parametrize("p", [4, 16])
def test_the_closed_form_of_channel_is_the_replay(p):
    """Read as programs send, on links that all cost alike: what is left is the loss, which is on one device."""
    graph, cluster = load_model("alexnet", batch=64), star(p)
    replayed = replay(
        program_of(CostModel(graph, cluster), named_strategy("channel", graph, p)), overlap=False, contention=False
    )
    sends = OracleOptions(gradients="layers", activations="direct")
    form = oracle(graph, cluster, dataset="imagenet", devices=[p], strategies=["channel"], options=sends)
    assert form.rows[0].iteration_s == pytest.approx(replayed.iteration_s, rel=0.005)


def test_aligned_channels_move_no_tensor_between_layers_of_vgg():
    graph = load_model("vgg16", batch=4)
    program = program_of(CostModel(graph, star(8)), named_strategy("channel", graph, 8))
    moves = {int(layer) for layer in program.consumer[program.kind == TRANSFER]}
    names = {program.graph.layers[i].name for i in moves}
    assert {name for name in names if not name.endswith(" sum")} == {"softmax"}
    assert len(names) == 12 + 3 + 1


# Plans


def test_plans_keep_the_model_and_its_configurations(tmp_path):
    graph, cluster = network(), cluster_of("titanx-4", 4)
    plan = make_plan(graph, cluster, strategy="channel", exchange="auto", batch_norm="reduced")
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
    assert exchange_choices(model, again.configurations) == plan.exchanges


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
    cut = cut_of(graph, 2)
    strategy = named_strategy("channel", graph, 2)
    program = lowered(model, strategy, cut=cut)
    assert graph.layers[cut.first].name == program.graph.layers[program.cut.first].name == "fc1"
    behind = {program.graph.layers[int(i)].name for i in program.layer[program.sub_batch > 0]}
    assert behind >= {"fc1", "fc1 sum", "fc2", "softmax"}
    assert not behind & {"conv1", "conv2", "conv2 sum"}


def test_codes_pay_by_the_models_layers():
    graph = residual_block()
    cluster = cluster_of("fdr-32x3", 2)
    coded = Compressed(activations="dynamic-tree")
    plan = make_plan(graph, cluster, strategy="channel", compressed=coded, where_it_pays=True)
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
        parts = sum(row.compute_s + row.exchange_s + row.transfer_s for row in result.layers)
        assert parts == pytest.approx(result.additive_s)


# Mistakes

MISTAKES = {
    "data": ("conv1", {"in_channel": 2}, r"conv1: degree of in_channel must divide its 3 input channels, got 2"),
    "pooling": ("pool1", {"in_channel": 2}, r"in_channel splits convolutions of one group and linear layers only, "
                "this is a pooling"),
    "groups": ("conv3", {"in_channel": 2}, "this is a convolution of 2 groups"),
    "input": ("conv2", {"in_channel": 3}, "degree of in_channel must divide its 8 input channels, got 3"),
    "output": ("conv2", {"in_channel": 2, "channel": 2}, r"conv2: in_channel x channel must divide its 6 channels, "
               "which are summed in as many pieces, got 2 x 2"),
    "other": ("conv2", {"in_channel": 2, "sample": 3}, "degree of sample must divide 8, got 3"),
    "devices": ("conv2", {"in_channel": 2, "sample": 8}, "multiply to 16 parts, the cluster has 4 devices"),
    "zero": ("conv2", {"in_channel": 0}, "degree of in_channel must divide its 8 input channels, got 0"),
}  # fmt: skip


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
    """The random strategies above reach every split that is not refused."""
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
