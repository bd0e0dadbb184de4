"""The sum of probed parts against the iteration that they make up, one process, samples in turns.

Run as ``python tests/benchmarks/probe_sums.py [--own-time] [iterations] [model:batch ...]``; prints a table, on the
GPU where there is one.  ``iteration`` is the time of a whole step, data read from memory; ``tasks`` the sum of its
measured tasks; ``probed`` the sum of the medians of the layers' parts.  Spreads are half the distance between the
quartiles.  With ``--own-time`` all clocks run only while this thread does: for machines where others compute too.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from executor.probe.layer_probe import LayerProbe
from executor.probe.measured_rows import TimeSamples
from executor.probe.parts_to_measure import parts_of
from executor.rendezvous.rank_environment import held_port
from executor.runtime.devices import CpuDevice, device_of
from executor.runtime.run_options import RunOptions
from executor.supervision.launcher import KEPT_MEMORY
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.strategies.named_strategies import named_strategy, spaces_of

CASES = ("lenet5:64", "alexnet-cifar:32", "vgg11-cifar:16", "resnet-cifar:16")


class OwnTime(CpuDevice):
    """A processor whose clock stands while others have it."""

    def mark(self):
        return time.thread_time()


def samples_of_one_epoch(graph, folder):
    """A data set in a file that costs next to nothing to read."""
    shape = graph.layers[0].input_shapes[0].sizes
    random = np.random.default_rng(0)
    path = Path(folder) / "data.npz"
    classes = graph.layers[-1].output.sizes[1]
    inputs = random.standard_normal((2 * graph.batch, *shape[1:]), dtype=np.float32)
    np.savez(path, inputs=inputs, targets=random.integers(classes, size=2 * graph.batch))
    return str(path)


def measured(name, batch, iterations, device, clock, folder):
    """Iterations, sums of tasks, and rows of the probe."""
    graph = load_model(name, batch=batch)
    spaces = spaces_of(graph, named_strategy("data", graph, 1), 1)
    program = lower(CostModel(graph, load_cluster("p100-4x4").take(1)), spaces)
    options = RunOptions(plan="", data=samples_of_one_epoch(graph, folder))
    status = own_status(0)
    session = open_session(program, 0, options, reduced=False, device=device, status=status, steps=iterations + 2)
    probe = LayerProbe(graph, parts_of(graph, [spaces]), device)
    probe.warm_up()
    steps, tasks = [], []
    for number in range(iterations + 2):
        device.synchronize()
        begin = clock()
        found = session.worker.step(number).measured
        steps.append(clock() - begin)
        tasks.append(float(np.nansum(found.end_s - found.start_s)))
        if number >= 2:
            probe.sample()
    session.worker.close()
    return TimeSamples(tuple(steps[2:])), TimeSamples(tuple(tasks[2:])), probe.rows()


def main(*words):
    """Print one line a model."""
    torch.set_num_threads(1)
    own = "--own-time" in words
    iterations, *cases = [word for word in words if word != "--own-time"] or ["30"]
    device, clock = (OwnTime(), time.thread_time) if own else (device_of("auto", 0), time.perf_counter)
    with held_port() as port:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group(device.backend, rank=0, world_size=1)
    how = f"{device.torch_device}, one thread, {iterations} samples each" + ", own time" * own
    print(f"{how}; load before {os.getloadavg()[0]:.1f}")
    print(
        f"{'model':<16}{'batch':>6}{'iteration':>12}{'spread':>8}{'tasks':>11}{'probed':>11}{'spread':>8}"
        f"{'probed/iteration':>18}{'probed/tasks':>14}{'load':>6}"
    )
    for case in cases or CASES:
        name, _, batch = case.rpartition(":")
        with tempfile.TemporaryDirectory() as folder:
            steps, tasks, rows = measured(name, int(batch), int(iterations), device, clock, folder)
        probed_s = sum(row.samples.median_s * len(row.layers) for row in rows)
        sums = TimeSamples(tuple(sum(np.array(row.samples.seconds) * len(row.layers) for row in rows).tolist()))
        print(
            f"{name:<16}{batch:>6}{steps.median_s * 1e3:>9.2f} ms{steps.spread:>8.1%}{tasks.median_s * 1e3:>8.2f} ms"
            f"{probed_s * 1e3:>8.2f} ms{sums.spread:>8.1%}{probed_s / steps.median_s - 1:>+18.1%}"
            f"{probed_s / tasks.median_s - 1:>+14.1%}{os.getloadavg()[0]:>6.1f}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    if not KEPT_MEMORY.items() <= os.environ.items():  # as ranks are started
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEPT_MEMORY)
    main(*sys.argv[1:])
