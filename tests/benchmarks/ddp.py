"""A data-parallel plan run by the executor against torch's DistributedDataParallel: same model, batch and processes.

Run as ``python tests/benchmarks/ddp.py [--processes 2 4] [--models NAME ...] [--turns 15] [--steps 4]``; prints a
table.  All sides live in the same processes over gloo and take turns every few steps, so that what else the machine
does falls on all; a speed is the median over turns of their time over ours, with its quartiles.
DistributedDataParallel runs as it is by default, and with ``static_graph`` and ``gradient_as_bucket_view`` and without
broadcasts of buffers; both have the fused SGD.  First all sides train a few steps from the same parameters with the
same dropout, and their losses must agree.

The table in ``docs/running.md`` has medians of 16 to 20 paired turns of four steps, of AlexNet from three runs.
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
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "executor"))
sys.path.insert(0, str(Path(__file__).parents[1] / "planner"))

from plans import cluster_of, program_of
from ranks import Ranks, options

from executor.data.load import load_data
from executor.runtime.boxes import Box, whole_box
from executor.runtime.devices import CpuDevice
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.parameter_init import initial_parameters
from executor.runtime.positional_random import key_of, uniform
from executor.supervision.status_board import own_status
from executor.training.session import open_session
from planner.cost.cost_model import CostModel
from planner.models.builder import ModelBuilder
from planner.models.registry import load_model
from planner.operations.convolution import Convolution
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm
from planner.operations.pooling import GlobalPooling, Pooling
from planner.strategies.named_strategies import named_strategy

VARIANTS = {
    "default": {},
    "static": {"static_graph": True, "gradient_as_bucket_view": True, "forward_sync_buffers": False},
}
OPTIMIZER = OptimizerSpec(learning_rate=0.01, momentum=0.9)
AGREEING_STEPS = 3
WARM_UP = 2
"""Turns that are not counted."""


def inception_block(batch):
    """Four branches of the sizes of Inception-v3's first module, on small images."""
    net = ModelBuilder("inception-block", batch=batch, image=(3, 32, 32))
    net.conv(64, 3, stride=2, pad=1, batch_norm=True)
    stem = net.pool("max", 3, stride=1, pad=1)
    one = net.conv(64, 1, stem, batch_norm=True)
    net.conv(48, 1, stem, batch_norm=True)
    five = net.conv(64, 5, pad=2, batch_norm=True)
    net.conv(64, 1, stem, batch_norm=True)
    net.conv(96, 3, pad=1, batch_norm=True)
    three = net.conv(96, 3, pad=1, batch_norm=True)
    net.pool("average", 3, stem, stride=1, pad=1)
    pooled = net.conv(32, 1, batch_norm=True)
    net.concat([one, five, three, pooled])
    net.global_pool()
    net.linear(10)
    net.loss()
    return net.build()


MODELS = {
    "lenet5": lambda: load_model("lenet5", batch=64),
    "alexnet-cifar": lambda: load_model("alexnet-cifar", batch=64),
    "vgg11-cifar": lambda: load_model("vgg11-cifar", batch=32),
    "resnet-cifar": lambda: load_model("resnet-cifar", batch=64),
    "inception-block": lambda: inception_block(32),
}


class Dropout(nn.Module):
    """The executor's dropout of a rank's samples while ``key`` is set, else torch's."""

    def __init__(self, share, index, low, sizes):
        super().__init__()
        self.share, self.index, self.low, self.sizes, self.key = share, index, low, sizes, None

    def forward(self, values):
        if self.key is None:
            return functional.dropout(values, self.share)
        box = Box((self.low, 0), (self.low + len(values), values.shape[1]))
        random = uniform(key_of(*self.key, self.index), box, self.sizes, dtype=values.dtype, device=values.device)
        return values * (random >= self.share) / (1 - self.share)


class Sum(nn.Module):
    """The sum of all inputs."""

    def forward(self, *inputs):
        return sum(inputs[1:], start=inputs[0])


class Joined(nn.Module):
    """The channels of all inputs, one after another."""

    def forward(self, *inputs):
        return torch.cat(inputs, 1)


def module_of(layer, index, low):
    """A layer as torch's own modules."""
    operation, channels = layer.operation, layer.input_shapes[0].sizes[1]
    relu = [nn.ReLU(inplace=True)] if getattr(operation, "activation", None) == "relu" else []
    match operation:
        case Convolution(kernel=kernel, stride=stride, pad=pad, dilation=dilation, groups=groups, bias=bias):
            form = (kernel, stride, pad, dilation, groups, bias)
            norm = [nn.BatchNorm2d(operation.channels)] if operation.batch_norm else []
            return nn.Sequential(nn.Conv2d(channels, operation.channels, *form), *norm, *relu)
        case BatchNorm():
            return nn.Sequential(nn.BatchNorm2d(channels), *relu)
        case Pooling(kernel=kernel, stride=stride, pad=pad, ceil_mode=up):
            kind = nn.MaxPool2d if operation.mode == "max" else nn.AvgPool2d
            return kind(kernel, stride, pad, ceil_mode=up)
        case GlobalPooling():
            return nn.AdaptiveAvgPool2d(1)
        case Linear():
            drop = [Dropout(operation.dropout, index, low, layer.output.sizes)] if operation.dropout else []
            features = int(np.prod(layer.input_shapes[0].sizes[1:]))
            return nn.Sequential(nn.Flatten(), nn.Linear(features, operation.channels, operation.bias), *relu, *drop)
        case Add():
            return nn.Sequential(Sum(), *relu) if not relu else AddedThen(relu[0])
        case Concat():
            return Joined()
        case Loss():
            return nn.Identity()
    raise TypeError(operation)


class AddedThen(Sum):
    """The sum of all inputs, activated."""

    def __init__(self, activation):
        super().__init__()
        self.activation = activation

    def forward(self, *inputs):
        return self.activation(super().forward(*inputs))


class Network(nn.Module):
    """The whole network on the samples of one rank; returns their mean loss."""

    def __init__(self, graph, *, low, seed):
        super().__init__()
        self.sources = [layer.inputs for layer in graph.layers]
        self.names = [layer.name for layer in graph.layers]
        self.layers = nn.ModuleList(module_of(layer, i, low) for i, layer in enumerate(graph.layers))
        for i, (layer, module) in enumerate(zip(graph.layers, self.layers, strict=True)):
            boxes = {parameter.name: whole_box(parameter.shape) for parameter in layer.parameters}
            first = initial_parameters(graph, i, boxes, seed=seed, dtype=torch.float32, device="cpu")
            for (name, value), parameter in zip(first.items(), module.parameters(), strict=True):
                assert value.shape == parameter.shape, (layer.name, name)
                parameter.data.copy_(value)

    def forward(self, data, targets):
        tensors = {"input": data}
        for name, sources, module in zip(self.names, self.sources, self.layers, strict=True):
            tensors[name] = module(*(tensors[source] for source in sources))
        return functional.cross_entropy(tensors[self.names[-1]].flatten(1), targets)

    def drop_as(self, key):
        """Drop what the executor drops with that seed and step; None: what torch drops."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.key = key


class Theirs:
    """Training by DistributedDataParallel."""

    def __init__(self, graph, rank, seed, variant):
        ranks = dist.get_world_size()
        samples = graph.batch // ranks
        self.box = Box(
            (rank * samples, *(0 for _ in graph.layers[0].input_shapes[0].sizes[1:])),
            ((rank + 1) * samples, *graph.layers[0].input_shapes[0].sizes[1:]),
        )
        self.network = Network(graph, low=rank * samples, seed=seed)
        self.parallel = DistributedDataParallel(self.network, **VARIANTS[variant])
        self.optimizer = torch.optim.SGD(
            self.parallel.parameters(), lr=OPTIMIZER.learning_rate, momentum=OPTIMIZER.momentum, fused=True
        )
        self.data = load_data("generated", graph, seed=seed, dtype=torch.float32, device="cpu")

    def step(self, number):
        """One training step; returns the rank's mean loss."""
        inputs = self.data.inputs(number, self.box)
        targets = self.data.targets(number, self.box.low[0], self.box.high[0])
        self.optimizer.zero_grad()
        loss = self.parallel(inputs, targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def compare(rank, program, seed, turns, steps):
    """Losses of all sides, which started equal, shape (steps, sides), and seconds a step, shape (turns, sides)."""
    graph, ranks = program.graph, dist.get_world_size()
    chosen = options(steps=AGREEING_STEPS + turns * steps, seed=seed, optimizer=OPTIMIZER)
    session = open_session(
        program, rank, chosen, reduced=False, device=CpuDevice(), status=own_status(rank), steps=chosen.steps
    )
    theirs = [Theirs(graph, rank, seed, variant) for variant in VARIANTS]
    losses = []
    for number in range(AGREEING_STEPS):
        for side in theirs:
            side.network.drop_as((seed, number))
        row = [session.worker.step(number).loss * ranks, *(side.step(number) for side in theirs)]
        losses.append(row)
    for side in theirs:
        side.network.drop_as(None)
    sides = [session.worker.step, *(side.step for side in theirs)]
    seconds = np.zeros((turns, len(sides)))
    for turn in range(turns):
        for place in np.roll(np.arange(len(sides)), turn).tolist():
            dist.barrier()
            begin = time.perf_counter()
            for number in range(steps):
                sides[place](AGREEING_STEPS + turn * steps + number)
            seconds[turn, place] = (time.perf_counter() - begin) / steps
    session.worker.close()
    return losses, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--steps", type=int, default=4, help="steps of one side in a turn")
    chosen = parser.parse_args()
    print(f"{chosen.turns} turns of {chosen.steps} steps, load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores")
    print(
        f"{'model':16}{'ranks':>6}{'ours ms':>9}{'default ms':>11}{'static ms':>10}{'best / ours, quartiles':>24}"
        f"{'loss ours':>11}{'theirs':>9}"
    )
    for count in chosen.processes:
        pool = Ranks(count)
        for name in chosen.models:
            graph = MODELS[name]()
            model = CostModel(graph, cluster_of("titanx-4", count), "ring", "local")
            program = program_of(model, named_strategy("data", graph, count))
            losses, seconds = zip(*pool.run(compare, program, 1, chosen.turns + WARM_UP, chosen.steps), strict=True)
            loss = np.mean(losses, axis=0)
            np.testing.assert_allclose(loss[:, 1:], loss[:, :1].repeat(len(VARIANTS), 1), rtol=1e-4)
            taken = np.mean(seconds, axis=0)[WARM_UP:]
            best = 1 + int(np.median(taken[:, 1:], axis=0).argmin())
            low, middle, high = np.quantile(taken[:, best] / taken[:, 0], [0.25, 0.5, 0.75])
            ours, *others = np.median(taken, axis=0) * 1e3
            print(
                f"{name:16}{count:6}{ours:9.1f}{others[0]:11.1f}{others[1]:10.1f}{middle:10.3f} ({low:.2f}-{high:.2f})"
                f"{loss[-1, 0]:11.5f}{loss[-1, best]:9.5f}",
                flush=True,
            )
        pool.close()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
