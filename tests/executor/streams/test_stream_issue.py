"""What a host issues to CUDA streams: every dependency kept by stream order and events; and, on a GPU, the results."""

import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from test_stream_threads import GRAPHS, plans

from executor.streams.cuda import CudaRunner, issued_tasks, stream_priorities
from executor.streams.measure_cuda import measure_on_cuda
from executor.streams.measure_request import CudaStreamsRequest
from executor.streams.network import SubTaskNetwork
from executor.streams.threads import ThreadRunner
from groundwork.errors import ConfigError
from planner.models.registry import load_model

NO_GPU = not torch.cuda.is_available()


@pytest.mark.parametrize("name", ["every-kind", "inception"])
def test_streams_and_events_keep_every_dependency(name):
    """What is known to have ended when a task starts: its stream's earlier tasks, and what the waited events knew."""
    for work, plan in plans(GRAPHS[name]()):
        program, issued = work.program, issued_tasks(work.program, plan)
        assert sorted(row.task for row in issued) == list(range(program.size))
        assert all(0 <= row.stream < plan.streams for row in issued)
        known, behind = {}, [set() for _ in range(plan.streams)]
        for row in issued:
            for early in row.waits:
                behind[row.stream] |= known[early]
            before = program.after[program.after_start[row.task] : program.after_start[row.task + 1]].tolist()
            before += plan.order[plan.order[:, 0] == row.task, 1].tolist()
            assert set(before) <= behind[row.stream], (plan.name, row)
            behind[row.stream].add(row.task)
            known[row.task] = set(behind[row.stream])
        waited = {early for row in issued for early in row.waits}
        assert waited == {row.task for row in issued if row.records}


def test_streams_run_in_program_order_and_events_are_few():
    for work, plan in plans(load_model("googlenet", batch=1)):
        issued = issued_tasks(work.program, plan)
        for stream in range(plan.streams):
            mine = [row.task for row in issued if row.stream == stream and plan.stream[row.task] == stream]
            assert mine == sorted(mine)
        if plan.name == "one-stream":
            assert not any(row.waits for row in issued)
        assert sum(len(row.waits) for row in issued) <= len(work.program.after) + len(plan.order)


def test_priorities_of_streams():
    """CUDA serves lower numbers first; with two levels only the highest of the plan stands out."""
    for _, plan in plans(load_model("googlenet", batch=1)):
        ranks = [int(plan.priority[plan.shown == s].max()) for s in range(plan.streams)]
        for least, greatest in ((0, -1), (0, -5), (0, -99)):
            found = stream_priorities(plan, least=least, greatest=greatest)
            assert all(greatest <= value <= least for value in found)
            order = np.argsort([-rank for rank in ranks], kind="stable")
            assert np.all(np.diff(np.array(found)[order]) >= 0)
            if len(set(ranks)) > 1:
                assert found[int(np.argmax(ranks))] == greatest


@pytest.mark.skipif(not NO_GPU, reason="there is a CUDA device")
def test_without_a_gpu_it_says_so():
    work, plan = next(plans(load_model("lenet5", batch=2)))
    with pytest.raises(ConfigError, match="device must be a CUDA device for CUDA streams, got none"):
        CudaRunner(work.program, plan, SubTaskNetwork(work.program))


@pytest.mark.skipif(NO_GPU, reason="no CUDA device on this machine")
@pytest.mark.parametrize("graph", [False, True])
def test_gradients_on_a_gpu_are_those_of_a_processor(graph):
    """float32, every schedule: gradients to 1e-4 of one stream on the processor; a graph replays them."""
    network_graph = load_model("resnet-cifar", batch=4)
    for work, plan in plans(network_graph):
        plain = SubTaskNetwork(work.program, seed=5)
        with ThreadRunner(work.program, plan, plain.run, cores=[1] * work.program.size, total=1) as crew:
            crew.step()
        ours = SubTaskNetwork(work.program, seed=5, device="cuda", keep=True)
        times = CudaRunner(work.program, plan, ours, graph=graph).step()
        assert times.step_s > 0
        for layer, row in plain.gradients.items():
            for key, value in row.items():
                found = ours.gradients[layer][key].cpu()
                assert torch.allclose(found, value, rtol=1e-3, atol=1e-4 * float(value.abs().max())), (layer, key)


class Moment:
    """An event of a device that is never behind."""

    def __init__(self, enable_timing=False):
        self.at_s = 0.0

    def record(self, stream=None):
        self.at_s = time.perf_counter()

    def elapsed_time(self, other):
        return (other.at_s - self.at_s) * 1e3


class Lane:
    """A stream that runs at once; it knows what it was told to wait for."""

    waited = 0

    def __init__(self, priority=0):
        self.priority = priority

    def wait_event(self, event):
        assert event.at_s > 0, "waited for an event before it was recorded"
        Lane.waited += 1

    def wait_stream(self, stream):
        pass


@pytest.mark.skipif(not NO_GPU, reason="there is a CUDA device, which is tried itself")
def test_what_the_host_does_for_a_gpu_is_tried_on_a_processor(monkeypatch):
    """Events are recorded before they are waited for, results are right, and measurements come with predictions."""
    for name, value in (
        ("is_available", lambda: True),
        ("Stream", Lane),
        ("Event", Moment),
        ("synchronize", Lane),
        ("current_stream", Lane),
        ("stream", lambda lane: nullcontext()),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    graph = GRAPHS["every-kind"]()
    for work, plan in plans(graph):
        plain, ours = SubTaskNetwork(work.program, seed=5), SubTaskNetwork(work.program, seed=5, keep=True)
        with ThreadRunner(work.program, plan, plain.run, cores=[1] * work.program.size, total=1) as crew:
            crew.step()
        assert CudaRunner(work.program, plan, ours).step().step_s > 0
        for layer, row in plain.gradients.items():
            for key, value in row.items():
                assert torch.allclose(ours.gradients[layer][key], value, rtol=1e-4, atol=1e-5)
    assert Lane.waited > 0
    found = measure_on_cuda(load_model("lenet5", batch=2), CudaStreamsRequest(profile="p100", rounds=2, device="cpu"))
    assert [row.name for row in found.results] == ["one-stream", "layers", "asynchronous", "critical-path"]
    assert all(row.step_s > 0 and row.predicted_s > 0 for row in found.results)
    with pytest.raises(ConfigError, match="graph must be off for networks with dropout"):
        CudaRunner(work.program, plan, ours, graph=True)
