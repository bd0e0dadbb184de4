"""The critical path of programs, exposed communication and the use of resources."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from plans import cluster_of, lowering_of, program_of, questions

from planner.cost.cost_model import CostModel
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.plan.analysis import analyse, resource_uses
from planner.simulation.program_replay import replay
from planner.simulation.steady_path import program_path
from planner.strategies.named_strategies import named_strategy


def replayed(strategy, *, model="lenet5", spec="titanx-4", count=4, batch=64, **options):
    graph = load_model(model, batch=batch)
    program = program_of(CostModel(graph, cluster_of(spec, count)), named_strategy(strategy, graph, count))
    return replay(program, **options)


def check_chain(result):
    """Steps follow each other without a gap and add up to the steady window."""
    path, total_s = program_path(result), result.steady_s[1] - result.steady_s[0]
    assert path.steps[0].start_s == pytest.approx(0, abs=1e-9 * total_s)
    assert path.steps[-1].end_s == pytest.approx(total_s, rel=1e-9)
    for before, step in pairwise(path.steps):
        assert step.start_s == pytest.approx(before.end_s, abs=1e-9 * total_s)
    for step in path.steps:
        assert step.latency_s + step.wait_s + step.work_s == pytest.approx(step.seconds, abs=1e-9 * total_s)
    for key in ("kind", "layer", "link"):
        assert sum(path.seconds_by(key).values()) == pytest.approx(result.iteration_s, rel=1e-9)
    exposed_s = sum(row.seconds for row in path.exposed())
    assert exposed_s == pytest.approx(sum(path.seconds_by("kind", communication=True).values()))
    return path


@given(questions(models=("lenet5", "alexnet")))
@settings(max_examples=8)
def test_path_adds_up_to_the_iteration(question):
    """For any strategy on any cluster."""
    model, strategy = question
    check_chain(replay(program_of(model, strategy)))


@pytest.mark.parametrize("options", [{"contention": False}, {"overlap": False}, {"iterations": 1}, {"iterations": 2}])
def test_path_adds_up_under_every_reading(options):
    check_chain(replayed("owt", **options))


def test_one_device_walks_through_its_tasks():
    """The path of one device is all that it does, in order: arithmetic that waits for itself."""
    result = replayed("data", count=1)
    path = check_chain(result)

    computed_s = result.program.work_s.sum()
    assert result.iteration_s == pytest.approx(computed_s)
    assert path.exposed() == ()
    assert [stretch.name for stretch in path.stretches()][:2] == ["conv1 forward [0]", "pool1 forward [0]"]
    assert sum(stretch.seconds for stretch in path.stretches()) == pytest.approx(computed_s)
    assert {step.device for step in path.steps} == {"node0/gpu0"}
    assert {step.resource for step in path.steps} == {""}


def two_halves():
    """A wide fully-connected layer whose inputs are halved over the channels: transfers each way."""
    net = ModelBuilder("halves", batch=4, image=(4, 1, 1))
    net.conv(1024, 1, name="conv")
    net.linear(2, name="fc")
    net.loss()
    return net.build()


def test_transfers_of_two_devices_by_hand():
    """Half of the convolution goes over two links of 14 GB/s and 1 us each; the loss sends half of fc's gradient."""
    graph = two_halves()
    model = CostModel(graph, cluster_of("titanx-4", 2))
    result = replay(program_of(model, named_strategy("model", graph, 2)))
    path = check_chain(result)

    rows = {(row.layer, row.kind): row for row in path.exposed()}
    assert set(rows) == {("conv", "transfer"), ("fc", "transfer")}
    for layer, numbers in (("conv", 4 * 512), ("fc", 4 * 1)):
        row = rows[layer, "transfer"]
        assert (row.link_class, row.steps, row.wait_s) == ("slot", 1, 0)
        assert row.latency_s == pytest.approx(2e-6)
        assert row.work_s == pytest.approx(4 * numbers / 14e9)
    names = [step.name for step in path.steps if step.communicates]
    assert set(names) == {"conv to fc (1 to 0)", "softmax to fc, gradient (0 to 1)"}


def test_waits_for_turns_name_the_port():
    """Four devices exchange channels through ports that serve one transfer at a time."""
    path = check_chain(replayed("model"))

    turns = [step for step in path.steps if step.reason == "link"]
    assert turns
    assert all(step.resource.startswith("node0/") and "plx" in step.resource for step in turns)
    assert any(stretch.count > 1 for stretch in path.stretches())


def test_exchange_that_outlasts_the_backward_pass_is_exposed():
    """Large parameters over a slow network: the exchange of the fully-connected layers is on the path."""
    path = check_chain(replayed("data", model="alexnet", spec="fdr-32x3", count=12, batch=12))

    assert path.exposed()[0].kind == "collective"
    assert path.exposed()[0].layer == "fc1"
    assert path.exposed()[0].seconds > 0.3 * sum(path.seconds_by("kind").values())


def test_use_of_resources():
    """What crosses the links is what the program moves, link by link; a device is busy while it computes."""
    result = replayed("model")
    uses = {row.name: row for row in resource_uses(result)}
    program, network = result.program, result.program.cluster

    moved = np.zeros(len(network.links))
    for source, target, size in zip(program.device, program.peer, program.size_bytes, strict=True):
        if target >= 0:
            moved[list(network.route(int(source), int(target)))] += size
    for link, size in zip(network.links, moved.tolist(), strict=True):
        assert (link.name in uses) == (size > 0)
        if size:
            row = uses[link.name]
            assert row.moved_bytes == pytest.approx(size)
            assert row.use == pytest.approx(size / link.bandwidth_bytes_per_s / result.iteration_s)
            assert row.use - 1e-9 <= row.busy <= 1 + 1e-9
    for i, device in enumerate(network.devices):
        computed_s = program.work_s[program.is_compute & (program.device == i)].sum()
        assert uses[device.name].busy == pytest.approx(computed_s / result.iteration_s)


def test_analysis_holds_everything_and_repeats():
    program = replayed("owt").program
    first, second = (analyse(program, lowering_of(program)) for _ in range(2))

    assert first.path == second.path
    assert first.sensitivities == second.sensitivities
    assert first.resources == second.resources
    shares = first.shares
    total_s = shares.compute_s + shares.exposed_communication_s + shares.idle_s
    assert total_s == pytest.approx(first.replay.iteration_s)
    assert first.alive_at_peak["size_bytes"].sum() == first.memory.peak_bytes[first.memory.fullest]
