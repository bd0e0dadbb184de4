"""Sub-tasks on threads: the plain backward to rounding, the order that was asked for, and what ends a step."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from plans import inception_module
from undivided import Undivided, wide

from executor.data.load import load_data
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.streams.measure import UNLIMITED, measure_streams
from executor.streams.measure_request import CoreStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.threads import ThreadRunner
from executor.streams.view import as_stream_comparison
from groundwork.errors import ConfigError
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from studies.streams.decomposition import with_measured
from studies.streams.delayed_memory import bounded, held_bytes, needed_bytes
from studies.streams.schedule_comparison import whole_program
from studies.streams.stream_request import METHODS, SCHEDULES, PathOptions
from studies.streams.stream_schedules import schedule

pytestmark = pytest.mark.timeout(120)
TWO = replace(UNLIMITED, priorities=2)


def every_kind():
    """Every kind of layer, branches, and a tensor that three layers read."""
    net = ModelBuilder("kinds", batch=4, image=(3, 12, 12))
    stem = net.conv(8, 3, pad=1, batch_norm=True)
    normal = net.local_response_norm()
    a = net.conv(8, 3, normal, pad=1, groups=2)
    b = net.batch_norm(net.conv(8, 1, stem, activation=None))
    c = net.conv(8, 1, net.pool("max", 3, stem, stride=1, pad=1), activation="tanh")
    joined = net.concat([net.sum([a, b], activation="relu"), c])
    net.pool("average", 2, joined)
    net.conv(8, 3, stride=2)
    net.linear(12, activation="sigmoid", dropout=0.25)
    net.linear(5)
    net.loss()
    return net.build()


GRAPHS = {
    "every-kind": every_kind,
    "global-pool": lambda: load_model("resnet-cifar:depth=8", batch=2),
    "conv1d": lambda: load_model("conv1d", batch=1),
    "lenet5": lambda: load_model("lenet5", batch=4),
    "inception": inception_module,
}


def plans(graph):
    """All schedules, with every method, and one that may hold nothing."""
    program, _ = whole_program(graph, "cpu-core")
    work = with_measured(program, {})
    rng = np.random.default_rng(1)
    work = replace(work, program=replace(work.program, work_s=rng.uniform(1, 2, work.program.size)))
    for name in SCHEDULES[:3]:
        yield work, schedule(work, name, UNLIMITED)
    for method in METHODS:
        launch = UNLIMITED if method == "levels" else TWO
        plan = schedule(work, "critical-path", launch, options=PathOptions(method=method))
        yield work, plan
        yield work, bounded(work.program, plan, 0.0)


@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_are_those_of_autograd(name):
    """Every schedule's gradients against torch's own backward in float64, to 1e-10."""
    graph = wide(GRAPHS[name]())
    step, reference = 3, None
    for work, plan in plans(graph):
        network = SubTaskNetwork(work.program, seed=5)
        if reference is None:
            parameters = {
                (graph.layers[i].name, key): value
                for i, row in enumerate(network.parameters)
                for key, value in row.items()
            }
            data = load_data("generated", graph, seed=5, dtype=torch.float64, device="cpu")
            shape = graph.layers[0].input_shapes[0].sizes
            given = data.inputs(step, whole_box(shape)), data.targets(step, 0, graph.batch)
            reference = Undivided(graph, parameters).run(*given, number=step, seed=5)
        network.begin(step)
        with ThreadRunner(work.program, plan, network.run, cores=[1] * work.program.size, total=3) as crew:
            crew.step()
        assert network.loss == pytest.approx(float(reference.loss), rel=1e-12)
        found = {
            (graph.layers[i].name, key): value for i, row in network.gradients.items() for key, value in row.items()
        }
        assert set(found) == set(reference.gradients)
        for key, expected in reference.gradients.items():
            scale = max(float(expected.abs().max()), 1e-3)
            assert float((found[key] - expected).abs().max()) <= 1e-10 * scale, (plan.name, key)


def test_training_is_that_of_one_stream():
    """Asynchronous updates: ten steps of SGD end in the same parameters, whichever schedule, and nothing is kept."""
    graph, ends = wide(every_kind()), []
    for work, plan in plans(graph):
        network = SubTaskNetwork(work.program, seed=2, optimizer=OptimizerSpec())
        with ThreadRunner(work.program, plan, network.run, cores=[1] * work.program.size, total=2) as crew:
            for number in range(10):
                network.begin(number)
                crew.step()
        ends.append(torch.cat([value.reshape(-1) for row in network.parameters for value in row.values()]))
        assert not any(part._saved for part in network.parts if part.layer.parameters)
    for end in ends[1:]:
        assert torch.allclose(end, ends[0], rtol=1e-10, atol=1e-12)


def test_tasks_keep_dependencies_streams_and_cores():
    """Recorded intervals: nothing before what it waits for, streams one by one, never more cores than there are."""
    graph = load_model("googlenet", batch=1)
    for work, plan in plans(graph):
        program, cores = work.program, np.random.default_rng(0).integers(1, 4, work.program.size)
        with ThreadRunner(program, plan, lambda task: time.sleep(1e-5), cores=cores.tolist(), total=3) as crew:
            times = crew.step()
        late = np.repeat(np.arange(program.size), np.diff(program.after_start))
        assert np.all(times.start_s[late] >= times.end_s[program.after])
        assert np.all(times.start_s[plan.order[:, 0]] >= times.end_s[plan.order[:, 1]])
        for stream in range(plan.streams):
            mine = np.flatnonzero(plan.stream == stream)
            assert np.all(times.start_s[mine[1:]] >= times.end_s[mine[:-1]])
        events = sorted(
            [(end, -n) for end, n in zip(times.end_s, cores, strict=True)]
            + [(start, n) for start, n in zip(times.start_s, cores, strict=True)]
        )
        assert np.cumsum([n for _, n in events]).max() <= 3
        assert held_bytes(program, times.end_s) <= needed_bytes(program).sum()


def test_a_failure_ends_the_step_and_the_next_one_runs():
    graph = load_model("lenet5", batch=2)
    work, plan = next(plans(graph))
    fail = [True]

    def run(task):
        if task == 5 and fail[0]:
            raise RuntimeError("out of order")

    with ThreadRunner(work.program, plan, run, cores=[1] * work.program.size, total=2) as crew:
        with pytest.raises(RuntimeError, match="out of order"):
            crew.step()
        fail[0] = False
        assert crew.step().step_s > 0


def test_measured_schedules_come_with_predictions():
    found = measure_streams(load_model("lenet5", batch=8), CoreStreamsRequest(cores=2, rounds=1))
    assert [row.name for row in found.results] == list(SCHEDULES)
    assert found.results[0].gain == 1.0
    assert all(row.predicted_s > 0 and row.step_s > 0 for row in found.results)
    assert [row.threads for row in found.results] == [(2, 2), (1, 1), (1, 1), (1, 1)]
    for row, shown in zip(found.results, as_stream_comparison(found).results, strict=True):
        core_s = (row.times.end_s - row.times.start_s) @ row.work.occupancy
        assert shown.use.mean() == pytest.approx(core_s / row.times.step_s, rel=0.01)
        assert shown.use.max() <= 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cores": 1}, "cores must be >= 2"),
        ({"cores": 10**6}, f"cores must be at most the machine's {os.cpu_count()}, got 1000000"),
        ({"cores": 2, "critical_cores": 2}, "critical_cores must be from 1 to 1, got 2"),
        ({"cores": 2, "rounds": 0}, "rounds must be >= 1, got 0"),
        ({"cores": 2, "hold_bytes": -1.0}, "hold_bytes must be >= 0"),
        ({"cores": 2, "schedules": ["best"]}, "schedule must be one of"),
    ],
)
def test_bad_input_is_refused(given, message):
    graph = load_model("lenet5", batch=2)
    of_cores = {name: value for name, value in given.items() if name in ("cores", "critical_cores", "rounds")}
    others = {name: value for name, value in given.items() if name not in of_cores}
    with pytest.raises(ConfigError, match=message):
        measure_streams(graph, CoreStreamsRequest(**of_cores), **others)


def test_tasks_that_no_core_can_run_are_refused():
    work, plan = next(plans(load_model("lenet5", batch=2)))
    with pytest.raises(ConfigError, match="cores of a task must be from 1 to 2, got 3 to 3"):
        ThreadRunner(work.program, plan, lambda task: None, cores=[3] * work.program.size, total=2)
