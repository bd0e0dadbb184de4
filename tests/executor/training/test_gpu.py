"""One GPU: training over NCCL equals that of the processor, and its timeline makes sense."""

import os
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from plans import cluster_of, inception_module, program_of
from ports import free_port
from ranks import joined_tasks, options
from test_training import dense_block, small_alexnet, small_vgg

from executor.runtime.devices import CpuDevice, CudaDevice, device_of
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from groundwork.errors import ConfigError
from planner.cost.cost_model import CostModel
from planner.lowering.program import KINDS
from planner.strategies.named_strategies import named_strategy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
GRAPHS = {"alexnet": small_alexnet, "vgg": small_vgg, "inception": inception_module, "dense": dense_block}
STEPS = 4


@pytest.fixture(scope="module")
def group():
    """One process with a GPU, and gloo beside NCCL for the processor."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    device = device_of("cuda", 0)
    dist.init_process_group("nccl", rank=0, world_size=1, device_id=device.torch_device)
    yield device
    dist.destroy_process_group()


def lowered(name, element_bytes=4):
    graph = GRAPHS[name]()
    graph.element_bytes = element_bytes
    return program_of(CostModel(graph, cluster_of("titanx-4", 1)), named_strategy("data", graph, 1))


def train(program, device, **changes):
    """Losses, parameters and what was measured of a few steps."""
    chosen = options(steps=STEPS, seed=5, device=device.torch_device.type, **changes)
    session = open_session(
        program, 0, chosen, reduced=False, device=device, status=own_status(0, {}), steps=chosen.steps
    )
    results = [session.worker.step(number) for number in range(STEPS)]
    session.worker.close()
    parameters = {
        (i, name): value.cpu().double() for i, row in session.parameters.items() for name, value in row.items()
    }
    return [result.loss for result in results], parameters, [result.measured for result in results]


CASES = {
    "float32": (4, 2e-3, OptimizerSpec()),  # Adam would make steps of full length of gradients that are rounding
    "float64": (8, 1e-9, OptimizerSpec()),
    "adam": (8, 1e-9, OptimizerSpec(name="adam", learning_rate=1e-3)),
}


@pytest.mark.parametrize(("element_bytes", "tolerance", "optimizer"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", GRAPHS)
def test_training_on_a_gpu_is_that_of_the_processor(group, name, element_bytes, tolerance, optimizer):
    program = lowered(name, element_bytes)
    losses, parameters, _ = train(program, group, optimizer=optimizer)
    expected, on_processor, _ = train(program, CpuDevice(), optimizer=optimizer)
    np.testing.assert_allclose(losses, expected, rtol=tolerance)
    for key, value in on_processor.items():
        np.testing.assert_allclose(parameters[key], value, rtol=tolerance, atol=tolerance * 0.1, err_msg=str(key))


@pytest.mark.parametrize("overlap", [True, False])
def test_the_timeline_of_a_gpu_makes_sense(group, overlap):
    """Tasks have lengths, follow each other as on one stream, and lie within the step on the host's clock."""
    program = lowered("inception")
    before_s = time.perf_counter()
    _, _, measured = train(program, group, overlap=overlap)
    after_s = time.perf_counter()
    joined = joined_tasks([measured])
    assert np.isfinite(joined.start_s).all()
    slack_s = 1e-4  # of the host's clock against the device's
    assert joined.start_s.min() > before_s - slack_s
    assert joined.end_s.max() < after_s + slack_s
    assert (joined.end_s >= joined.start_s).all()
    order = np.argsort(joined.start_s, axis=1)
    starts, ends = (np.take_along_axis(rows, order, axis=1) for rows in (joined.start_s, joined.end_s))
    assert (starts[:, 1:] >= ends[:, :-1] - 5e-6).all()
    assert (starts[1:, 0] >= ends[:-1, -1] - slack_s).all()
    assert {KINDS[kind] for kind in program.kind} >= {"forward", "activation_gradient", "weight_gradient", "update"}


def test_marks_are_times_of_the_hosts_clock(group):
    """A known wait of the host between two marks is what they are apart, iterations after the device was set up."""
    for _ in range(3):
        group.synchronize()
        first = group.mark()
        torch.cuda.synchronize()
        time.sleep(0.05)
        now_s, second = time.perf_counter(), group.mark()
        torch.cuda.synchronize()
        assert group.seconds(second) == pytest.approx(now_s, abs=2e-3)
        assert group.seconds(second) - group.seconds(first) == pytest.approx(0.05, abs=5e-3)


def test_a_lane_waits_for_arithmetic_and_arithmetic_for_its_lane(group):
    """Long work on each stream: without either wait the sum would miss some of it."""
    lane, size = group.lane("test"), 4096
    for _ in range(3):
        values = torch.zeros(size, size, device="cuda")
        factor = torch.eye(size, device="cuda")
        for _ in range(20):
            values = values @ factor
        values += 1

        def work(values=values, factor=factor):
            for _ in range(20):
                values.copy_(values @ factor)
            dist.all_reduce(values.mul_(2))

        handle = lane.submit(work)
        lane.keep(values)
        handle.wait(0.0)
        assert float(values.sum()) == 2.0 * size * size
    lane.close()


def test_the_host_runs_ahead_of_the_gpu(group, monkeypatch):
    """Nothing inside a step waits for the GPU: with a long kernel first, all tasks are given before it ends."""
    program, given_s = lowered("vgg"), []
    train(program, group)  # kernels are loaded
    synchronize = group.synchronize

    def watched():
        given_s.append(time.perf_counter())
        synchronize()

    chosen = options(steps=3, device="cuda")
    session = open_session(program, 0, chosen, reduced=False, device=group, status=own_status(0, {}), steps=3)
    session.worker.step(0)
    monkeypatch.setattr(group, "synchronize", watched)
    torch.cuda._sleep(2_000_000_000)  # about a second
    begin_s = time.perf_counter()
    result = session.worker.step(1)
    assert np.isfinite(result.loss)
    assert given_s[0] - begin_s < 0.5 * (time.perf_counter() - begin_s)
    session.worker.close()


def test_a_loss_that_is_not_finite_ends_the_step(group):
    program = lowered("vgg")
    session = open_session(
        program, 0, options(device="cuda"), reduced=False, device=group, status=own_status(0, {}), steps=3
    )
    session.worker.step(0)
    for row in session.parameters.values():
        for value in row.values():
            value.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="loss is not finite at step 1"):
        session.worker.step(1)
    session.worker.close()


def test_a_gpu_cannot_stand_in(group):
    program = lowered("vgg")
    with pytest.raises(ConfigError, match="device must be cpu with stand_in"):
        open_session(
            program,
            0,
            options(device="cuda", stand_in=True),
            reduced=False,
            device=group,
            status=own_status(0, {}),
            steps=1,
        )


def test_all_ranks_of_a_machine_have_gpus_or_none():
    count = torch.cuda.device_count()
    assert isinstance(device_of("auto", 0, local_ranks=count), CudaDevice)
    assert isinstance(device_of("auto", 0, local_ranks=count + 1), CpuDevice)
    with pytest.raises(ConfigError, match=f"rank {count}, {count} GPUs"):
        device_of("cuda", count)
