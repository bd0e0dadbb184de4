"""Compression that is asked for: schemes that can, where it pays, plan files, the command line, what is refused."""

import dataclasses
import json

import pytest
from coded_plans import lowered, pair
from plans import cluster_of, inception_module, star

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.compression.data_types import COMPRESSIONS
from planner.compression.settings import UNCOMPRESSED, CompressionSettings, compressed_of
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.analysis import analyse
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.search.compression_choice import choose_compressed_layers
from planner.simulation.additive_cost import additive_s
from planner.simulation.graph_export import write_replayed_graph
from planner.simulation.lower_bound import iteration_bound
from planner.simulation.program_replay import replay
from planner.strategies.micro_batches import WHOLE_BATCH
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import recompute_of
from simulator.collectives.schemes import ALL_REDUCES

SAME = 1e-9


def test_auto_exchanges_codes_by_the_cheapest_scheme_that_can():
    graph = load_model("lenet5", batch=64)
    strategy = named_strategy("data", graph, 4)
    for kind, schemes in (("dynamic-tree", ("direct", "ps", "ps-spread")), ("float16", ALL_REDUCES)):
        compressed = CompressionSettings(gradients=kind)
        times = [
            additive_s(CostModel(graph, cluster_of("titanx-4", 4), s), strategy, WHOLE_BATCH, compressed)
            for s in schemes
        ]
        auto = additive_s(CostModel(graph, cluster_of("titanx-4", 4), "auto"), strategy, WHOLE_BATCH, compressed)
        assert auto <= min(times) * (1 + SAME)


def test_compression_is_chosen_where_it_pays():
    """Over slow links all large tensors are worth it; where coding is dear and links fast, nothing is."""
    graph = load_model("digits", batch=64)
    strategy, allowed = (
        named_strategy("owt", graph, 4),
        CompressionSettings(gradients="dynamic-tree", activations="dynamic-tree"),
    )
    slow = CostModel(graph, star(4, bandwidth=1e6), "direct")
    chosen, notes = choose_compressed_layers(slow, strategy, WHOLE_BATCH, allowed)
    assert "fc1" in chosen.activation_layers or "conv2" in chosen.activation_layers or chosen.gradient_layers
    times = [replay(lowered(slow, strategy, what)).iteration_s for what in (chosen, UNCOMPRESSED, allowed)]
    assert times[0] == min(times) < times[1]
    assert "none compressed: " in notes[0]
    fast = CostModel(graph, star(4, bandwidth=1e15, latency_s=0.0), "direct")
    chosen, _ = choose_compressed_layers(fast, strategy, WHOLE_BATCH, allowed)
    assert chosen.gradient_layers == chosen.activation_layers == ()


def test_trials_compute_again_what_the_plan_does():
    """The times told are those of programs with recomputation, with none compressed and with all."""
    graph = load_model("lenet5", batch=256)
    model, strategy = CostModel(graph, star(4, bandwidth=1e10), "direct"), named_strategy("owt", graph, 4)
    allowed = CompressionSettings(gradients="dynamic-tree", activations="dynamic-tree")
    again = recompute_of(graph, "pool1", WHOLE_BATCH)
    chosen, (note,) = choose_compressed_layers(model, strategy, WHOLE_BATCH, allowed, recompute=again)
    spaces = spaces_of(graph, strategy, 4)
    best_s, plain_s, all_s = (
        replay(lower(model, spaces, compressed=what, recompute=again)).iteration_s
        for what in (chosen, UNCOMPRESSED, allowed)
    )
    best_ms, plain_ms, all_ms = (f"{1e3 * seconds:.4g} ms" for seconds in (best_s, plain_s, all_s))
    assert note.endswith(f"{best_ms} simulated (none compressed: {plain_ms}; all: {all_ms})")
    assert plain_ms != f"{1e3 * replay(lower(model, spaces)).iteration_s:.4g} ms"


def test_codes_that_do_not_fit_are_not_chosen():
    """Over slow links all gradients pay, but not in devices that have no room for residuals and codes."""
    graph, cluster = load_model("lenet5", batch=64), star(4, bandwidth=1e6)
    strategy, allowed = named_strategy("data", graph, 4), CompressionSettings(gradients="dynamic-tree")
    spaces, adam = spaces_of(graph, strategy, 4), MemoryPolicy(optimizer="adam")
    needed = peak_memory_bytes(lower(CostModel(graph, cluster, "direct"), spaces), adam).max()
    found = {}
    for room in (1e9, needed * 1.001):
        devices = [dataclasses.replace(device, memory_bytes=room) for device in cluster.devices]
        small = DeviceGraph("small", devices, cluster.vertices[4:], cluster.links)
        model = CostModel(graph, small, "direct", conditions=Conditions(optimizer="adam"))
        chosen, (note,) = choose_compressed_layers(model, strategy, WHOLE_BATCH, allowed)
        assert (peak_memory_bytes(lower(model, spaces, compressed=chosen), adam) <= room).all()
        assert ("does not fit" in note) == (room < 1e9)
        found[room] = set(chosen.gradient_layers)
    assert found[needed * 1.001] < found[1e9]


def test_whoever_reads_programs_copes(tmp_path):
    graph = inception_module(batch=8)
    model = CostModel(graph, star(4), "ps-spread")
    compressed = CompressionSettings(gradients="dynamic-tree", activations="linear")
    strategy = named_strategy("owt", graph, 4)
    program = lowered(model, strategy, compressed)
    analysis = analyse(program, lambda other: lowered(model.on(other, model.conditions), strategy, compressed))
    assert analysis.path.seconds_by("kind")["compress"] > 0
    assert iteration_bound(program)[0] <= analysis.replay.iteration_s * (1 + SAME)
    assert sum(dataclasses.astuple(analysis.shares)[1:]) == pytest.approx(analysis.replay.iteration_s)
    analysis.replay.write_trace(tmp_path / "trace.json")
    write_replayed_graph(analysis.replay, tmp_path / "graph.json")
    assert "concat to fc, compress [0]" in (tmp_path / "graph.json").read_text()
    assert "compress" in (tmp_path / "trace.json").read_text()


def test_plans_keep_what_is_compressed(tmp_path):
    graph, cluster = load_model("lenet5", batch=64), star(4)
    wanted = {"compress_gradients": "one-bit", "compress_activations": "float16", "activation_layers": ("fc1",)}
    plan = make_plan(graph, cluster, strategy="owt", gradient_sync="ps-spread", **wanted)
    path = tmp_path / "plan.json"
    save_plan(plan, path)
    assert load_plan(path) == plan
    assert replay(lower_plan(load_plan(path), graph, cluster)).iteration_s == plan.simulated_s
    content = json.loads(path.read_text())
    del content["compressed"]
    path.write_text(json.dumps(content))
    assert load_plan(path).compressed == UNCOMPRESSED
    path.write_text(json.dumps({**content, "compressed": {"gradients": "one-byte"}}))
    with pytest.raises(ConfigError, match=r"plan file .*: compressed: data type must be one of .*, got 'one-byte'"):
        load_plan(path)


def test_the_command_line_compresses(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    words = ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "64", "--strategy", "data", "--out", str(plan)]
    types = ["--gradient-sync", "direct", "--compress-gradients", "dynamic-tree", "--compress-where", "pays", "--json"]
    assert run_app(app, [*words, *types]) == 0
    assert "Compressing " in json.loads(capsys.readouterr().out)["notes"][0]
    assert load_plan(plan).compressed.gradients == "dynamic-tree"
    assert run_app(app, ["simulate", str(plan), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == list(load_plan(plan).notes)
    assert run_app(app, [*words, "--gradient-sync", "ring", "--compress-gradients", "one-bit"]) == 2
    assert "gradient_sync must be direct, ps, ps-spread or auto" in capsys.readouterr().err


@pytest.mark.parametrize("strategy", ["data", "layerwise"])
def test_where_compression_pays_is_not_asked_of_nothing(strategy):
    with pytest.raises(ConfigError, match="compress_where must be all where nothing is compressed, got 'pays'"):
        make_plan(pair(batch=4), star(2), strategy=strategy, compress_where="pays")


def test_plain_floats_of_the_network_compress_nothing():
    assert not compressed_of(pair(), "ring", gradients="float32", activations="float32")
    assert {"float16", "float32"} <= set(COMPRESSIONS)


@pytest.mark.parametrize(
    ("gradient_sync", "fields", "words"),
    [
        ("ring", {"gradients": "dynamic-tree"}, "gradient_sync must be direct, ps, ps-spread or auto .* got 'ring'"),
        ("direct", {"gradients": "dynamic-bush"}, "data type must be one of .*dynamic-tree"),
        ("direct", {"activations": "one-bit"}, "compress_activations must be a type without a residual, got 'one-bit'"),
        ("direct", {"activations": "linear", "activation_layers": ["fc9"]}, "activation_layers must be .* got 'fc9'"),
        ("direct", {"gradients": "linear", "gradient_layers": ["fc9"]}, "gradient_layers must be .* got 'fc9'"),
    ],
)
def test_what_cannot_be_compressed_is_refused(gradient_sync, fields, words):
    with pytest.raises(ConfigError, match=words):
        compressed_of(pair(), gradient_sync, **fields)


def test_lowering_and_searching_refuse_it_too():
    graph = pair(batch=4)
    with pytest.raises(ConfigError, match="whose messages cannot be summed"):
        lowered(CostModel(graph, star(2)), named_strategy("data", graph, 2), CompressionSettings(gradients="linear"))
    with pytest.raises(ConfigError, match=r"compression must be none for layerwise, .* got 'linear'"):
        make_plan(graph, star(2), strategy="layerwise", compress_gradients="linear")
