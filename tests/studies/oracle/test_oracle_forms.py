"""Table 1 by hand: a network of three convolutions whose times, sizes, alpha and beta are whole numbers."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from plans import ALPHA_S, BYTES_PER_S, cluster_of, star

from planner.graph.computation_graph import LAYER_PHASES
from planner.layouts.regions import held_regions, needed_regions
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.search.pipeline_stages import balanced
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.topology.network_routes import routes_of_cluster
from studies.oracle import alpha_beta as wires, forms, projected_rows
from studies.oracle.layer_sizes import Sizes
from studies.oracle.oracle_request import OracleRequest
from studies.oracle.projection import oracle

B, D, DELTA = 8, 80, 4
FORWARD_S, BACKWARD_S, UPDATE_S = (1.0, 2.0, 3.0), (2.0, 5.0, 4.0), (0.5, 0.25, 1.0)
"""Of one sample, and of one update."""
Y, W, BIAS = 4 * 8 * 8, 4 * 4 * 9, 4
"""4 channels of 8 x 8 in and out of every layer, windows of 3 x 3."""
ALPHA, BETA = ALPHA_S, 1 / BYTES_PER_S
COMPUTE_S = B * (sum(FORWARD_S) + sum(BACKWARD_S))
TABLE_1 = {"compute": "ideal", "memory_reuse": 1.0, "optimizer_copies": 0, "segments": 4, "group": 2}


def three_convolutions():
    net = ModelBuilder("three", batch=B, image=(4, 8, 8))
    for _ in range(3):
        net.conv(4, 3, pad=1)
    return net.build()


def given_times(_model, sizes, splits):
    """The times above in place of a profile's."""
    samples = np.array([[split.samples] for split in splits])
    backward = samples * BACKWARD_S
    rows = (samples * FORWARD_S, backward / 4, backward * 3 / 4, np.ones_like(samples) * UPDATE_S)
    return dict(zip(LAYER_PHASES, rows, strict=True))


@pytest.fixture
def row(monkeypatch):
    """A strategy's row on p devices of a star."""
    monkeypatch.setattr(projected_rows, "layer_times", given_times)

    def projected(strategy, p, **changes):
        options = TABLE_1 | changes
        table = oracle(
            three_convolutions(),
            star(8),
            OracleRequest(dataset=str(D), devices=(p,), strategies=(strategy,), **options),
        )
        (found,) = table.rows
        assert found.epoch_s == pytest.approx(D / B * found.iteration_s)
        return found

    return projected


def test_row_serial(row):
    serial = row("serial", 1)

    assert serial.compute_s == pytest.approx(COMPUTE_S + sum(UPDATE_S))
    assert serial.communication_s == 0
    assert serial.memory_bytes == DELTA * 3 * (2 * B * (Y + Y) + 2 * W + BIAS)


def test_row_data(row):
    data = row("data", 4)

    assert data.compute_s == pytest.approx(COMPUTE_S / 4 + sum(UPDATE_S))
    assert data.communication_s == data.gradient_sync_s
    # biases travel too
    assert data.communication_s == pytest.approx(2 * 3 * (ALPHA + 3 * (W + BIAS) / 4 * DELTA * BETA), rel=1e-12)
    assert data.memory_bytes == DELTA * 3 * (2 * B / 4 * (Y + Y) + 2 * W + BIAS)
    each = row("data", 4, gradients="layers").communication_s
    assert each - data.communication_s == pytest.approx(2 * 3 * 2 * ALPHA, rel=1e-9)


def test_row_spatial(row):
    """Parts of 4 x 4 need 5 x 5: 9 positions of 4 channels, half of them from each of two neighbours."""
    spatial = row("spatial", 4)
    halo = 9 * 4 / 2

    assert spatial.degrees == "2 x 2"
    assert spatial.compute_s == pytest.approx(COMPUTE_S / 4 + sum(UPDATE_S))
    assert spatial.gradient_sync_s == row("data", 4).gradient_sync_s
    # the loader brings the first layer's
    assert spatial.halo_s == pytest.approx(2 * 2 * (2 * ALPHA + B * (halo + halo) * DELTA * BETA), rel=1e-12)
    assert spatial.memory_bytes == DELTA * 3 * (2 * B / 4 * (Y + Y) + 2 * W + BIAS)
    assert spatial.limit == 64


def test_row_layer(row):
    layer = row("layer", 3)

    assert layer.compute_s == pytest.approx((3 + 4 - 1) * B / 4 * (3.0 + 5.0) + 1.0)
    assert layer.pipeline_s == pytest.approx(2 * (3 + 4 - 2) * (ALPHA + B / 4 * Y * DELTA * BETA), rel=1e-12)
    assert layer.memory_bytes == DELTA * (2 * B * (Y + Y) + 2 * W + BIAS)
    assert (layer.limit, layer.degrees) == (3, "S = 4")


@pytest.mark.parametrize("strategy", ["filter", "channel"])
def test_rows_filter_and_channel(row, strategy):
    found = row(strategy, 4)

    assert found.compute_s == pytest.approx(COMPUTE_S / 4 + sum(UPDATE_S) / 4)
    assert found.communication_s == pytest.approx(3 * 3 * 2 * (ALPHA + B * Y / 4 * DELTA * BETA), rel=1e-12)
    assert found.memory_bytes == DELTA * 3 * (2 * B * (Y + Y) + 2 * W / 4 + BIAS)
    assert found.limit == 4


def test_row_data_filter(row):
    both = row("data+filter", 4)

    assert both.compute_s == pytest.approx(COMPUTE_S / 4 + sum(UPDATE_S) / 2)
    assert both.activations_s == pytest.approx(3 * 1 * 2 * (ALPHA + B * Y / 4 * DELTA * BETA), rel=1e-12)
    assert both.gradient_sync_s == pytest.approx(2 * (ALPHA + 3 * (W + BIAS) / 4 * DELTA * BETA), rel=1e-12)
    assert both.memory_bytes == DELTA * 3 * (2 * B / 2 * (Y + Y) + 2 * W / 2 + BIAS)
    assert (both.degrees, both.limit) == ("2 x 2", B * 4)


def test_data_and_spatial(row):
    """Halos within groups of two, which halve 8 rows: one row of 8 positions; gradients over all."""
    both = row("data+spatial", 4)
    halo = 8 * 4 / 2

    assert both.gradient_sync_s == row("data", 4).gradient_sync_s
    assert both.halo_s == pytest.approx(2 * 2 * (2 * ALPHA + B / 2 * 2 * halo * DELTA * BETA), rel=1e-12)
    assert both.memory_bytes == DELTA * 3 * (2 * B / 4 * (Y + Y) + 2 * W + BIAS)


@pytest.mark.parametrize("strategy", ["data", "spatial", "layer", "filter", "channel"])
def test_one_device_is_serial(row, strategy):
    alone, serial = row(strategy, 1, segments=1), row("serial", 1)

    for field in ("compute_s", "communication_s", "iteration_s", "memory_bytes"):
        assert getattr(alone, field) == getattr(serial, field)


def test_gamma_shrinks_activations_only(row):
    whole, half, none = (row("serial", 1, memory_reuse=gamma).memory_bytes for gamma in (1.0, 0.5, 0.0))

    assert none == DELTA * 3 * (2 * W + BIAS)
    assert half == pytest.approx((whole + none) / 2)
    assert row("serial", 1, optimizer_copies=1).memory_bytes - whole == DELTA * 3 * W


def test_the_forms_broadcast():
    """All numbers of devices at once, each as alone."""
    p, sizes = np.array([1, 2, 16, 1024]), np.array([4e6, 0.0, 1e3])
    alpha, beta = np.full((4, 3), ALPHA), np.full(4, BETA)
    together = forms.gradient_all_reduce_s(p, sizes, alpha, beta)

    assert together[0] == 0
    assert together == pytest.approx([2 * (n - 1) * (2 * ALPHA + (4e6 + 1e3) / n * BETA) for n in p.tolist()])
    gathered = forms.activation_collectives_s(p, sizes, alpha, beta)
    assert gathered == pytest.approx(1.5 * together)


@given(
    stage_s=st.lists(st.floats(0.0, 9.0), min_size=1, max_size=6), segments=st.integers(1, 9), scale=st.floats(0.1, 9)
)
def test_the_pipeline_is_bounded_by_its_slowest_stage_and_linear(stage_s, segments, scale):
    stages = np.array(stage_s)
    total = forms.pipeline_computation_s(stages, 2 * stages, stages, segments)

    assert total >= segments * 3 * stages.max()
    assert forms.pipeline_computation_s(scale * stages, 2 * scale * stages, scale * stages, segments) == pytest.approx(
        scale * total
    )


@given(layer_s=st.lists(st.integers(0, 20), min_size=1, max_size=8), data=st.data())
def test_stages_are_balanced_as_well_as_any_cut(layer_s, data):
    stages = data.draw(st.integers(1, len(layer_s)))
    times = np.array(layer_s, dtype=np.float64)
    bounds = balanced(times, stages)

    def slowest(cuts):
        return max(times[a:b].sum() for a, b in zip((0, *cuts), (*cuts, len(times)), strict=True))

    assert bounds[0] == 0
    assert bounds[-1] == len(times)
    assert (np.diff(bounds) > 0).all()
    best = min(slowest(cuts) for cuts in combinations(range(1, len(times)), stages - 1))
    assert slowest(tuple(bounds[1:-1].tolist())) == pytest.approx(best)


@pytest.mark.parametrize("model", ["vgg11", "cosmoflow", "conv1d"])
@pytest.mark.parametrize("p", [2, 4, 8])
def test_halos_are_those_of_the_regions(model, p):
    """What a part needs and does not hold, by the boxes that the lowering cuts transfers from."""
    graph = load_model(model, batch=2)
    sizes, spaces = Sizes(graph), spaces_of(graph, named_strategy("spatial", graph, p), p)
    for edge in graph.edges:
        producer, consumer = spaces[edge.producer], spaces[edge.consumer]
        grid = tuple(consumer.degrees[0, 2:].tolist())
        alike = grid == tuple(producer.degrees[0, 2:].tolist())
        if sizes.flat[edge.consumer] or sizes.flat[edge.producer] or not alike:
            continue
        layer = graph.layers[edge.consumer]
        source = graph.layers[edge.producer].output
        boxes, own = (
            needed_regions(consumer, layer.operation.interval_maps(edge.slot, layer.input_shapes), source),
            held_regions(producer),
        )
        shared = (np.minimum(boxes.high, own.high) - np.maximum(boxes.low, own.low)).clip(0).prod(axis=1)
        assert sizes._halo_x(edge, grid) == (boxes.volume - shared).max() / graph.batch


def test_rings_that_leave_a_node_share_its_cards():
    """Four rings over 16 GPUs with two cards a node: two of them meet at each card of 10.2 GB/s."""
    network = routes_of_cluster(cluster_of("abci-v100", 16))

    assert wires.ring(network, wires.columns(16, 4)).beta_s_per_byte == pytest.approx(2 / 10.2e9)
    assert wires.ring(network, wires.rows(16, 16)).beta_s_per_byte == pytest.approx(1 / 10.2e9)
    assert wires.ring(network, wires.rows(16, 4)).beta_s_per_byte == pytest.approx(1 / 44e9)


@pytest.mark.parametrize("group", [1, 2, 4])
def test_a_few_nodes_stand_for_all(group, monkeypatch):
    """Three racks of ABCI: what is read off the representative nodes is what all messages give."""
    network = routes_of_cluster(cluster_of("abci-v100:nodes=36", 144))
    groups = wires.columns(144, group) if group > 1 else wires.rows(144, 144)

    few = wires.ring(network, groups)
    monkeypatch.setattr(wires, "_ALL", 10_000)
    everyone = wires.ring(network, groups)

    assert few.beta_s_per_byte == pytest.approx(everyone.beta_s_per_byte, rel=1e-12)
    assert few.alpha_s(np.array([1e6])) == everyone.alpha_s(np.array([1e6]))
