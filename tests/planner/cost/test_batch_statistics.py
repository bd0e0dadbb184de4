"""Batch normalisation by the statistics of the whole batch, and numbers of 8 bytes: priced, lowered, replayed alike."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import ALPHA_S, BYTES_PER_S, cluster_of, program_of, questions, random_strategy, star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names, load_cluster
from orrery.cli import app
from orrery.terminal.exit_codes import run_app
from planner.cost.cost_model import CostModel
from planner.cost.link_loads import LinkLoads
from planner.cost.sync_time import BATCH_NORMS
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.search.layerwise import search_layerwise
from planner.search.neighbours import Neighbours
from planner.simulation.additive_cost import additive_s
from planner.simulation.execution_models import build_program_graph
from planner.simulation.memory_over_time import buffers
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.collectives.schemes import ALL_REDUCES

SAME = 1e-9
FORWARD, ACTIVATION_GRADIENT, WEIGHT_GRADIENT, TRANSFER, COLLECTIVE = (
    KINDS.index(kind) for kind in ("forward", "activation_gradient", "weight_gradient", "transfer", "collective")
)
SMALL = ("conv1d", "resnet-cifar:depth=8")
COLUMNS = ("kind", "layer", "consumer", "slot", "backward", "device", "peer", "part", "size_bytes", "work_s")


def normalised(*, batch, element_bytes=4):
    """Both kinds of layers that normalise, a branch, and a stride that leaves rows unread."""
    net = ModelBuilder("normalised", batch=batch, image=(2, 8, 8), element_bytes=element_bytes)
    stem = net.conv(8, 3, pad=1, batch_norm=True, name="stem")
    short = net.conv(8, 1, stem, stride=2, batch_norm=True, activation=None, name="short")
    net.batch_norm(stem, name="norm")
    long = net.conv(8, 3, stride=2, pad=1, name="long")
    net.sum([short, long], name="sum")
    net.batch_norm(name="last")
    net.linear(4, name="fc")
    net.loss()
    return net.build()


@st.composite
def cases(draw, most_devices=8):
    """A model that normalises, on a piece of any cluster, with any scheme and size of numbers."""
    spec = draw(st.sampled_from(cluster_names()))
    cluster = cluster_of(spec, draw(st.integers(1, min(most_devices, len(load_cluster(spec).devices)))))
    size = {"batch": draw(st.sampled_from([1, 2, 6, 8])), "element_bytes": draw(st.sampled_from([4, 8]))}
    build = draw(st.sampled_from([normalised, *(partial(load_model, spec) for spec in SMALL)]))
    model = CostModel(build(**size), cluster, draw(st.sampled_from([*ALL_REDUCES, "auto"])), "reduced")
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return model, random_strategy(model.graph, len(cluster.devices), rng)


def forms(model, strategy):
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    return [lower(model, spaces, collectives=form) for form in ("activity", "steps")]


def local(model):
    return CostModel(model.graph, model.cluster, model.gradient_sync)


@settings(max_examples=8)
@given(cases())
def test_both_forms_replay_to_the_additive_cost(question):
    expected_s = additive_s(*question)
    for program in forms(*question):
        replayed = replay(program, overlap=False, contention=False, iterations=2)
        np.testing.assert_allclose(replayed.ends_s, expected_s * np.arange(1, 3), rtol=SAME)


@settings(max_examples=8)
@given(cases(most_devices=4), st.booleans(), st.booleans(), st.booleans())
def test_both_engines_replay_them_alike(question, expanded, overlap, contention):
    program = forms(*question)[expanded]
    clear, fast = (
        replay(program, overlap=overlap, contention=contention, iterations=2, engine=engine).schedule
        for engine in ("simpy", "compiled")
    )
    np.testing.assert_allclose(clear.end_s, fast.end_s, rtol=SAME, atol=SAME * fast.makespan_s)


@settings(max_examples=5)
@given(cases())
def test_loads_are_those_of_the_lowered_program(question):
    model, strategy = question
    total = LinkLoads(model).total(Neighbours(model).spaces(strategy))
    graph = build_program_graph(program_of(model, strategy)).graph
    owner = np.repeat(np.arange(graph.size), np.diff(graph.use_start))
    work_s = graph.use_weight * graph.work[owner] / graph.capacity[graph.use_resource]

    assert total[:-1] == pytest.approx(np.bincount(graph.use_resource, work_s, minlength=len(total) - 1), abs=1e-15)
    assert total[-1] == pytest.approx(additive_s(model, strategy))


def replica_sets(layer, configuration):
    """Parts that hold the same channels, by part."""
    degrees = [configuration.degrees.get(dim, 1) for dim in layer.output.dims]
    channel = np.unravel_index(np.arange(configuration.parts), degrees)[1]
    return [set(np.flatnonzero(channel == mine).tolist()) for mine in channel]


def waits(program, task):
    return set(program.after[program.after_start[task] : program.after_start[task + 1]].tolist())


def behind(program, task):
    """What a task waits for, itself or through collectives of statistics."""
    found, ahead = set(), waits(program, task)
    while ahead:
        new = ahead - found
        found |= new
        ahead = set().union(*(waits(program, other) for other in new if program.statistics[other]))
    return found


@settings(max_examples=8)
@given(cases(most_devices=6), st.booleans())
def test_statistics_come_between_tasks_that_stay_as_they_are(question, expanded):
    """Without them it is the program of local statistics; with them, whoever waits for a part waits for its group."""
    model, strategy = question
    program, plain = forms(model, strategy)[expanded], forms(local(model), strategy)[expanded]
    graph, kept = model.graph, np.flatnonzero(~program.statistics)
    new = dict(enumerate(kept.tolist()))  # the same task of the program with statistics
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(program, column)[kept], getattr(plain, column), column)
    waiting = np.repeat(np.arange(program.size), np.diff(program.after_start))
    assert np.all(program.after < waiting)
    assert np.all(np.diff(program.group) >= 0)
    assert np.all(program.kind[program.statistics] == COLLECTIVE)

    groups = [replica_sets(layer, strategy[layer.name]) for layer in graph.layers]
    partner = {}  # tasks of the parts that normalise together, by task: of one kind and layer
    for i in range(len(graph.layers)):
        for kind in (FORWARD, ACTIVATION_GRADIENT, WEIGHT_GRADIENT):
            tasks = np.flatnonzero((plain.kind == kind) & (plain.layer == i)).tolist()
            together = groups[i] if graph.layers[i].operation.statistics else [{p} for p in range(len(groups[i]))]
            partner.update({task: [tasks[p] for p in together[plain.part[task]]] for task in tasks})
    for task in range(plain.size):
        found, expected = behind(program, new[task]), waits(plain, task)
        assert {new[other] for other in expected} <= waits(program, new[task])
        if plain.kind[task] in (ACTIVATION_GRADIENT, WEIGHT_GRADIENT):
            expected = set().union(*(waits(plain, other) for other in partner[task]))
        expected |= {mate for other in expected if plain.kind[other] == FORWARD for mate in partner[other]}
        assert {other for other in found if not program.statistics[other]} == {new[other] for other in expected}


@pytest.mark.parametrize("gradient_sync", ["ring", "halving", "tree"])
def test_two_sums_a_channel_go_twice_to_every_replica(gradient_sync):
    """All-reduces among p replicas move 2 (p - 1) buffers: here of 2 x 8 / 2 channels, in two groups of two."""
    graph = normalised(batch=8)
    model = CostModel(graph, cluster_of("titanx-4", 4), gradient_sync, "reduced")
    strategy = named_strategy("data", graph, 4)
    strategy["stem"] = Configuration({"sample": 2, "channel": 2}, (0, 1, 2, 3))
    programs = forms(model, strategy)
    for program in programs:
        mine = program.statistics & (program.layer == graph.index["stem"])
        for backward in (False, True):
            moved = program.size_bytes[mine & (program.backward == backward)].sum()
            assert moved == pytest.approx(2 * 2 * (2 - 1) * 2 * 8 / 2 * 4)
    names = {programs[0].name(task) for task in programs[0].collectives}
    kinds = ("statistics", "gradient statistics", "gradient synchronisation")
    assert {f"stem {kind} over 2" for kind in kinds} <= names
    names = {programs[1].name(task) for task in np.flatnonzero(programs[1].statistics).tolist()}
    assert any(name.startswith("stem gradient statistics (") for name in names)


def test_parts_of_all_samples_and_positions_need_no_exchange():
    graph = normalised(batch=8)
    model = CostModel(graph, cluster_of("titanx-4", 4), "ring", "reduced")
    for program in forms(model, named_strategy("model", graph, 4)):
        assert not program.statistics.any()


@settings(max_examples=4)
@given(questions(models=("lenet5", "alexnet")))
def test_models_that_do_not_normalise_stay_as_they_are(question):
    model, strategy = question
    reduced = CostModel(model.graph, model.cluster, model.gradient_sync, "reduced")

    assert additive_s(reduced, strategy) == additive_s(model, strategy)
    assert not program_of(reduced, strategy).statistics.any()


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("form", [0, 1])
def test_one_layer_takes_two_rings_longer(count, form):
    """2 (N - 1) (alpha + S / (N B)) forward and again backward, on equal links with nothing to hide them."""
    net = ModelBuilder("one", batch=count, image=(16, 4, 4))
    net.conv(4096, 1, batch_norm=True)
    graph = net.build()
    model, strategy = CostModel(graph, star(count), "ring", "reduced"), named_strategy("data", graph, count)
    reduced_s, local_s = (replay(forms(m, strategy)[form], iterations=1).iteration_s for m in (model, local(model)))

    ring_s = 2 * (count - 1) * (ALPHA_S + 2 * 4096 * 4 / (count * BYTES_PER_S))
    assert reduced_s - local_s == pytest.approx(2 * ring_s, rel=SAME)


@settings(max_examples=5)
@given(cases(most_devices=4))
def test_messages_of_statistics_are_nobodys_activations(question):
    """Both forms keep the same tensors: the statistics themselves are left out, as are buffers of an exchange."""
    activity, steps = forms(*question)
    plain = program_of(local(question[0]), question[1])
    np.testing.assert_array_equal(peak_memory_bytes(activity), peak_memory_bytes(plain))
    np.testing.assert_array_equal(peak_memory_bytes(steps), peak_memory_bytes(plain))
    kept = [buffers(replay(program, iterations=2)) for program in (plain, activity, steps)]
    for field in ("device", "layer", "kind", "size_bytes"):
        for other in kept[1:]:
            np.testing.assert_array_equal(getattr(other, field), getattr(kept[0], field))
    assert all((known.released_s >= known.allocated_s).all() for known in kept)


@pytest.mark.parametrize("gradient_sync", ["ring", "auto"])
def test_the_search_weighs_the_statistics(gradient_sync):
    """Its optimum costs what Eq. 1 says, no named strategy costs less, and local statistics are never dearer."""
    graph = normalised(batch=8)
    model = CostModel(graph, star(4, latency_s=1e-4), gradient_sync, "reduced")
    found = search_layerwise(model)

    assert found.cost_s == pytest.approx(additive_s(model, found.strategy), rel=SAME)
    assert all(found.cost_s <= additive_s(model, named_strategy(name, graph, 4)) * (1 + SAME) for name in NAMED)
    assert found.cost_s >= search_layerwise(local(model)).cost_s


@pytest.mark.parametrize("seed", range(4))
def test_numbers_of_8_bytes_move_twice_as_much(seed):
    single, double = (
        CostModel(normalised(batch=6, element_bytes=size), cluster_of("k80-16", 6), "ring", "reduced")
        for size in (4, 8)
    )
    strategy = random_strategy(single.graph, 6, np.random.default_rng(seed))

    np.testing.assert_allclose(program_of(double, strategy).size_bytes, 2 * program_of(single, strategy).size_bytes)
    assert single.graph.digest != double.graph.digest


def test_numbers_of_8_bytes_take_a_streaming_kernel_twice_as_long():
    """On top of the launch; where arithmetic decides, profiles know no other peak."""
    norm, product = [], []
    for size in (4, 8):
        net = ModelBuilder("two", batch=64, image=(512, 56, 56), element_bytes=size)
        net.batch_norm(name="norm")
        net.conv(512, 3, pad=1, name="conv")
        model = CostModel(net.build(), cluster_of("titanx-4", 1))
        spaces = spaces_of(model.graph, named_strategy("data", model.graph, 1), 1)
        norm.append(model.compute_times.part_s(0, spaces[0])["forward"][0] - model.profiles[0].launch_overhead_s)
        product.append(model.compute_times.part_s(1, spaces[1])["activation_gradient"][0])

    assert norm[1] == pytest.approx(2 * norm[0])
    assert product[1] == product[0]


def test_plans_keep_both(tmp_path):
    graph = load_model("resnet-cifar:depth=8", batch=8, element_bytes=8)
    cluster = load_cluster("titanx-4")
    plan = make_plan(graph, cluster, strategy="data", batch_norm="reduced")
    save_plan(plan, tmp_path / "plan.json")
    content = json.loads((tmp_path / "plan.json").read_text())

    assert load_plan(tmp_path / "plan.json") == plan
    assert (plan.batch_norm, plan.element_bytes) == ("reduced", 8)
    assert (content["batch_norm"], content["dtype"]) == ("reduced", "float64")
    assert plan.additive_s > make_plan(graph, cluster, strategy="data").additive_s
    for field, value in (("batch_norm", "some"), ("dtype", "int8")):
        (tmp_path / "bad.json").write_text(json.dumps({**content, field: value}))
        with pytest.raises(ConfigError, match=field):
            load_plan(tmp_path / "bad.json")


def test_the_command_line_plans_and_replays_them(tmp_path, capsys):
    path = str(tmp_path / "plan.json")
    question = ["plan", "conv1d", "--cluster", "titanx-4", "--batch", "8", "--strategy", "data", "--out", path]
    assert run_app(app, [*question, "--batch-norm", "reduced", "--dtype", "float64", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert run_app(app, ["simulate", path, "--no-overlap", "--no-contention", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)

    assert replayed["iteration_s"] == pytest.approx(planned["additive_s"], rel=SAME)
    assert replayed["additive_s"] == planned["additive_s"]
    assert ["measured in float64" in note for note in replayed["notes"]] == [True]
    assert (load_plan(tmp_path / "plan.json").batch_norm, load_plan(tmp_path / "plan.json").element_bytes) == (
        "reduced",
        8,
    )


def test_bad_names():
    with pytest.raises(ConfigError, match="batch_norm must be local or reduced, got 'global'"):
        CostModel(normalised(batch=2), cluster_of("titanx-4", 2), "ring", "global")
    assert BATCH_NORMS == ("local", "reduced")
