"""Splits of what layers sum over: regions, prices, programs and volumes of layers that complete their sums."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import SMALL_MODELS, cluster_of, device_count, star
from reducing import network, program_of, random_reducing_strategy

from hwprofiles.catalogue.cluster_catalogue import cluster_names
from hwprofiles.compute.compute_profile import MeasuredParts
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration, completing_parts, product_space, space_of
from planner.layouts.mesh import Mesh
from planner.layouts.redistribution import made_in
from planner.layouts.regions import held_regions, needed_regions, part_sizes
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import ALIASES, NAMED
from planner.strategies.named_strategies import named_strategy, strategy_names
from simulator.collectives.schemes import ALL_REDUCES
from studies.oracle.forms import activation_collectives_s
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle

TRANSFER = KINDS.index("transfer")


def layer_of(name):
    graph = network()
    return graph.layers[graph.index[name]]


# Regions


def test_each_part_reads_its_slice_and_makes_its_share():
    """Two parts of 8 channels x two slices of 4: what each reads, multiplies, holds and trains."""
    layer = layer_of("conv2")
    space = space_of(layer, Configuration.of({"channel": 2, SUMMED: 2}, (3, 1, 0, 2)), 4)
    product = held_regions(product_space(space))
    assert space.devices.tolist() == [3, 1, 0, 2]
    assert space.devices[completing_parts(space)].tolist() == [[3, 1], [0, 2]]
    assert held_regions(space).low[:, 1].tolist() == [0, 4, 8, 12]
    assert (product.low[:, 1].tolist(), product.high[:, 1].tolist()) == ([0, 0, 8, 8], [8, 8, 16, 16])
    read = needed_regions(space, layer.operation.interval_maps(0, layer.input_shapes), layer.input_shapes[0])
    assert (read.low[:, 1].tolist(), read.high[:, 1].tolist()) == ([0, 4, 0, 4], [4, 8, 4, 8])


def test_flattened_channels_keep_their_positions():
    """A linear layer of 8 channels of 4 x 4 takes rows of weights by whole channels, of unequal number too."""
    layer = layer_of("fc1")
    (weight, bias), channels = layer.parameters, layer.input_shapes[0].size("channel")
    positions = int(np.prod(layer.input_shapes[0].positions))
    assert (weight.indices, weight.summed_block, bias.indices) == (("channel", SUMMED), positions, ("channel",))
    space = space_of(layer, Configuration.of({SUMMED: 3}, (0, 1, 2)), 3)
    read = needed_regions(space, layer.operation.interval_maps(0, layer.input_shapes), layer.input_shapes[0])
    assert read.low[:, 1].tolist() == [j * channels // 3 for j in range(3)]
    assert (read.high - read.low)[:, 1].sum() == channels


def test_outer_slices_have_no_layout_of_axes():
    """Shares of the channels follow each other in the order of the axes only where slices are inside of parts."""
    layer, mesh = layer_of("conv2"), Mesh((("a", 2), ("b", 2)), (0, 1, 2, 3))
    inside, outside = (
        space_of(layer, Configuration.on(mesh, splits, layer.parallel_dims), 4)
        for splits in (("channel", SUMMED), (SUMMED, "channel"))
    )
    assert made_in(inside) == (1, 1)
    assert made_in(outside) is None


# Programs


def test_a_sum_is_completed_by_one_collective_each_way():
    graph = network()
    conv = {"conv2": Configuration.of({"channel": 2, SUMMED: 2}, (3, 1, 0, 2))}
    program = program_of(CostModel(graph, star(4)), {**named_strategy("filter", graph, 4), **conv})
    index = graph.index["conv2"]
    sums = {t: c for t, c in program.collectives.items() if program.layer[t] == program.consumer[t] == index}
    assert {(c.kind, c.devices, bool(program.backward[t])) for t, c in sums.items()} == {
        ("reduce-scatter", (3, 1), False),
        ("reduce-scatter", (0, 2), False),
        ("all-gather", (3, 1), True),
        ("all-gather", (0, 2), True),
    }
    assert {c.buffer_bytes for c in sums.values()} == {8 * 8 * 64 * 4.0}
    names = {program.name(task) for task in range(program.size)}
    assert {
        "conv2 partial sums, reduce-scatter over 2",
        "conv2 partial sums, gradient, all-gather over 2",
        "conv2 weight gradient [3]",
    } <= names


@st.composite
def reducing_questions(draw, models=SMALL_MODELS):
    """A cost model, and a strategy of which most layers that may do split what they sum over."""
    spec = draw(st.sampled_from(cluster_names()))
    count = draw(st.integers(2, min(8, max(2, device_count(spec)))))
    graph = load_model(draw(st.sampled_from(models)), batch=draw(st.sampled_from([1, 2, 8])))
    scheme, norm = draw(st.sampled_from(list(ALL_REDUCES))), draw(st.sampled_from(["local", "reduced"]))
    model = CostModel(graph, cluster_of(spec, count), scheme, norm)
    return model, random_reducing_strategy(graph, count, np.random.default_rng(draw(st.integers(0, 2**32))))


@settings(max_examples=12, deadline=None)
@given(reducing_questions())
def test_slices_are_a_share_of_the_work_and_of_what_is_trained(question):
    """All parts together multiply and train at least what the whole layer does, and no more where all divides."""
    model, strategy = question
    for layer, space in zip(model.graph.layers, model.spaces_of(strategy), strict=True):
        if space.completed[0] == 1:
            continue
        whole = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
        divides = not layer.operation.summed_size(layer.input_shapes) % space.completed[0]
        for phase in LAYER_PHASES[:3]:
            parts = layer.kernels(phase, part_sizes(space)).flop.sum()
            flop = layer.kernels(phase, whole).flop[0]
            assert parts == pytest.approx(flop) if divides else parts >= flop * (1 - 1e-12)


def test_weights_of_a_slice_are_exchanged_among_its_replicas_only():
    """Two samples x two slices: each pair exchanges half the weights, and a half of the bias with them."""
    graph = network()
    strategy = {**named_strategy("data", graph, 4), "fc1": Configuration.of({"sample": 2, SUMMED: 2}, (0, 1, 2, 3))}
    program = program_of(CostModel(graph, star(4), "ring"), strategy)
    rows = [
        c for t, c in program.collectives.items() if program.layer[t] == graph.index["fc1"] and program.consumer[t] < 0
    ]
    assert {c.devices for c in rows} == {(0, 2), (1, 3)}
    parameters = sum(p.elements for p in graph.layers[graph.index["fc1"]].parameters)
    assert {c.buffer_bytes for c in rows} == {parameters / 2 * 4}


# Prices


def test_parts_are_priced_by_their_slice():
    """A quarter of the input channels: a quarter of the arithmetic, in a shorter product."""
    space = space_of(layer_of("conv2"), Configuration.of({SUMMED: 4}, (0, 1, 2, 3)), 4)
    work = layer_of("conv2").kernels("forward", space.largest_part())
    assert work.flop == [2 * 16 * 8 * 64 * 2 * 9]
    assert work.depth == [2 * 9]
    assert work.memory_bytes == [4 * (8 * 2 * 64 + 16 * 2 * 9 + 8 * 16 * 64)]


def test_measured_layers_price_their_slices():
    """By the roofline's ratio between a slice and the whole sum."""
    profile, layer = CostModel(network(), cluster_of("titanx-4", 4)).profiles[0], layer_of("conv2")
    part = space_of(layer, Configuration.of({SUMMED: 4}, (0, 1, 2, 3)), 4).largest_part()
    full = {dim: size for dim, size in part.items() if dim != SUMMED}
    plain_s = [kernel_s(profile, "small", layer, "forward", sizes) for sizes in (part, full)]
    assert plain_s[0] < plain_s[1]
    measured = replace(profile, parts={("small", "conv2", "forward"): MeasuredParts(((8, 16, 8, 8),), (3.0,))})
    assert kernel_s(measured, "small", layer, "forward", part) == pytest.approx(3.0 * plain_s[0] / plain_s[1])


# Strategies


def degrees_of(strategy):
    return {name: {d: n for d, n in c.degrees.items() if n > 1} for name, c in strategy.items()}


def test_channel_splits_inputs_but_those_of_the_data():
    assert degrees_of(named_strategy("channel", network(), 4)) == {
        "conv1": {"channel": 4},
        "conv2": {SUMMED: 4},
        "pool1": {"channel": 4},
        "conv3": {SUMMED: 4},
        "fc1": {SUMMED: 4},
        "fc2": {SUMMED: 4},
        "softmax": {},
    }


def test_channel_splits_as_far_as_input_and_output_divide():
    """Of 20 and 50 channels 2 on 4 devices; a convolution of groups by its outputs."""
    assert degrees_of(named_strategy("channel", load_model("lenet5", batch=8), 4))["conv2"] == {SUMMED: 2}
    alexnet = degrees_of(named_strategy("channel", load_model("alexnet", batch=8), 4))
    assert alexnet["conv1"] == {"channel": 4}
    assert {row.get(SUMMED, 0) for name, row in alexnet.items() if name.startswith("fc")} == {4}


def test_filter_is_model():
    assert ALIASES == {"filter": "model"}
    assert named_strategy("filter", network(), 4) == named_strategy("model", network(), 4)
    assert {"filter", "channel"} <= set(strategy_names())
    assert not any(SUMMED in c.degrees for name in NAMED for c in named_strategy(name, network(), 4).values())


@pytest.mark.parametrize("p", [2, 4])
def test_volume_is_two_thirds_of_paradls(p):
    """Worked by hand: nothing moves but shares of sums, their gradients, and the outputs that the loss gathers.

    Each of p devices receives p - 1 shares of B |y| / p forward, and as many backward: row Channel has 3 times p - 1,
    of an all-reduce forward (2) and an all-gather backward (1).  A reduce-scatter is enough forward, because the next
    layer reads only the share that is there.
    """
    graph, batch = network(), 8
    program = program_of(CostModel(graph, star(p)), named_strategy("channel", graph, p))
    elements = {"conv2": 16 * 64, "conv3": 8 * 4, "fc1": 12, "fc2": 4}
    moved = {}
    for task in np.flatnonzero((program.kind == TRANSFER) | program.moves_activations).tolist():
        ends = graph.layers[program.layer[task]].name, graph.layers[program.consumer[task]].name
        moved[ends] = moved.get(ends, 0.0) + program.size_bytes[task]
    each = {(name, name): 2 * (p - 1) * batch * count * 4.0 for name, count in elements.items()}
    assert moved == {**each, ("fc2", "softmax"): 2 * (p - 1) / p * batch * 4 * 4.0}
    tensors = np.array([batch * count * 4.0 for count in elements.values()])
    printed, needed = (activation_collectives_s(p, tensors, 0.0, 1.0, passes=passes) for passes in (3, 2))
    per_device = sum(each.values()) / p
    assert per_device == needed == pytest.approx(2 / 3 * printed, rel=1e-15)


@pytest.mark.parametrize("p", [4, 16])
def test_the_closed_form_of_channel_is_the_replay(p):
    """Read as programs send, on links that all cost their bytes alone: what is left is the loss, on one device."""
    graph, cluster = load_model("alexnet", batch=64), star(p, latency_s=0.0)
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
    assert {graph.layers[i].name for i in program.consumer[program.kind == TRANSFER].tolist()} == {"softmax"}
    within = program.moves_activations & (program.layer == program.consumer)
    assert len(set(program.layer[within].tolist())) == 12 + 3
