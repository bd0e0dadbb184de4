"""Collectives as messages and as single activities: where both agree, and what bounds them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import ALPHA_S, BYTES_PER_S, cluster_of, program_of, questions, star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.all_reduce import all_reduce_s, choose_all_reduce
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from simulator.collectives.schemes import ALL_REDUCES

SAME = 1e-9
COLLECTIVE, WEIGHT = KINDS.index("collective"), KINDS.index("weight_gradient")


def one_layer(count, channels=4096):
    """A model whose one trained layer has ``channels`` x 16 weights, and as many biases as channels."""
    net = ModelBuilder("one", batch=count, image=(16, 1, 1))
    net.linear(channels, name="fc")
    net.loss()
    return net.build()


def exchange_span_s(replayed):
    """First start of a message or collective to its last end, in the first iteration."""
    program, tasks = replayed.program, replayed.program_graph.task_of[0]
    mine = tasks[program.kind == COLLECTIVE]
    return replayed.schedule.end_s[mine].max() - replayed.schedule.ready_s[mine].min()


def both_forms(model, strategy, **options):
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    return [replay(lower(model, spaces, collectives=form), **options) for form in ("activity", "steps")]


@settings(max_examples=10)
@given(questions(models=("lenet5", "conv1d")), st.sampled_from([*ALL_REDUCES, "auto"]))
def test_messages_add_up_to_eq_1(question, gradient_sync):
    """Without overlap and contention both forms give the additive cost, for every scheme."""
    model, strategy = question
    model = CostModel(model.graph, model.cluster, gradient_sync)
    expected_s = additive_s(model, strategy)
    for replayed in both_forms(model, strategy, overlap=False, contention=False, iterations=2):
        np.testing.assert_allclose(replayed.ends_s, expected_s * np.arange(1, 3), rtol=SAME)


@settings(max_examples=8)
@given(questions(models=("lenet5", "conv1d")))
def test_both_forms_agree_without_contention(question):
    activity, steps = both_forms(*question, contention=False)

    assert steps.iteration_s == pytest.approx(activity.iteration_s, rel=SAME)


@settings(max_examples=8)
@given(questions(models=("lenet5", "conv1d")))
def test_messages_wait_for_smaller_ids_and_move_the_same_bytes(question):
    model, strategy = question
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    activity, steps = (lower(model, spaces, collectives=form) for form in ("activity", "steps"))
    waiting = np.repeat(np.arange(steps.size), np.diff(steps.after_start))
    messages = steps.kind == COLLECTIVE

    assert not steps.collectives
    assert np.all(steps.after < waiting)
    assert np.all(np.diff(steps.group) >= 0)
    assert np.all(steps.device[messages] != steps.peer[messages])
    assert steps.moved_bytes == pytest.approx(activity.moved_bytes)


@pytest.mark.parametrize("scheme", ["ring", "halving", "ps-spread", "direct"])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_both_forms_agree_where_all_links_are_equal_and_free(scheme, count):
    """One layer on a star: every rank does the same at the same time."""
    model = CostModel(one_layer(count), star(count), scheme)
    strategy = named_strategy("data", model.graph, count)
    activity, steps = both_forms(model, strategy)

    assert exchange_span_s(steps) == pytest.approx(exchange_span_s(activity), rel=SAME)
    assert steps.iteration_s == pytest.approx(activity.iteration_s, rel=SAME)


@pytest.mark.parametrize("form", ["activity", "steps"])
@pytest.mark.parametrize("count", [2, 3, 5, 8, 12])
def test_a_ring_takes_2_n_minus_1_steps_exactly(form, count):
    """2 (N - 1) (alpha + S / (N B)) where links are equal and free."""
    graph = one_layer(count)
    model = CostModel(graph, star(count), "ring")
    spaces = spaces_of(graph, named_strategy("data", graph, count), count)
    replayed = replay(lower(model, spaces, collectives=form), iterations=1)

    size = graph.parameter_count * graph.element_bytes
    expected_s = 2 * (count - 1) * (ALPHA_S + size / (count * BYTES_PER_S))
    assert exchange_span_s(replayed) == pytest.approx(expected_s, rel=SAME)


@pytest.mark.parametrize("form", ["activity", "steps"])
@pytest.mark.parametrize("scheme", ALL_REDUCES)
@pytest.mark.parametrize("count", [2, 3, 6, 8])
def test_no_exchange_beats_its_bandwidth_bound(scheme, form, count):
    """Every device must receive 2 (p - 1) / p of the buffer through its one link."""
    graph = one_layer(count)
    spaces = spaces_of(graph, named_strategy("data", graph, count), count)
    replayed = replay(lower(CostModel(graph, star(count), scheme), spaces, collectives=form), iterations=1)
    size = graph.parameter_count * graph.element_bytes

    assert exchange_span_s(replayed) >= 2 * (count - 1) / count * size / BYTES_PER_S * (1 - SAME)


@pytest.mark.parametrize("form", ["activity", "steps"])
def test_latency_tables_by_message_size_apply(form):
    """A ring over four nodes of fdr-32x3: Table 5's latency of a fourth of the buffer, 2 x 3 times."""
    cluster = load_cluster("fdr-32x3:nodes=4").only([2, 5, 8, 11])
    graph = one_layer(4, channels=64 * 256)
    spaces = spaces_of(graph, named_strategy("data", graph, 4), 4)
    replayed = replay(lower(CostModel(graph, cluster, "ring"), spaces, collectives=form), iterations=1)
    message = graph.parameter_count * graph.element_bytes / 4
    latency_s, slowest = cluster.latency_s(0, 1, message), cluster.bandwidth[list(cluster.route(0, 1))].min()

    assert latency_s > 2 * cluster.latency_s(0, 1, 3 * 2**10)
    assert exchange_span_s(replayed) == pytest.approx(6 * (latency_s + message / slowest), rel=SAME)


def test_exclusive_ports_serve_one_message_at_a_time():
    """titanx-4: a direct exchange puts four messages on each switch's port, one after the other, as the paper says."""
    graph = one_layer(4)
    cluster = load_cluster("titanx-4")
    spaces = spaces_of(graph, named_strategy("data", graph, 4), 4)
    replayed = replay(lower(CostModel(graph, cluster, "direct"), spaces, collectives="steps"), iterations=1)
    program, size = replayed.program, graph.parameter_count * graph.element_bytes
    port = next(i for i, link in enumerate(cluster.links) if link.exclusive)
    across = [
        t
        for t in np.flatnonzero(program.kind == COLLECTIVE).tolist()
        if port in cluster.route(int(program.device[t]), int(program.peer[t]))
    ]
    start_s, end_s = (
        times[replayed.program_graph.task_of[0][across]]
        for times in (replayed.schedule.start_s, replayed.schedule.end_s)
    )
    order = np.argsort(start_s)

    assert len(across) == 4
    assert np.all(start_s[order][1:] >= end_s[order][:-1] * (1 - SAME))
    assert exchange_span_s(replayed) >= 4 * size / cluster.links[port].bandwidth_bytes_per_s


def test_a_device_sends_nothing_on_before_its_own_gradient_is_there():
    graph = one_layer(4)
    spaces = spaces_of(graph, named_strategy("data", graph, 4), 4)
    program = lower(CostModel(graph, star(4), "ring"), spaces, collectives="steps")
    gradient = {int(program.device[t]): int(t) for t in np.flatnonzero(program.kind == WEIGHT).tolist()}
    adding = np.flatnonzero(program.kind == COLLECTIVE)[: 3 * 4].tolist()  # the steps that add, of the first buffer
    assert len(adding) == 3 * 4
    for task in adding:
        row = program.after[program.after_start[task] : program.after_start[task + 1]].tolist()
        assert gradient[int(program.device[task])] in row


@settings(max_examples=9)
@given(questions(models=("lenet5", "alexnet")), st.sampled_from([(), ("channel",)]))
def test_auto_is_the_cheapest_scheme_and_lowering_picks_it(question, split):
    model, _ = question
    count = len(model.cluster.devices)
    for layer, space in zip(model.graph.layers, model.all_configurations(), strict=True):
        size = float(layer.parameter_count * 4)
        prices = {name: all_reduce_s(model.network, name, space, size, split=split) for name in ALL_REDUCES}
        auto = all_reduce_s(model.network, "auto", space, size, split=split)
        np.testing.assert_allclose(auto, np.min(list(prices.values()), axis=0), rtol=1e-12)
        only = space.only(np.array([space.size - 1]))
        choice = choose_all_reduce(model.network, "auto", only, size, split=split)
        assert choice.price_s == pytest.approx(auto[-1], rel=1e-11)
        assert choice.runner_up != choice.scheme
        assert count == 1 or choice.runner_up_s >= choice.price_s * (1 - 1e-11)


def test_auto_prefers_few_steps_for_small_buffers_and_few_bytes_for_large_ones():
    cluster, graph = star(16), one_layer(16)
    model = CostModel(graph, cluster, "auto")
    space = spaces_of(graph, named_strategy("data", graph, 16), 16)[graph.index["fc"]]
    small, large = (choose_all_reduce(model.network, "auto", space, size, split=("channel",)) for size in (64.0, 1e9))

    assert small.scheme == "direct"
    bound_s = 2 * 15 / 16 * 1e9 / BYTES_PER_S
    assert bound_s <= large.price_s <= bound_s * 1.001
    assert small.runner_up_s > small.price_s


def test_plans_keep_why_an_exchange_was_chosen(tmp_path):
    graph = load_model("lenet5", batch=8)
    plan = make_plan(graph, load_cluster("titanx-4"), strategy="data", gradient_sync="auto")
    save_plan(plan, tmp_path / "plan.json")

    assert set(plan.gradient_syncs) == {layer.name for layer in graph.layers if layer.parameter_count}
    assert all(choice.scheme in ALL_REDUCES and choice.runner_up for choice in plan.gradient_syncs.values())
    assert load_plan(tmp_path / "plan.json").gradient_syncs == plan.gradient_syncs
    assert not make_plan(graph, load_cluster("titanx-4"), strategy="data").gradient_syncs


def test_racks_are_read_from_names():
    racks = CostModel(load_model("lenet5", batch=8), load_cluster("abci-v100:nodes=34")).network.rack

    assert racks.tolist() == [0] * 68 + [1] * 68
    assert not CostModel(load_model("lenet5", batch=8), cluster_of("fdr-32x3", 6)).network.rack.any()


def test_bad_names():
    graph = one_layer(2)
    model = CostModel(graph, star(2), "rng")
    strategy = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in graph.layers}
    with pytest.raises(ConfigError, match=r"gradient_sync must be one of ring, .*, auto, library, got 'rng'"):
        program_of(model, named_strategy("data", graph, 2))
    with pytest.raises(ConfigError, match="collectives must be activity or steps, got 'rounds'"):
        lower(CostModel(graph, star(2)), spaces_of(graph, strategy, 2), collectives="rounds")
