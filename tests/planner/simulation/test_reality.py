"""Interference and spread: what devices that are no ideal machines add to an iteration."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from plans import star

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.compute.profile_file import load_profile
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.cost.framework import framework_of
from planner.lowering.lower_strategy import lower
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.make_plan import make_plan
from planner.simulation.program_replay import replay
from planner.simulation.rank_spread import drawn_factors, late_deviations
from planner.strategies.named_strategies import named_strategy, spaces_of

CLUSTERS = ("p100-4x4", "k80-16", "dgx1-p100", "dgx-a100", "abci-v100")


def program_on(cluster, batch, text="ddp", model="alexnet", strategy="data"):
    graph = load_model(model, batch=batch)
    count = len(cluster.devices)
    spaces = spaces_of(graph, named_strategy(strategy, graph, count), count)
    return lower(CostModel(graph, cluster, conditions=Conditions(framework=framework_of(text))), spaces)


def on_devices(cluster, **changes):
    return cluster.with_devices([replace(device, **changes) for device in cluster.devices])


@settings(max_examples=8)
@given(
    spec=st.sampled_from(CLUSTERS),
    count=st.sampled_from([2, 4]),
    channels=st.integers(1, 12),
    text=st.sampled_from(["ideal", "ddp", "horovod"]),
    batch=st.sampled_from([32, 256]),
    strategy=st.sampled_from(["data", "owt"]),
)
def test_interference_never_speeds_up_and_more_channels_take_more(spec, count, channels, text, batch, strategy):
    cluster, seconds = load_cluster(spec).take(count), []
    for more in (channels, 2 * channels):
        program = program_on(on_devices(cluster, communication_channels=more), batch, text, strategy=strategy)
        plain = replay(program)
        seconds.append(replay(program, interference=True).iteration_s)
        assert plain.iteration_s * (1 - 1e-9) <= seconds[-1] <= plain.iteration_s * 3
    assert seconds[1] >= seconds[0] * (1 - 1e-9)


def two_layers(size):
    """A layer whose sum runs beside the gradients of the layer before it."""
    net = ModelBuilder("two", batch=64, image=(64, 8, 8))
    net.linear(size)
    net.linear(2048)
    net.loss()
    return net.build()


@pytest.mark.parametrize("bandwidth", [1e9, 1e11])
def test_both_slow_down_by_the_share_of_the_device_that_messages_take(bandwidth):
    """One link is as fast as the fastest: arithmetic a and a sum c of share s, side by side, both run at 1 / (1 + s).

    The shorter of the two ends when it has run for its time at that rate, and the rest of the other runs alone.
    """
    graph, channels = two_layers(4096), 14
    cluster = on_devices(star(2, latency_s=0.0, bandwidth=bandwidth), communication_channels=channels)
    spaces = spaces_of(graph, named_strategy("data", graph, 2), 2)
    program = lower(CostModel(graph, cluster, conditions=Conditions(framework=framework_of("ddp"))), spaces)
    plain, both = (replay(program, iterations=1, interference=on) for on in (False, True))
    task = min(program.collectives)  # of the second layer, computed first
    first = program.size
    for other in range(program.size):
        if program.layer[other] == 0 and program.kind[other] == 3 and program.device[other] == 0:
            first = other
    alone = [plain.schedule.end_s[each] - plain.schedule.start_s[each] for each in (task, first)]
    found = [both.schedule.end_s[each] - both.schedule.start_s[each] for each in (task, first)]
    profile = load_profile("p100")
    # Of a buffer each of two ranks sends one, receives one, and adds half of one; the task's size is all that is sent.
    accessed = 1.25 * program.size_bytes[task]
    share = channels / profile.multiprocessors + accessed / profile.memory_bytes_per_s / alone[0]
    assert share < 0.9
    shorter = min(alone)
    expected = [seconds + share * shorter for seconds in alone]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_slow_links_leave_the_rest_of_the_device_to_arithmetic():
    """Where messages are far below the fastest link, they keep their rate."""
    cluster = load_cluster("dgx-a100:nodes=2")
    program = program_on(cluster, 16 * 64)
    plain, both = (replay(program, interference=on) for on in (False, True))
    task = max(program.collectives)
    alone, found = (
        float(each.schedule.end_s[each.program_graph.task_of[0, task]])
        - float(each.schedule.start_s[each.program_graph.task_of[0, task]])
        for each in (plain, both)
    )
    assert found <= alone * 1.05


@pytest.mark.parametrize(("count", "slower"), [(1, 1.0), (2, 0.9), (3, 0.9), (4, 0.9)])
def test_devices_of_a_board_share_its_power(count, slower):
    """Two GPUs a card: both compute at 0.9 of their speed; the first of a second card, alone on it, does not."""
    cluster = on_devices(load_cluster("k80-16").take(count), communication_channels=0, board_speed=0.9)
    program = program_on(cluster, 64 * count)
    plain, shared = (replay(program, interference=on, iterations=1).schedule for on in (False, True))
    compute = np.flatnonzero(program.is_compute)
    speed = (plain.end_s - plain.start_s)[compute] / (shared.end_s - shared.start_s)[compute]
    alone = (program.device[compute] == 2) & (count == 3)
    np.testing.assert_allclose(speed[alone], 1)
    together = (program.kind[compute] == 0) & ~alone  # forward passes begin and end together
    np.testing.assert_allclose(speed[together], slower, rtol=1e-6)


def test_both_engines_agree_on_interference():
    program = program_on(load_cluster("p100-4x4").take(8), 64, strategy="owt")
    times = [replay(program, interference=True, engine=engine).iteration_s for engine in ("compiled", "simpy")]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_links_carry_the_same_bytes_with_interference():
    program = program_on(load_cluster("k80-16").take(4), 64)
    rows = [replay(program, interference=on).link_use(50).moved_bytes for on in (False, True)]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-6)


def test_an_iteration_takes_longer_the_more_ranks_there_are():
    """By what the slowest rank computes longer, where nothing is hidden; by less where messages hold it up anyway."""
    for bandwidth in (1e15, 1e8):
        waits = []
        for ranks in (2, 4, 8, 16):
            cluster = on_devices(star(ranks, latency_s=0.0, bandwidth=bandwidth), step_spread=0.02)
            program = program_on(cluster, 64 * ranks)
            plain, late = replay(program), replay(program, spread=True)
            waits.append((late.iteration_s - plain.iteration_s) / plain.shares().compute_s)
            assert late.wait_share == pytest.approx(0.02 * late_deviations(ranks))
        share = [0.02 * late_deviations(ranks) for ranks in (2, 4, 8, 16)]
        if bandwidth == 1e15:
            np.testing.assert_allclose(waits, share, rtol=1e-4)
        else:
            assert waits == sorted(waits)
            assert all(0 < wait <= most for wait, most in zip(waits, share, strict=True))


@given(ranks=st.integers(1, 400), more=st.integers(1, 400))
def test_the_slowest_of_more_ranks_is_later(ranks, more):
    assert late_deviations(ranks + more) > late_deviations(ranks) >= late_deviations(1) == 0


def test_the_expected_wait_is_the_mean_of_drawn_runs():
    """Ranks that compute alone but for tiny sums, with short updates: an iteration takes the longest of their times."""
    cluster = on_devices(star(8, latency_s=0.0, bandwidth=1e15), step_spread=0.05)
    program = program_on(cluster, 8192, model="resnet-cifar:depth=8")
    expected = replay(program, spread=True).iteration_s
    drawn = np.concatenate(
        [replay(program, spread=True, seed=seed, iterations=60).durations_s[1:] for seed in range(5)]
    )
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - expected) < 4 * error
    assert expected > replay(program).iteration_s + 20 * error


def test_drawn_times_have_the_mean_and_the_spread():
    factors = drawn_factors(on_devices(star(50), step_spread=0.1), 7, 4000)
    assert factors.mean() == pytest.approx(1, abs=1e-3)
    assert factors.std() == pytest.approx(0.1, rel=0.02)


def test_a_seed_draws_one_run():
    program = program_on(load_cluster("k80-16").take(4), 64)
    one, same, other = (replay(program, spread=True, seed=seed).durations_s for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


def test_the_ladder_has_a_rung_for_each():
    graph, cluster = load_model("lenet5", batch=64), load_cluster("k80-16").take(4)
    (result,) = compare(graph, cluster, ["data"], framework="ddp").strategies
    assert list(result.ladder_s) == ["additive", "overlap", "contention", "interference", "spread"]
    assert result.ladder_s["contention"] <= result.ladder_s["interference"] < result.ladder_s["spread"]
    assert result.simulated_s == result.ladder_s["spread"]
    assert result.compute_s + result.exposed_communication_s + result.idle_s == pytest.approx(result.simulated_s)


def test_a_plan_has_the_time_of_its_rungs():
    graph, cluster = load_model("lenet5", batch=64), load_cluster("k80-16").take(4)
    seconds = [
        make_plan(graph, cluster, strategy="data", framework="ddp", **switches).simulated_s
        for switches in ({"interference": False, "spread": False}, {"spread": False}, {})
    ]
    assert seconds == sorted(seconds)
    assert seconds[2] > seconds[1]


@pytest.mark.parametrize(("name", "field"), [("interference", "communication_channels"), ("spread", "step_spread")])
def test_what_a_cluster_does_not_declare_is_refused(name, field):
    rule = f"{name} must be off for cluster star: none of its devices declares {field}"
    program = program_on(star(2), 64)
    with pytest.raises(ConfigError, match=rule):
        replay(program, **{name: True})
    with pytest.raises(ConfigError, match=rule):
        make_plan(program.graph, star(2), strategy="data", **{name: True})


def test_switches_that_contradict_each_other_are_refused():
    program = program_on(load_cluster("k80-16").take(2), 64)
    with pytest.raises(ConfigError, match="contention must be on where interference is"):
        replay(program, interference=True, contention=False)
    with pytest.raises(ConfigError, match="seed must be left out without spread, got 1"):
        replay(program, seed=1)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("communication_channels", -1, "communication_channels must be >= 0, got -1"),
        ("step_spread", 1.0, "step_spread must be >= 0 and < 1, got 1.0"),
        ("board_speed", 0.0, "board_speed must be > 0 and <= 1, got 0.0"),
    ],
)
def test_devices_with_impossible_values_are_refused(field, value, rule):
    with pytest.raises(ConfigError, match=rule):
        on_devices(star(2), **{field: value})


def test_devices_that_declare_something_have_another_digest():
    plain = star(2)
    assert star(2).digest == plain.digest
    assert on_devices(plain, communication_channels=2).digest != plain.digest
    assert on_devices(plain, step_spread=0.1).digest != plain.digest
