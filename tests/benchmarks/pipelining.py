"""Pipelines run by the executor against torch.distributed.pipelining: same model, stages, micro-batches and processes.

Run as ``python tests/benchmarks/pipelining.py [--processes 2 4] [--models NAME ...] [--schedules gpipe 1f1b]
[--turns 11] [--steps 3]``; prints a table.  Both sides live in the same processes over gloo and take turns every few
steps, so that what else the machine does falls on both; a speed is the median over turns of their time over ours,
with its quartiles, and beside it the same of the processor time of all processes, which other work on the machine
hardly changes.  Stages are those of our exact partition.  First both sides train a few steps from the same
parameters with the same dropout, and their losses must agree.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parents[1] / "executor"))
sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

import ranks
from ddp import Dropout, inception_block, module_of
from plans import cluster_of
from ranks import Ranks, options

from executor.data.load import load_data
from executor.runtime.boxes import whole_box
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.parameter_init import initial_parameters
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.cost.cost_model import CostModel
from planner.lowering.lower_strategy import lower
from planner.models.registry import load_model
from planner.search.pipeline_strategy import Pipeline, pipeline_strategy
from planner.strategies.named_strategies import spaces_of

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
OPTIMIZER = OptimizerSpec(learning_rate=0.01, momentum=0.9)
AGREEING_STEPS = 3
WARM_UP = 2
"""Turns that are not counted."""
MODELS = {
    "lenet5": lambda: load_model("lenet5", batch=64),
    "alexnet-cifar": lambda: load_model("alexnet-cifar", batch=64),
    "vgg11-cifar": lambda: load_model("vgg11-cifar", batch=32),
    "resnet-cifar": lambda: load_model("resnet-cifar", batch=64),
    "inception-block": lambda: inception_block(32),
}


def crossing(graph, bound):
    """Names of the tensors that layers behind a bound read of those before it; the data at the first one."""
    if bound == 0:
        return ["input"]
    read = sorted({edge.producer for edge in graph.edges if edge.producer < bound <= edge.consumer})
    return [graph.layers[i].name for i in read] or [graph.layers[-1].name]


class StageModule(nn.Module):
    """The layers of a stage on one micro-batch: tensors that cross its lower bound to those that cross the upper."""

    def __init__(self, graph, layers, *, seed):
        super().__init__()
        self.taken, self.given = crossing(graph, layers.start), crossing(graph, layers.stop)
        self.rows = [graph.layers[i] for i in layers]
        self.layers = nn.ModuleList(module_of(graph.layers[i], i, 0) for i in layers)
        self.dropouts = [module for module in self.modules() if isinstance(module, Dropout)]
        for i, module in zip(layers, self.layers, strict=True):
            boxes = {parameter.name: whole_box(parameter.shape) for parameter in graph.layers[i].parameters}
            first = initial_parameters(graph, i, boxes, seed=seed, dtype=torch.float32, device="cpu")
            for (name, value), parameter in zip(first.items(), module.parameters(), strict=True):
                assert value.shape == parameter.shape, (graph.layers[i].name, name)
                parameter.data.copy_(value)

    def forward(self, *values):
        tensors = dict(zip(self.taken, values, strict=True))
        for row, module in zip(self.rows, self.layers, strict=True):
            tensors[row.name] = module(*(tensors[source] for source in row.inputs))
        for dropout in self.dropouts:
            dropout.low += len(values[0])  # the next micro-batch
        given = tuple(tensors[name] for name in self.given)
        return given if len(given) > 1 else given[0]

    def drop_as(self, key):
        """Drop what the executor drops with that seed and step; None: what torch drops."""
        for dropout in self.dropouts:
            dropout.key, dropout.low = key, 0


class Theirs:
    """Training by torch.distributed.pipelining."""

    def __init__(self, program, rank, seed, schedule):
        graph, micro_batching = program.graph, program.micro_batching
        self.stages, self.rank, self.graph, self.parts = len(micro_batching.stages), rank, graph, micro_batching.parts
        self.data = load_data("generated", graph, seed=seed, dtype=torch.float32, device="cpu")
        self.shape = graph.layers[0].input_shapes[0].sizes
        layers = micro_batching.layers_of(len(graph.layers))[rank]
        self.module = StageModule(graph, layers, seed=seed)
        stage = PipelineStage(
            self.module,
            rank,
            self.stages,
            torch.device("cpu"),
            input_args=self._examples(self.module.taken),
            output_args=self._examples(self.module.given),
        )
        self.schedule = SCHEDULES[schedule](stage, micro_batching.parts, loss_fn=self._loss)
        self.optimizer = (
            torch.optim.SGD(
                self.module.parameters(), lr=OPTIMIZER.learning_rate, momentum=OPTIMIZER.momentum, fused=True
            )
            if list(self.module.parameters())
            else None
        )

    def _examples(self, names):
        small = self.graph.with_batch(self.graph.batch // self.parts)
        shapes = {layer.name: layer.output.sizes for layer in small.layers}
        shapes["input"] = small.layers[0].input_shapes[0].sizes
        return tuple(torch.empty(shapes[name], requires_grad=name != "input") for name in names)

    @staticmethod
    def _loss(values, targets):
        return functional.cross_entropy(values.flatten(1), targets)

    def step(self, number):
        """One training step; returns the rank's share of the mean loss."""
        if self.optimizer:
            self.optimizer.zero_grad()
        inputs, losses = (), []
        if self.rank == 0:
            inputs = (self.data.inputs(number, whole_box(self.shape)),)
        if self.rank == self.stages - 1:
            targets = self.data.targets(number, 0, self.graph.batch)
            self.schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
        else:
            self.schedule.step(*inputs, return_outputs=False)
        if self.optimizer:
            self.optimizer.step()
        return float(sum(loss.detach() for loss in losses)) / self.parts


def compare(rank, program, schedule, seed, turns, steps):
    """Losses of both sides, which started equal, (steps, 2); seconds and processor seconds a step, (2, turns, 2)."""
    chosen = options(steps=AGREEING_STEPS + turns * steps, seed=seed, optimizer=OPTIMIZER)
    session = open_session(
        program, rank, chosen, reduced=False, device=CpuDevice(), status=own_status(rank), steps=chosen.steps
    )
    theirs = Theirs(program, rank, seed, schedule)
    losses = []
    for number in range(AGREEING_STEPS):
        theirs.module.drop_as((seed, number))
        losses.append([session.worker.step(number).loss, theirs.step(number)])
    theirs.module.drop_as(None)
    sides, seconds = [session.worker.step, theirs.step], np.zeros((2, turns, 2))
    for turn in range(turns):
        for place in np.roll(np.arange(2), turn).tolist():
            dist.barrier()
            begin = np.array([time.perf_counter(), time.process_time()])
            for number in range(steps):
                sides[place](AGREEING_STEPS + turn * steps + number)
            seconds[:, turn, place] = ([time.perf_counter(), time.process_time()] - begin) / steps
    session.worker.close()
    return losses, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--schedules", nargs="+", choices=SCHEDULES, default=list(SCHEDULES))
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--turns", type=int, default=11)
    parser.add_argument("--steps", type=int, default=3, help="steps of one side in a turn")
    chosen = parser.parse_args()
    ranks.TIMEOUT_S = 900.0  # all turns are one answer
    print(f"{chosen.turns} turns of {chosen.steps} steps, load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    print(
        f"{'model':16}{'ranks':>6}{'schedule':>9}{'ours ms':>9}{'torch ms':>9}{'torch / ours, quartiles':>25}"
        f"{'processor time':>16}{'loss ours':>11}{'torch':>9}"
    )
    for count in chosen.processes:
        pool = Ranks(count)
        for name in chosen.models:
            for schedule in chosen.schedules:
                graph = MODELS[name]()
                model = CostModel(graph, cluster_of("titanx-4", count))
                asked = Pipeline(stages=count, micro_batches=chosen.micro_batches, schedule=schedule)
                strategy, micro_batching = pipeline_strategy(model, asked)
                program = lower(model, spaces_of(graph, strategy, count), micro_batching=micro_batching)
                turns = chosen.turns + WARM_UP
                rows = pool.run(compare, program, schedule, 1, turns, chosen.steps)
                losses, seconds = zip(*rows, strict=True)
                loss = np.sum(losses, axis=0)
                np.testing.assert_allclose(loss[:, 1], loss[:, 0], rtol=1e-4)
                taken = np.max(seconds, axis=0)[0, WARM_UP:]
                busy = np.sum(seconds, axis=0)[1, WARM_UP:]
                low, middle, high = np.quantile(taken[:, 1] / taken[:, 0], [0.25, 0.5, 0.75])
                ours, others = np.median(taken, axis=0) * 1e3
                print(
                    f"{name:16}{count:6}{schedule:>9}{ours:9.1f}{others:9.1f}{middle:11.3f} ({low:.2f}-{high:.2f})"
                    f"{np.median(busy[:, 1] / busy[:, 0]):16.3f}{loss[-1, 0]:11.5f}{loss[-1, 1]:9.5f}",
                    flush=True,
                )
        pool.close()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
