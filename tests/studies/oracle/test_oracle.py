"""The oracle against the replay of lowered plans, its limits, its memory and what it refuses."""

import math

import pytest
from hypothesis import given, strategies as st
from plans import cluster_of, star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from studies.oracle.oracle_request import STRATEGIES, OracleRequest, device_counts, samples_of, strategy_list
from studies.oracle.projection import oracle

LIKE_PROGRAMS = {"gradients": "layers", "activations": "direct"}
CNNS = ("alexnet", "vgg16", "resnet18", "googlenet")


def program_of(graph, cluster, name):
    count = len(cluster.devices)
    return lower(CostModel(graph, cluster), spaces_of(graph, named_strategy(name, graph, count), count))


def replayed_s(program):
    return replay(program, overlap=False, contention=False, iterations=1).iteration_s


def row_of(graph, cluster, strategy, options=LIKE_PROGRAMS):
    table = oracle(
        graph,
        cluster,
        OracleRequest(dataset=str(10**6), devices=(len(cluster.devices),), strategies=(strategy,), **options),
    )
    return table.rows[0]


@pytest.mark.parametrize("spec", [*cluster_names()[::2], "star"])
def test_data_equals_the_replay_without_overlap_on_every_cluster(spec):
    """Ring, arithmetic and updates, to rounding; a link's latency by size and all levels included."""
    cluster = star(8) if spec == "star" else cluster_of(spec, min(8, len(load_cluster(spec).devices)))
    graph = load_model("alexnet", batch=64)

    row = row_of(graph, cluster, "data")

    assert row.iteration_s == pytest.approx(replayed_s(program_of(graph, cluster, "data")), rel=1e-9)


@pytest.mark.parametrize(("model", "count"), [*((model, 16) for model in CNNS), ("alexnet", 4)])
def test_data_equals_the_replay_for_every_network(model, count):
    graph, cluster = load_model(model, batch=32), cluster_of("abci-v100", count)

    row, program = row_of(graph, cluster, "data"), program_of(graph, cluster, "data")

    assert row.iteration_s == pytest.approx(replayed_s(program), rel=1e-9)
    # the table counts a bias once; gradients and momentum of biases are the rest
    numbers = ("parameters", "optimizer state", "parameter gradients", "statistics")
    held = peak_memory_bytes(program, without=numbers).max() + 3 * 4 * graph.parameter_count
    assert row.memory_bytes == pytest.approx(float(held), rel=5e-4)
    # which leaves out the gradient of the layer at hand, before it goes into the buffer that is exchanged
    held = peak_memory_bytes(program, without=("parameter gradients",)).max() + 4 * graph.parameter_count
    largest = 4 * max(layer.parameter_count for layer in graph.layers)
    assert 0 <= peak_memory_bytes(program).max() - held <= largest


@pytest.mark.parametrize(
    ("model", "count", "flat"),
    [("alexnet", 4, True), ("alexnet", 16, False), ("resnet50", 16, True)],
)
def test_filter_equals_the_replay(model, count, flat):
    """But for the loss, which a plan has on one device and the table leaves out."""
    graph, cluster = load_model(model, batch=32), star(count) if flat else cluster_of("abci-v100", count)

    assert row_of(graph, cluster, "filter").iteration_s == pytest.approx(
        replayed_s(program_of(graph, cluster, "model")), rel=6e-3
    )


@pytest.mark.parametrize("count", [2, 4, 8])
def test_spatial_equals_the_replay_where_all_sizes_divide(count):
    """Halos, gradients and arithmetic of convolutions; the loss on one device is the rest."""
    net = ModelBuilder("halos", batch=8, image=(3, 64, 64))
    for channels, kernel, stride in ((16, 3, 1), (32, 5, 1), (32, 3, 2), (16, 1, 1)):
        net.conv(channels, kernel, stride=stride, pad=kernel // 2)
    net.pool("max", 2)
    graph, cluster = net.build(), star(count)

    row = row_of(graph, cluster, "spatial")

    assert row.halo_s > 0
    assert row.iteration_s == pytest.approx(replayed_s(program_of(graph, cluster, "spatial")), rel=1e-9)


def test_the_table_moves_half_as_much_again_as_programs():
    """Table 1 sums all of a gradient on every device, 3 (p - 1) rounds; only a p-th is needed, 2 (p - 1)."""
    graph, cluster = load_model("vgg16", batch=32), star(8, latency_s=0.0)

    table, program = (row_of(graph, cluster, "filter", options) for options in ({}, LIKE_PROGRAMS))

    assert table.activations_s == pytest.approx(1.5 * program.activations_s)


@pytest.fixture(scope="module")
def table():
    """ResNet-50 on ABCI, up to 64 GPUs."""
    cluster = load_cluster("abci-v100:nodes=16")
    return oracle(
        load_model("resnet50", batch=32),
        cluster,
        OracleRequest(
            dataset="imagenet",
            devices=device_counts("1..64"),
            batch_per_device=32,
            epochs=90,
            budget_gpu_hours=120.0,
        ),
    )


def test_rows_add_up(table):
    for row in table.rows:
        assert row.compute_s == pytest.approx(row.forward_backward_s + row.update_s)
        parts = row.gradient_sync_s + row.activations_s + row.halo_s + row.pipeline_s
        assert row.communication_s == pytest.approx(parts)
        assert row.iteration_s == pytest.approx(row.compute_s + parts)
        assert row.epoch_s == pytest.approx(1_281_167 / row.batch * row.iteration_s)
        assert row.gpu_hours == pytest.approx(90 * row.devices * row.epoch_s / 3600)
        assert row.within_budget == (row.gpu_hours <= 120)
        assert row.batch == (32 * row.devices if row.strategy.startswith("data") else 32)


def test_winners_are_the_shortest_epochs_that_fit(table):
    for p, name in table.winners.items():
        fitting = [row for row in table.rows if row.devices == p and row.fits]
        assert table.row(name, p).epoch_s == min(row.epoch_s for row in fitting)
    best = table.affordable
    assert best.epoch_s == min(row.epoch_s for row in table.rows if row.fits and row.within_budget)
    assert table.fastest.epoch_s <= best.epoch_s


@pytest.mark.parametrize("strategy", ["data", "spatial", "filter", "channel"])
def test_more_devices_compute_less_and_hold_less(table, strategy):
    """An epoch's arithmetic and a device's memory never grow with the devices."""
    rows = [row for row in table.rows if row.strategy == strategy]

    arithmetic = [row.forward_backward_s / row.batch for row in rows]
    memory = [row.memory_bytes for row in rows]
    assert len(rows) >= 5
    assert arithmetic == sorted(arithmetic, reverse=True)
    assert memory == sorted(memory, reverse=True)


def test_figure_1s_shape(table):
    """Data parallelism scales; filter and channel wait for activations as soon as they leave a node."""
    filters = {row.devices: row for row in table.rows if row.strategy == "filter"}
    data = {row.devices: row for row in table.rows if row.strategy == "data"}

    assert data[64].iteration_s < 1.3 * data[4].iteration_s
    assert filters[4].communication_s > filters[4].compute_s
    assert filters[8].communication_s > 8 * filters[8].compute_s
    assert table.winners[64] == "data"


LIMITS = {
    "serial": (1, "it is one device"),
    "data": (64, "p <= B: a mini-batch has 64 samples"),
    "spatial": (49, "p <= min(W x H): pool5 has 7 x 7 positions"),
    "layer": (22, "p <= G: vgg16 has 22 layers"),
    "filter": (64, "p <= min(F): conv1_1 has 64 filters"),
    "channel": (64, "p <= min(C): conv1_1 has 64 filters"),
    "data+filter": (64 * 64, "p1 <= B: a mini-batch has 64 samples; p2 <= min(F): conv1_1 has 64 filters"),
    "data+spatial": (64 * 49, "p1 <= B: a mini-batch has 64 samples; p2 <= min(W x H): pool5 has 7 x 7 positions"),
}


def test_limits_name_the_rule_and_the_layer():
    found = oracle(load_model("vgg16", batch=64), star(8), OracleRequest(dataset=str(10**6), devices=(2, 4)))

    assert {limit.strategy: (limit.devices, limit.reason) for limit in found.limits} == LIMITS
    assert tuple(LIMITS) == STRATEGIES


def test_volumes_limit_spatial_and_outputs_limit_filter():
    found = oracle(load_model("cosmoflow", batch=8), star(8), OracleRequest(dataset="cosmoflow", devices=(1, 2, 4, 8)))
    limits = {limit.strategy: limit for limit in found.limits}

    assert limits["spatial"].reason.endswith("has 2 x 2 x 2 positions")
    assert limits["filter"].devices == 4
    assert limits["filter"].refused == {8: "at most 4 devices: p <= min(F): fc3 has 4 filters"}
    assert {row.devices for row in found.rows if row.strategy == "spatial"} == {1, 2, 4, 8}


def test_a_large_volume_fits_only_where_it_is_split():
    cluster = load_cluster("abci-v100:nodes=2")
    found = oracle(
        load_model("cosmoflow:size=256", batch=8),
        cluster,
        OracleRequest(dataset="cosmoflow", devices=(1, 8), batch_per_device=8),
    )

    assert not found.row("data", 8).fits
    assert found.row("spatial", 8).fits
    assert found.winners == {8: "spatial"}


@pytest.mark.parametrize("model", ["vit-b16", "llama-1b:layers=2"])
def test_networks_whose_layers_have_unlike_positions_have_no_spatial_row(model):
    """No grid splits 14 x 14 positions and 197; every other strategy has its rows."""
    found = oracle(load_model(model, batch=8), load_cluster("titanx-4"), OracleRequest(dataset="1000", devices=(1, 4)))

    without = {"spatial", "data+spatial"}
    assert {row.strategy for row in found.rows} == set(STRATEGIES) - without
    assert {limit.strategy for limit in found.limits if limit.devices == 0} == without
    assert all("one grid must split all layers" in limit.reason for limit in found.limits if limit.devices == 0)


@given(p=st.sampled_from([2, 4, 6, 8]), batch=st.sampled_from([8, 24]), model=st.sampled_from(["lenet5", "vgg11"]))
def test_every_row_is_finite_and_within_its_limit(p, batch, model):
    found = oracle(load_model(model, batch=batch), star(8), OracleRequest(dataset="1000", devices=(p,)))

    assert any(row.devices == p for row in found.rows)
    for row in found.rows:
        assert row.devices <= row.limit
        assert 0 < row.iteration_s < math.inf
        assert 0 < row.memory_bytes < math.inf


def test_two_runs_agree_to_the_last_bit():
    first, second = (
        oracle(
            load_model("resnet18", batch=16),
            load_cluster("dgx1-p100"),
            OracleRequest(dataset="cifar10", devices=(1, 2, 4, 8)),
        )
        for _ in range(2)
    )

    assert first == second


def test_device_counts_double_and_end_with_the_last():
    assert device_counts("16..1024") == (16, 32, 64, 128, 256, 512, 1024)
    assert device_counts("3..20,4") == (3, 4, 6, 12, 20)
    assert strategy_list("") == ()
    assert strategy_list("data, filter,data") == ("data", "filter")
    assert samples_of("12") == samples_of(12) == 12


@pytest.mark.parametrize("text", ["", "0", "4..2", "1..2..3", "-4", "a", "4,,8", "1.5"])
def test_other_device_counts_are_refused(text):
    with pytest.raises(ConfigError, match="gpus must"):
        device_counts(text)


ASKED = {
    "beyond the cluster": ({"devices": (16,)}, "devices must be at most the 8 of star, got 16"),
    "no devices": ({"devices": ()}, "devices must be whole numbers >= 1"),
    "unknown strategy": ({"strategies": ("fitler",)}, "got 'fitler'; did you mean 'filter'"),
    "beyond a limit": (
        {"strategies": ("filter",), "devices": (8,), "classes": 4},
        r"devices must suit filter on lenet5:classes=4, got 8: at most 4 devices: p <= min\(F\): fc2 has 4 filters",
    ),
    "small data set": ({"dataset": "8"}, "batch must be at most the 8 samples of the data set, got 16"),
    "unknown data set": ({"dataset": "imagnet"}, "did you mean 'imagenet'"),
    "no samples": ({"dataset": "0"}, "a number of samples >= 1, got '0'"),
    "segments": ({"segments": 5}, "segments must divide the batch of the pipeline, 16, got 5"),
    "group": ({"strategies": ("data+filter",), "group": 3}, "groups of 3 devices do not divide 4"),
    "gamma": ({"memory_reuse": -0.1}, r"memory_reuse \(gamma\) must be a finite number >= 0, got -0.1"),
    "gamma nan": ({"memory_reuse": math.nan}, "finite"),
    "reading": ({"compute": "exact"}, "compute must be parts or ideal, got 'exact'"),
    "budget": ({"budget_gpu_hours": 0.0}, "budget_gpu_hours must be a finite number > 0"),
    "epochs": ({"epochs": 0}, "epochs must be a whole number >= 1"),
    "batch": ({"batch_per_device": 0}, "batch_per_device must be a whole number >= 1"),
}


@pytest.mark.parametrize("case", ASKED)
def test_bad_input_is_refused_in_one_line(case):
    changes, message = ASKED[case]
    changes = {"dataset": "100", "devices": (4,), **changes}
    graph = load_model(f"lenet5:classes={changes.pop('classes', 10)}", batch=16)

    with pytest.raises(ConfigError, match=message) as refused:
        oracle(graph, star(8), OracleRequest(**changes))
    assert "\n" not in str(refused.value)
