"""A pool of processes that train together again and again: importing torch once a test file is enough."""

import gc
import os
import traceback
from contextlib import ExitStack
from multiprocessing import get_context

import numpy as np
import pytest
import torch
import torch.distributed as dist

from executor.measurement.measured_run import JoinedTasks
from executor.rendezvous.rank_environment import held_port
from executor.runtime.devices import CpuDevice
from executor.runtime.run_options import RunOptions
from executor.supervision.status_board import own_status
from executor.training.session import open_session

TIMEOUT_S = 100.0


def slices_of(session):
    """A rank's slices of the parameters, with their boxes, by names of layer and parameter."""
    names = [layer.name for layer in session.view.program.graph.layers]
    return {(names[i], each.name): (each.box, each.tensor.numpy()) for i in session.boxes for each in session.slices(i)}


def session_of(program, rank, steps, **changes):
    """A session in which a rank trains by a program, with the statistics of the whole batch."""
    return open_session(
        program,
        rank,
        options(**changes),
        reduced=True,
        device=CpuDevice(),
        status=own_status(rank),
        steps=steps,
    )


def train(rank, program, options, reduced):
    """Run all steps as one rank; returns its losses, what it measured, and its slices of the parameters."""
    session = open_session(
        program, rank, options, reduced=reduced, device=CpuDevice(), status=own_status(rank), steps=options.steps
    )
    results = [session.worker.step(number) for number in range(options.steps)]
    session.worker.close()
    return [result.loss for result in results], [result.measured for result in results], slices_of(session)


def _serve(rank, ranks, port, pipe):
    gc.freeze()  # what is imported stays: looking for cycles in it takes a fifth of a second each time
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    while (job := pipe.recv()) is not None:
        work, arguments = job
        try:
            pipe.send((True, work(rank, *arguments)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()
    os._exit(0)  # as the ranks of a run end: taking torch down takes long


class Ranks:
    """Processes with a process group, which run the same function together."""

    def __init__(self, count):
        self.count = count
        self.start()

    def start(self):
        count = self.count
        context, self.held = get_context("forkserver"), ExitStack()
        port = self.held.enter_context(held_port())
        self.pipes, self.processes = [], []
        for rank in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(rank, count, port, there), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, work, *arguments):
        """What ``work(rank, *arguments)`` returns on every rank."""
        for pipe in self.pipes:
            pipe.send((work, arguments))
        answers = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(TIMEOUT_S):
                answers.append((False, f"rank {rank} does not answer"))
                break
            answers.append(pipe.recv())
        failures = [text for good, text in answers if not good]
        if failures:  # what the others still wait for would reach the next run
            self.close(kill=True)
            self.start()
            raise RuntimeError(failures[0])
        return [value for _, value in answers]

    def close(self, *, kill=False):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            if kill:
                process.kill()
            elif process.is_alive():
                pipe.send(None)
            process.join(5)
            process.kill()
        self.held.close()


def pool_of(count):
    """A fixture, to be called ``ranks``: the processes that a test file shares."""

    @pytest.fixture(scope="module")
    def ranks():
        pool = Ranks(count)
        yield pool
        pool.close()

    return ranks


def trained_to(ranks, program, chosen, expected, parameters, *, reduced, rtol):
    """Train, and compare losses and parameters with those of the undivided network; returns what was measured."""
    losses, measured, slices = zip(*ranks.run(train, program, chosen, reduced), strict=True)
    np.testing.assert_allclose(np.sum(losses, axis=0), expected, rtol=rtol)
    for key, value in whole(program, slices).items():
        np.testing.assert_allclose(value, parameters[key].detach(), rtol=rtol, atol=1e-12, err_msg=str(key))
    return measured


def joined_tasks(measured):
    """Tasks of all ranks, from what each rank of a machine measured in every iteration."""
    joined = JoinedTasks(len(measured[0]), len(measured[0][0].start_s))
    for rank in measured:
        joined.add(0, np.array([[row.start_s, row.end_s, row.sent_bytes] for row in rank]))
    return joined


def whole(program, slices):
    """Whole parameters from the slices of all ranks; replicas must agree to the last bit."""
    found = {}
    for layer in program.graph.layers:
        for parameter in (each for each in layer.parameters if not each.shared):
            key = (layer.name, parameter.name)
            values, seen = torch.zeros(parameter.shape, dtype=torch.float64), torch.zeros(parameter.shape, dtype=bool)
            for box, part in (row[key] for row in slices if key in row):
                part = torch.from_numpy(part)
                place = tuple(slice(low, high) for low, high in zip(box.low, box.high, strict=True))
                before = values[place][seen[place]]
                assert torch.equal(before, part[seen[place]].double())
                values[place], seen[place] = part.double(), True
            assert seen.all()
            found[key] = values
    return found


def check_slices(found, expected, name):
    """What ranks hold is what the undivided network has there, and together they hold all."""
    assert set().union(*found) == expected.keys()
    for key, (box, value) in ((key, row) for rank in found for key, row in rank.items()):
        place = tuple(map(slice, box.low, box.high))
        np.testing.assert_allclose(value, expected[key][1][place], rtol=1e-12, atol=1e-14, err_msg=f"{name} {key}")


def options(**changes):
    """Options of a run without files, of two steps: the second shows what the first has updated, and goes on from its
    momenta."""
    return RunOptions(plan="", **{"steps": 2, "timeout_s": 30.0, "device": "cpu", **changes})
