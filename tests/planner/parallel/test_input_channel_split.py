"""Splits of the input channels: partial sums as graphs, their prices, programs, plans and volumes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import SMALL_MODELS, cluster_of, device_count, star
from reducing import network, program_of, random_reducing_strategy

from hwprofiles.catalogue.cluster_catalogue import cluster_names
from hwprofiles.compute.compute_profile import MeasuredParts
from planner.compression.settings import CompressionSettings
from planner.cost.applied_strategy import applied
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.layouts.configurations import Configuration
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.operations.partial import PartialProduct
from planner.parallel.input_channel_split import slices_of, split_input_channels
from planner.parallel.micro_batches import MicroBatching
from planner.parallel.named_rules import ALIASES, NAMED
from planner.parallel.strategies import named_strategy, strategy_names
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from simulator.collectives.schemes import ALL_REDUCES
from studies.oracle.forms import activation_collectives_s
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle

SAME = 1e-9
TRANSFER = KINDS.index("transfer")


# Graphs


def test_a_layer_becomes_a_product_of_slices_and_their_sum():
    graph = network()
    split = split_input_channels(graph, {"conv2": 4, "fc1": 2})

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
    split = split_input_channels(graph, dict.fromkeys(("conv2", "conv3", "fc1", "fc2"), 2))
    assert split.parameter_count == graph.parameter_count
    for i, layer in enumerate(split.layers):
        if isinstance(layer.operation, PartialProduct):
            whole, sizes = graph.layers[split.origin[i]], {}
            for row in (layer, whole):
                sizes[row.name, len(row.output.dims)] = {
                    dim: np.array([float(size)]) for dim, size in zip(row.output.dims, row.output.sizes, strict=True)
                }
            for phase in LAYER_PHASES[:3]:
                ours = layer.kernels(phase, sizes[layer.name, len(layer.output.dims)])
                theirs = whole.kernels(phase, sizes[whole.name, len(whole.output.dims)])
                assert ours.flop == theirs.flop


def test_another_batch_keeps_the_pieces():
    graph = network()
    small = split_input_channels(graph, {"conv2": 4}).with_batch(2)
    assert [layer.output.sizes[0] for layer in small.layers] == [2] * len(small.layers)
    assert small.origin == split_input_channels(graph, {"conv2": 4}).origin
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
    low, high = program.region_low[read][:, 1], program.region_high[read][:, 1]
    assert set(zip((low // 4).tolist(), ((high - 1) // 4).tolist(), strict=True)) <= {(0, 0), (1, 1)}


def test_tasks_are_named_after_the_layer():
    graph = network()
    model = CostModel(graph, star(2))
    program = program_of(model, named_strategy("channel", graph, 2))
    names = {program.name(task) for task in range(program.size)}
    assert {
        "conv2 forward [1]",
        "conv2 sum forward [0]",
        "conv2 to conv2 sum (0 to 1)",
        "conv2 weight gradient [0]",
        "conv2 sum to conv2, gradient (1 to 0)",
        "conv2 sum update [1]",
    } <= names


# Prices


@st.composite
def reducing_questions(draw, models=SMALL_MODELS):
    """A cost model, and a strategy of which most layers that may do split their input channels."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.integers(2, min(8, max(2, device_count(spec)))))
    graph = load_model(draw(st.sampled_from(models)), batch=draw(st.sampled_from([1, 2, 8])))
    scheme, norm = draw(st.sampled_from(list(ALL_REDUCES))), draw(st.sampled_from(["local", "reduced"]))
    model = CostModel(graph, cluster_of(spec, count), scheme, norm)
    return model, random_reducing_strategy(graph, count, np.random.default_rng(draw(st.integers(0, 2**32))))


@settings(max_examples=25, deadline=None)
@given(reducing_questions())
def test_replay_one_after_another_is_eq_1(question):
    model, strategy = question
    replayed = replay(program_of(model, strategy), overlap=False, contention=False)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy), rel=SAME)


@settings(max_examples=15, deadline=None)
@given(
    reducing_questions(models=("lenet5", "alexnet", "conv1d")),
    st.sampled_from(["each", "all"]),
    st.sampled_from(["", "dynamic-tree"]),
    st.integers(0, 2**32),
)
def test_so_is_that_of_codes_and_sub_batches(question, order, activations, seed):
    model, strategy = question
    graph, rng = model.graph, np.random.default_rng(seed)
    parts = 2 if graph.batch % 2 == 0 else 1
    first = int(rng.integers(len(graph.layers)))
    strategy = {  # samples of a sub-batch divide alike
        name: Configuration({**c.degrees, "sample": 1}, c.devices[: c.parts // c.degrees["sample"]])
        for name, c in strategy.items()
    }
    micro_batching = MicroBatching(parts=parts, first=first, order=order)
    kinds = CompressionSettings(activations=activations)
    replayed = replay(program_of(model, strategy, micro_batching, kinds), overlap=False, contention=False, iterations=1)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy, micro_batching, kinds), rel=SAME)


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
    split = split_input_channels(graph, {"conv2": 4})
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
    other = split_input_channels(graph, {"conv2": 2}).layers[1]  # of halves nothing is known
    assert kernel_s(replace(profile, parts=parts), "small", other, "forward", part) > 0.5


# Strategies


def degrees_of(strategy):
    return {name: {d: n for d, n in c.degrees.items() if n > 1} for name, c in strategy.items()}


def test_channel_splits_inputs_but_those_of_the_data():
    assert degrees_of(named_strategy("channel", network(), 4)) == {
        "conv1": {"channel": 4},
        "conv2": {"in_channel": 4},
        "pool1": {"channel": 4},
        "conv3": {"in_channel": 4},
        "fc1": {"in_channel": 4},
        "fc2": {"in_channel": 4},
        "softmax": {},
    }


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
    printed, needed = (activation_collectives_s(p, tensors, 0.0, 1.0, passes=passes) for passes in (3, 2))
    per_device = sum(each.values()) / p
    assert per_device == needed == pytest.approx(2 / 3 * printed, rel=1e-15)


@pytest.mark.parametrize("p", [4, 16])
def test_the_closed_form_of_channel_is_the_replay(p):
    """Read as programs send, on links that all cost alike: what is left is the loss, which is on one device."""
    graph, cluster = load_model("alexnet", batch=64), star(p)
    replayed = replay(
        program_of(CostModel(graph, cluster), named_strategy("channel", graph, p)), overlap=False, contention=False
    )
    request = OracleRequest(
        dataset="imagenet", devices=(p,), strategies=("channel",), gradients="layers", activations="direct"
    )
    form = oracle(graph, cluster, request)
    assert form.rows[0].iteration_s == pytest.approx(replayed.iteration_s, rel=0.005)


def test_aligned_channels_move_no_tensor_between_layers_of_vgg():
    graph = load_model("vgg16", batch=4)
    program = program_of(CostModel(graph, star(8)), named_strategy("channel", graph, 8))
    moves = {int(layer) for layer in program.consumer[program.kind == TRANSFER]}
    names = {program.graph.layers[i].name for i in moves}
    assert {name for name in names if not name.endswith(" sum")} == {"softmax"}
    assert len(names) == 12 + 3 + 1
