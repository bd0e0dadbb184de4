"""The task graphs of the four readings: what they keep of the program, on worked examples."""

import numpy as np
import pytest
from hypothesis import given, settings
from plans import cluster_of, program_of, questions

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Configuration
from planner.models.builder import ModelBuilder
from planner.simulation.execution_models import build_program_graph
from planner.strategies.named_strategies import named_strategy
from simulator.engines.engine import simulate
from simulator.timelines.timeline import alone_s

READINGS = [(overlap, contention) for overlap in (False, True) for contention in (False, True)]


def chain(batch=8):
    """Two layers with parameters and a loss."""
    net = ModelBuilder("chain", batch=batch, image=(4, 16))
    net.conv(8, 3, pad=1, name="conv")
    net.linear(4, name="fc")
    net.loss()
    return net.build()


def rows(graph, task):
    return graph.after[graph.after_start[task] : graph.after_start[task + 1]].tolist()


@settings(max_examples=9)
@given(questions(models=("lenet5", "conv1d")))
def test_separate_transfers_use_their_routes(question):
    """With contention, task for task: the bytes, the latency and the links of the device graph's own routes."""
    model, strategy = question
    cluster, program = model.cluster, program_of(model, strategy)
    graph = build_program_graph(program).graph
    for task in np.flatnonzero(program.peer >= 0).tolist():
        source, target, size = int(program.device[task]), int(program.peer[task]), float(program.size_bytes[task])
        used = slice(graph.use_start[task], graph.use_start[task + 1])
        assert sorted(graph.use_resource[used].tolist()) == sorted(cluster.route(source, target))
        assert set(graph.use_weight[used].tolist()) == {1.0}
        assert graph.work[task] == size
        assert graph.latency_s[task] == pytest.approx(cluster.latency_s(source, target, size))
        assert graph.stream[task] == -1


@settings(max_examples=9)
@given(questions(models=("lenet5", "conv1d")))
def test_collectives_load_the_links_of_all_their_messages(question):
    model, strategy = question
    cluster, program = model.cluster, program_of(model, strategy)
    graph = build_program_graph(program).graph
    for task, collective in program.collectives.items():
        step = collective.round
        size = collective.buffer_bytes * step.share
        loads, slowest_s = np.zeros(len(cluster.links)), 0.0
        for source, target in zip(step.source.tolist(), step.target.tolist(), strict=True):
            loads[list(cluster.route(source, target))] += size * step.repeats
            slowest_s = max(slowest_s, cluster.latency_s(source, target, size))
        used = slice(graph.use_start[task], graph.use_start[task + 1])
        resources = graph.use_resource[used]
        np.testing.assert_allclose(graph.use_weight[used] * graph.work[task], loads[resources])
        assert set(resources.tolist()) == set(np.flatnonzero(loads).tolist())
        assert graph.use_weight[used].max() == 1  # the busiest link carries its work, byte for byte
        assert graph.latency_s[task] == pytest.approx(step.repeats * slowest_s)


@settings(max_examples=8)
@given(questions(models=("lenet5", "conv1d")))
def test_joined_transfers_meet_nobody_and_take_their_busiest_link(question):
    """Without contention a group is one activity of its own: latency, then bytes over bandwidth."""
    model, strategy = question
    cluster, program = model.cluster, program_of(model, strategy)
    reading = build_program_graph(program, contention=False)
    graph, of = reading.graph, reading.task_of[0]
    for group in np.unique(program.group[~program.is_compute]):
        members = np.flatnonzero(program.group == group)
        assert len(set(of[members])) == 1
        activity = of[members[0]]
        loads = np.zeros(len(cluster.links))
        for task in members.tolist():
            if task in program.collectives:
                step, size = program.collectives[task].round, program.collectives[task].buffer_bytes
                for source, target in zip(step.source.tolist(), step.target.tolist(), strict=True):
                    loads[list(cluster.route(source, target))] += size * step.share * step.repeats
            else:
                loads[list(cluster.route(int(program.device[task]), int(program.peer[task])))] += program.size_bytes[
                    task
                ]
        assert graph.use_start[activity] == graph.use_start[activity + 1]
        assert graph.work[activity] == pytest.approx((loads / cluster.bandwidth).max())


@settings(max_examples=8)
@given(questions(models=("lenet5", "conv1d")))
def test_overlap_waits_for_the_program_only(question):
    """Dependencies are those of the program, each iteration's first tasks wait for the updates before."""
    model, strategy = question
    program = program_of(model, strategy)
    reading = build_program_graph(program, iterations=3)
    carried = {}
    for task, before in program.carried.tolist():
        carried.setdefault(task, []).append(before)
    for iteration, row in enumerate(reading.task_of):
        assert row.tolist() == list(range(iteration * program.size, (iteration + 1) * program.size))
        for task in range(program.size):
            inside = program.after[program.after_start[task] : program.after_start[task + 1]]
            expected = row[inside].tolist()
            if iteration:
                expected += reading.task_of[iteration - 1][carried.get(task, [])].tolist()
            assert rows(reading.graph, row[task]) == sorted(expected)


@pytest.mark.parametrize("contention", [False, True])
def test_barriers_keep_the_phases_apart(contention):
    """No task begins before every task of the group before has ended, over iterations too.

    All wait for smaller numbers, so that a check for cycles need not follow them.
    """
    model = CostModel(chain(), cluster_of("titanx-4", 4))
    program = program_of(model, named_strategy("model", model.graph, 4))
    reading = build_program_graph(program, overlap=False, contention=contention, iterations=2)
    assert (reading.graph.after < reading.graph.waiting).all()
    schedule = simulate(reading.graph)
    phase = program.group + (program.group.max() + 1) * np.arange(2)[:, None]
    ready_s, end_s = schedule.ready_s[reading.task_of], schedule.end_s[reading.task_of]
    for group in np.unique(phase)[1:]:
        assert ready_s[phase == group].min() >= end_s[phase < group].max() * (1 - 1e-12)


@pytest.mark.parametrize(("overlap", "contention"), READINGS)
def test_every_reading_computes_the_same(overlap, contention):
    """Kernels keep their device, their time and their order in every reading."""
    model = CostModel(chain(), cluster_of("titanx-4", 4))
    program = program_of(model, named_strategy("owt", model.graph, 4))
    reading = build_program_graph(program, overlap=overlap, contention=contention, iterations=2)
    compute = np.flatnonzero(program.is_compute)
    links = len(model.cluster.links)
    for row in reading.task_of:
        np.testing.assert_array_equal(reading.graph.work[row[compute]], program.work_s[compute])
        np.testing.assert_array_equal(reading.graph.stream[row[compute]], program.device[compute])
        used = reading.graph.use_resource[reading.graph.use_start[row[compute]]]
        np.testing.assert_array_equal(used, links + program.device[compute])
        assert np.all(np.diff(row[compute]) > 0)
    assert reading.graph.resource_names[links:] == tuple(device.name for device in model.cluster.devices)


def test_a_transfer_alone_takes_latency_and_bytes_over_bandwidth():
    """A layer moves from device 0 to device 3: the same in all readings, worked from the device graph."""
    graph, cluster = chain(), cluster_of("titanx-4", 4)
    strategy = {v.name: Configuration(dict.fromkeys(v.parallel_dims, 1), (3,)) for v in graph.layers}
    strategy["conv"] = Configuration({"sample": 1, "channel": 1, "length": 1}, (0,))
    program = program_of(CostModel(graph, cluster), strategy)
    work_s = {program.name(task): program.work_s[task] for task in range(program.size) if program.peer[task] < 0}
    sent_bytes = 8 * 8 * 16 * 4
    slowest = min(cluster.links[link].bandwidth_bytes_per_s for link in cluster.route(0, 3))
    expected_s = cluster.latency_s(0, 3, sent_bytes) + sent_bytes / slowest
    for overlap, contention in READINGS:
        reading = build_program_graph(program, overlap=overlap, contention=contention)
        move = reading.task_of[0][np.flatnonzero(program.peer >= 0)]
        assert len(move) == 2  # there, and the gradient back
        took_s = (reading.graph.latency_s + alone_s(reading.graph))[move]
        np.testing.assert_allclose(took_s, expected_s)
        back_s = expected_s + work_s["conv weight gradient [0]"] + work_s["conv update [0]"]
        beside_s = work_s["fc weight gradient [0]"] + work_s["fc update [0]"]
        together_s = max(back_s, beside_s) if overlap else back_s + beside_s
        before_s = sum(work_s.values()) + 2 * expected_s - back_s - beside_s
        assert simulate(reading.graph).makespan_s == pytest.approx(before_s + together_s)
