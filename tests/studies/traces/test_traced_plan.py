"""Traces of PyTorch's profiler: recorded here of ResNet-18, and small ones by hand."""

import json

import numpy as np
import pytest

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from planner.simulation.program_replay import replay
from studies.traces.profiler_events import traced_iterations
from studies.traces.traced_plan import traced_layer_times, traced_plan


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A trace of two steps of ResNet-18 with two samples."""
    pytest.importorskip("torch")
    from traces.recorded import record

    path = tmp_path_factory.mktemp("trace") / "resnet18.json"
    record(path, 2, steps=2)
    return path


def planned(cluster="titanx-4", batch=8):
    graph, machines = load_model("resnet18", batch=batch), load_cluster(cluster)
    plan = make_plan(graph, machines, strategy="data")
    return plan, lower_plan(plan, graph, machines)


def found_share(times, iteration):
    """Share of the time of all operations that belongs to layers and the update."""
    own = [*times.forward.values(), *times.backward.values(), times.update]
    every = (*iteration.forward, *iteration.backward, *iteration.update)
    return sum(span[2] for span in own) / sum(each.busy_s for each in every)


def test_every_layer_of_resnet18_is_found_forward_and_backward(recorded):
    """The layers are those of He et al.; over 95 % of the step's time is theirs or the optimizer's."""
    graph = load_model("resnet18", batch=2)
    iterations = traced_iterations(recorded)
    assert len(iterations) == 2
    for iteration in iterations:
        times = traced_layer_times(graph, iteration)
        names = {layer.name for layer in graph.layers}
        assert set(times.forward) == set(times.backward) == names
        assert found_share(times, iteration) > 0.95
        assert 0 < times.covered <= 1  # of the clock's time, which other programs stretch
        order = [name for name, _ in sorted(times.forward.items(), key=lambda item: item[1][0])]
        assert order.index("layer2.0.conv1") < order.index("layer2.0.conv2") < order.index("layer2.0.downsample")
        assert order.index("layer2.0.downsample") < order.index("layer2.0.add") < order.index("layer2.1.conv1")
        for span in (*times.forward.values(), *times.backward.values()):
            assert 0 <= span[0] <= span[1] <= times.iteration_s
            assert span[2] <= span[1] - span[0] + 1e-8  # starts and lengths of operations are rounded to nanoseconds


def test_sums_agree_with_the_profilers_own(recorded):
    """The time of all convolutions is what the trace's operations of that name take together."""
    events = json.loads(recorded.read_text())["traceEvents"]
    steps = [e for e in events if str(e.get("name")).startswith("ProfilerStep")]
    first = min(steps, key=lambda e: e["ts"])
    seconds = (
        sum(
            e["dur"]
            for e in events
            if e.get("name") == "autograd::engine::evaluate_function: ConvolutionBackward0"
            and first["ts"] <= e["ts"] < first["ts"] + first["dur"]
        )
        / 1e6
    )
    times = traced_layer_times(load_model("resnet18", batch=2), traced_iterations(recorded)[0])
    convolutions = sum(span[2] for name, span in times.backward.items() if "conv" in name or "downsample" in name)
    assert seconds < convolutions < 2 * seconds  # and their normalisations and activations
    assert convolutions < times.iteration_s


def test_a_trace_stands_beside_the_timeline_of_a_plan(recorded):
    _, program = planned()
    result = traced_plan(program, replay(program), [recorded])

    assert result.missing == ()
    assert 0 < result.covered <= 1
    assert set(result.layers["phase"]) == {"forward", "backward", "update"}
    assert np.isfinite(result.layers[["predicted_s", "measured_s"]].to_numpy()).all()
    assert set(result.timeline["device"]) == {0}
    assert (result.timeline["end_s"] >= result.timeline["start_s"]).all()
    assert result.timeline["end_s"].max() <= result.measured_s * 1.5
    own = program.is_compute & (program.device == 0)
    assert len(result.timeline) == own.sum()


def test_more_traces_than_devices_are_refused(recorded):
    _, program = planned()
    with pytest.raises(ConfigError, match="at most one for each of 4 devices, got 5"):
        traced_plan(program, replay(program), [recorded] * 5)


def operation(name, start_us, duration_us, sequence=None, dims=None, cat="cpu_op", **more):
    args = ({} if sequence is None else {"Sequence number": sequence}) | ({} if dims is None else {"Input Dims": dims})
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start_us,
        "dur": duration_us,
        "args": args | more,
    }


def two_layers(**changes):
    """A convolution and a linear layer by hand; what a layer launches is inside."""
    engine = "autograd::engine::evaluate_function: "
    return [
        operation("aten::conv2d", 0, 10, 0, [[4, 3, 8, 8], [6, 3, 3, 3]], **changes),
        operation("aten::_convolution", 1, 8, 0, [[4, 3, 8, 8], [6, 3, 3, 3]]),
        operation("aten::relu", 10, 2, 1, [[4, 6, 6, 6]]),
        operation("aten::linear", 14, 4, 2, [[4, 216], [5, 216]]),
        operation(f"{engine}AddmmBackward0", 20, 5, 2),
        operation(f"{engine}torch::autograd::AccumulateGrad", 25, 1),
        operation(f"{engine}ReluBackward0", 26, 3, 1),
        operation(f"{engine}ConvolutionBackward0", 30, 10, 0),
        operation("Optimizer.step#SGD.step", 42, 8, cat="user_annotation"),
        operation("aten::add_", 43, 6, 3, [[6, 3, 3, 3], [6, 3, 3, 3]]),
    ]


def read(tmp_path, events):
    (tmp_path / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return traced_iterations(tmp_path / "t.json")


def small():
    from planner.models.builder import ModelBuilder

    net = ModelBuilder("small", batch=4, image=(3, 8, 8))
    net.conv(6, 3, activation="relu")
    net.linear(5)
    return net.build()


def test_times_of_a_trace_written_by_hand(tmp_path):
    times = traced_layer_times(small(), read(tmp_path, two_layers())[0])
    conv, linear = list(times.forward)
    assert [round(1e6 * span[2]) for span in (times.forward[conv], times.forward[linear])] == [12, 4]
    assert [round(1e6 * span[2]) for span in (times.backward[conv], times.backward[linear])] == [13, 6]
    assert round(1e6 * times.update[2]) == 8
    assert times.covered == pytest.approx((12 + 4 + 13 + 6 + 8) / 50, rel=0.05)


def test_kernels_of_a_gpu_are_what_counts(tmp_path):
    """The convolution launches kernels of 100 and 40 us, much later than it runs on the host."""
    events = two_layers(**{"External id": 7})
    events[1]["args"]["External id"] = 8
    events += [
        operation("gemm", 500, 100, cat="kernel", **{"External id": 8}),
        operation("bias", 600, 40, cat="kernel", **{"External id": 7}),
    ]
    times = traced_layer_times(small(), read(tmp_path, events)[0])
    conv = next(iter(times.forward))
    assert [round(1e6 * value) for value in times.forward[conv]] == [500, 640, 140]


def lagging_steps(lag_us):
    """Two steps of 50 us whose kernels, one for each operation on the host, begin some time after their launch."""
    events, external = [], 0
    for step in range(2):
        events.append(operation(f"ProfilerStep#{step}", 50 * step, 50, cat="user_annotation"))
        for event in two_layers():
            row = event | {"ts": event["ts"] + 50 * step, "args": dict(event["args"])}
            if "Sequence number" in row["args"]:
                row["args"]["Sequence number"] += 10 * step
            events.append(row)
            if row["cat"] == "cpu_op":
                external += 1
                row["args"]["External id"] = external
                more = {"External id": external}
                events.append(operation(f"kernel {external}", row["ts"] + lag_us, 1, cat="kernel", **more))
    return events


@pytest.mark.parametrize("lag_us", [0, 12, 30, 42, 55, 1000])
def test_kernels_that_lag_behind_change_neither_pass_nor_step(tmp_path, lag_us):
    """Forward kernels run while the host is in the optimizer, and those of a step while it is in the next."""
    graph, events = small(), lagging_steps(lag_us)
    iterations = read(tmp_path, events)
    for iteration in iterations:
        assert [each.name for each in iteration.forward] == ["aten::conv2d", "aten::relu", "aten::linear"]
        assert len(iteration.backward) == 4
        assert [each.name for each in iteration.update] == ["aten::add_"]
        assert iteration.device_s == pytest.approx(9e-6)  # the convolution has two
        times = traced_layer_times(graph, iteration)
        conv, linear = list(times.forward)
        assert [round(1e6 * value) for value in times.forward[conv]] == [lag_us, lag_us + 11, 3]
        assert [round(1e6 * value) for value in times.backward[linear]] == [lag_us + 20, lag_us + 26, 2]
        assert [round(1e6 * value) for value in times.update] == [lag_us + 43, lag_us + 44, 1]
        assert times.covered == pytest.approx(1)
    kernels_s = sum(event["dur"] for event in events if event["cat"] == "kernel") / 1e6
    assert sum(each.device_s for each in iterations) == pytest.approx(kernels_s)


def test_annotations_with_names_of_layers_need_no_shapes(tmp_path):
    graph = small()
    conv, linear = (layer.name for layer in graph.layers[:2])
    events = two_layers()
    for event in events:
        event["args"].pop("Input Dims", None)
    with pytest.raises(ConfigError, match="record it with record_shapes=True"):
        traced_layer_times(graph, read(tmp_path, events)[0])
    events += [operation(conv, 0, 13, cat="user_annotation"), operation(linear, 13, 6, cat="user_annotation")]
    times = traced_layer_times(graph, read(tmp_path, events)[0])
    assert [round(1e6 * times.backward[name][2]) for name in (conv, linear)] == [13, 6]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "must have a list traceEvents"),
        ({"traceEvents": 3}, "must have a list traceEvents"),
        ({"traceEvents": []}, "has no operations"),
        ({"traceEvents": [operation("aten::relu", 0, 1)]}, "has no Sequence number"),
        ({"traceEvents": [operation("aten::relu", 0, 1, 3)]}, "has no backward pass"),
        ({"traceEvents": [operation("aten::relu", "soon", 1, 3)]}, "has no backward pass"),
        ({"traceEvents": [*two_layers(), operation("aten::relu", "soon", 1, 3)]}, "ts and dur must be numbers"),
        ({"traceEvents": [*two_layers(), operation("aten::relu", 1, -1, 3)]}, "dur must be >= 0"),
    ],
)
def test_traces_without_the_fields_needed_are_refused(tmp_path, content, message):
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=message):
        traced_iterations(tmp_path / "t.json")
