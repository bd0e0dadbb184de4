"""The product's central promise: one program, read as Eq. 1 and replayed, gives the same time."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import cluster_of, inception_module, program_of, questions, random_strategy

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_names
from planner.cost.cost_model import CostModel
from planner.models.registry import load_model, model_names
from planner.simulation import iterations
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy
from simulator.collectives.schemes import ALL_REDUCES
from simulator.graph.graph_checks import check_task_graph

SAME = 1e-9


DEEPER = {"resnet34", "resnet101", "resnet152", "vgg13", "vgg16", "vgg19", "densenet121"}
"""Models with more of the layers that others have, or that random strategies split below."""


@pytest.mark.parametrize("name", [name for name in model_names() if name not in DEEPER])
def test_every_model_and_named_strategy_replays_to_its_additive_cost(name):
    """Cost tables in bulk and a program from regions one by one price every model alike, on different clusters.

    Strategies in turn; layers of the long models are all alike.
    """
    at = model_names().index(name)
    cluster = cluster_of(cluster_names()[at % len(cluster_names())], 4)
    graph = load_model({"mixtral": "mixtral:layers=2", "llama-1b": "llama-1b:layers=2"}.get(name, name), batch=4)
    model = CostModel(graph, cluster, list(ALL_REDUCES)[at % len(ALL_REDUCES)])
    strategy = named_strategy(list(NAMED)[at % len(NAMED)], graph, 4)
    replayed = replay(program_of(model, strategy), overlap=False, contention=False, iterations=2)

    expected_s = additive_s(model, strategy)
    assert replayed.iteration_s == pytest.approx(expected_s, rel=SAME)
    np.testing.assert_allclose(replayed.ends_s, expected_s * np.arange(1, 3), rtol=SAME)


def check_equality(model, strategy):
    replayed = replay(program_of(model, strategy), overlap=False, contention=False)
    assert replayed.iteration_s == pytest.approx(additive_s(model, strategy), rel=SAME)


@settings(max_examples=10)
@given(questions())
def test_random_strategies_replay_to_their_additive_cost(question):
    check_equality(*question)


@settings(max_examples=3)
@given(questions(models=("googlenet", "densenet121")))
def test_random_strategies_of_wide_graphs_replay_to_their_additive_cost(question):
    check_equality(*question)


@settings(max_examples=9)
@given(questions(models=("lenet5", "conv1d", "cosmoflow")))
def test_the_ladder_keeps_its_order(question):
    """Dependencies never take longer than barriers; what shares links never beats what bounds it."""
    model, strategy = question
    program = program_of(model, strategy)
    barriers = replay(program, overlap=False, contention=False, iterations=4)
    overlapped = replay(program, contention=False, iterations=4)

    assert np.all(overlapped.ends_s <= barriers.ends_s * (1 + SAME))
    assert overlapped.iteration_s <= barriers.iteration_s * (1 + SAME)
    assert np.all(np.diff(replay(program, overlap=False, iterations=4).ends_s) > 0)


@settings(max_examples=9)
@given(questions(models=("lenet5", "conv1d"), most_devices=4), st.booleans(), st.booleans())
def test_both_engines_replay_a_program_alike(question, overlap, contention):
    model, strategy = question
    program = program_of(model, strategy)
    clear, fast = (
        replay(program, overlap=overlap, contention=contention, iterations=2, engine=engine).schedule
        for engine in ("simpy", "compiled")
    )
    np.testing.assert_allclose(clear.start_s, fast.start_s, rtol=SAME, atol=SAME * fast.makespan_s)
    np.testing.assert_allclose(clear.end_s, fast.end_s, rtol=SAME, atol=SAME * fast.makespan_s)


@settings(max_examples=9)
@given(questions(models=("lenet5", "alexnet", "conv1d")))
def test_the_steady_state_does_not_depend_on_the_number_of_iterations(question):
    model, strategy = question
    program = program_of(model, strategy)

    assert replay(program, iterations=4).iteration_s == pytest.approx(
        replay(program, iterations=6).iteration_s, rel=1e-6
    )


def test_the_last_iteration_does_not_count():
    """It shares the links with none after it: ends at 3, 5, 8 and 9 s mean (8 - 3) / 2 s an iteration."""
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 1))
    replayed = replay(program_of(model, named_strategy("data", model.graph, 1)), iterations=4)
    end_s = np.zeros(replayed.program_graph.graph.size)
    end_s[replayed.program_graph.task_of] = np.array([3.0, 5.0, 8.0, 9.0])[:, None]

    assert replace(replayed, schedule=replace(replayed.schedule, end_s=end_s)).iteration_s == 2.5


def test_the_steady_state_is_that_of_the_long_run():
    """Parts of VGG-11 on eight devices, some of which run ahead of others."""
    model = CostModel(load_model("vgg11", batch=8), cluster_of("p100-4x4", 8))
    for seed in range(4):
        program = program_of(model, random_strategy(model.graph, 8, np.random.default_rng(seed)))
        lengths_s = np.diff(replay(program, iterations=12).ends_s)
        assert replay(program).iteration_s == pytest.approx(lengths_s[4:-1].mean(), rel=1e-6)


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
def test_short_replays_say_what_they_saw(iterations):
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 4))
    replayed = replay(program_of(model, named_strategy("data", model.graph, 4)), iterations=iterations)
    ends = [0.0, *replayed.ends_s]
    begin, end = {1: (0, 1), 2: (1, 2), 3: (1, 2), 4: (1, 3), 5: (2, 4)}[iterations]

    assert len(replayed.ends_s) == iterations
    assert replayed.iteration_s == pytest.approx((ends[end] - ends[begin]) / (end - begin), rel=SAME)


def test_no_iterations():
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 1))
    with pytest.raises(ConfigError, match="iterations must be a whole number >= 1, got 0"):
        replay(program_of(model, named_strategy("data", model.graph, 1)), iterations=0)


@pytest.mark.parametrize(("overlap", "contention"), [(a, b) for a in (False, True) for b in (False, True)])
def test_one_device_runs_its_kernels_one_after_another(overlap, contention):
    model = CostModel(inception_module(), cluster_of("dgx-a100", 1))
    program = program_of(model, named_strategy("model", model.graph, 1))
    replayed = replay(program, overlap=overlap, contention=contention)

    assert np.all(program.is_compute)
    assert replayed.iteration_s == pytest.approx(program.work_s.sum(), rel=SAME)
    assert replayed.shares().compute_s == pytest.approx(program.work_s.sum(), rel=SAME)


def sweep_s(intervals, begin, end):
    """Length of a union of intervals, cut to a window, from one elementary piece to the next."""
    marks = sorted({begin, end, *(t for pair in intervals for t in pair if begin < t < end)})
    return sum(b - a for a, b in pairwise(marks) if any(s <= a and b <= e for s, e in intervals))


def takers(program, task):
    """Devices that take part in a transfer or an exchange."""
    collective = program.collectives.get(task)
    return collective.devices if collective else (program.device[task], program.peer[task])


@settings(max_examples=8)
@given(questions(models=("lenet5", "conv1d"), most_devices=4), st.booleans())
def test_shares_are_those_of_an_interval_sweep(question, contention):
    model, strategy = question
    program = program_of(model, strategy)
    replayed = replay(program, contention=contention)
    shares, (begin, end, count) = replayed.shares(), replayed.steady_s
    busy, either = [], []
    for row in replayed.program_graph.task_of:
        for task, activity in enumerate(row):
            interval = (replayed.schedule.ready_s[activity], replayed.schedule.end_s[activity])
            if program.is_compute[task] and program.device[task] == shares.device:
                busy.append(interval)
                either.append(interval)
            elif not program.is_compute[task] and shares.device in takers(program, task):
                either.append(interval)
    compute_s, covered_s = sweep_s(busy, begin, end), sweep_s(either, begin, end)

    assert shares.compute_s * count == pytest.approx(compute_s, rel=SAME)
    assert shares.exposed_communication_s * count == pytest.approx(covered_s - compute_s, abs=SAME * end)
    parts_s = shares.compute_s + shares.exposed_communication_s + shares.idle_s
    assert parts_s == pytest.approx(replayed.iteration_s, rel=SAME)
    assert min(shares.compute_s, shares.exposed_communication_s, shares.idle_s) >= -SAME * end


@settings(max_examples=10)
@given(questions(models=("lenet5", "conv1d")))
def test_the_timeline_holds_every_task_once(question):
    model, strategy = question
    program = program_of(model, strategy)
    replayed = replay(program)
    rows, edges_s = replayed.timeline(), replayed.link_use().edges_s

    assert rows["id"].tolist() == list(range(program.size))
    assert (rows["end_s"] >= rows["start_s"]).all()
    assert rows["start_s"].min() == 0
    assert rows["end_s"].max() == pytest.approx(edges_s[-1], rel=SAME)  # one axis for both
    assert edges_s[-1] - edges_s[0] == pytest.approx(replayed.window_s[1] - replayed.window_s[0], rel=SAME)
    assert rows["bytes"].sum() == pytest.approx(program.moved_bytes)
    assert set(rows["origin"]) == {"simulated"}
    start_s, end_s = rows["start_s"].to_numpy(), rows["end_s"].to_numpy()
    for task in range(program.size):
        before = program.after[program.after_start[task] : program.after_start[task + 1]]
        assert end_s[before].max(initial=-np.inf) <= start_s[task] + SAME * replayed.window_s[1]
    for device, mine in rows[rows["stream"] == "compute"].groupby("device"):
        assert mine["start_s"].is_monotonic_increasing, device
        assert (mine["end_s"].to_numpy()[:-1] <= mine["start_s"].to_numpy()[1:] + SAME * replayed.window_s[1]).all()


@pytest.mark.parametrize("strategy", NAMED)
def test_links_carry_what_the_program_sends(strategy):
    """Over a steady iteration, each link carries the bytes of the routes over it."""
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 4))
    program = program_of(model, named_strategy(strategy, model.graph, 4))
    use = replay(program).link_use()
    expected = np.zeros(len(model.cluster.links))
    for task in np.flatnonzero(~program.is_compute).tolist():
        if task in program.collectives:
            step, size = program.collectives[task].round, program.collectives[task].buffer_bytes
            hops = zip(step.source.tolist(), step.target.tolist(), strict=True)
            messages = [(a, b, size * step.share * step.repeats) for a, b in hops]
        else:
            messages = [(int(program.device[task]), int(program.peer[task]), program.size_bytes[task])]
        for source, target, sent in messages:
            expected[list(model.cluster.route(source, target))] += sent

    np.testing.assert_allclose(use.moved_bytes, expected, rtol=1e-6, atol=1.0)
    carried = use.share.mean(axis=1) * model.cluster.bandwidth * (use.edges_s[-1] - use.edges_s[0])
    np.testing.assert_allclose(carried, expected, rtol=1e-6, atol=1.0)
    assert use.share.max() <= 1 + SAME
    assert len(use.links) == len(model.cluster.links)


def test_two_replays_are_equal_to_the_last_bit():
    model = CostModel(load_model("alexnet", batch=8), cluster_of("k80-16", 8))
    strategy = random_strategy(model.graph, 8, np.random.default_rng(1))
    first, second = (replay(program_of(model, strategy)).schedule for _ in range(2))

    assert first.start_s.tobytes() == second.start_s.tobytes()
    assert first.end_s.tobytes() == second.end_s.tobytes()


def test_more_iterations_than_memory_should_hold_are_refused():
    """Said with the rule and the number, before anything is made."""
    model = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 4))
    program = program_of(model, named_strategy("data", model.graph, 4))
    most = 20_000_000 // program.size
    message = f"iterations must be at most {most:,} for a program of {program.size:,} tasks, got 99999999999"
    with pytest.raises(ConfigError, match=message):
        replay(program, iterations=99_999_999_999)


def test_of_equal_iterations_one_is_checked(monkeypatch):
    """The others have the same tasks; one with a rule broken is refused all the same."""
    model, checked = CostModel(load_model("lenet5", batch=8), cluster_of("titanx-4", 4)), []

    def counted(graph):
        checked.append(graph.size)
        check_task_graph(graph)

    monkeypatch.setattr(iterations, "check_task_graph", counted)
    program = program_of(model, named_strategy("data", model.graph, 4))
    built = replay(program, iterations=4).program_graph
    assert checked == [built.graph.size / 4]
    broken = replace(built, graph=replace(built.graph, work=-built.graph.work))
    with pytest.raises(ConfigError, match="work"):
        iterations.all_in_a_row(broken, "auto")
