"""One part that holds everything, forward and backward, against the same layers in torch with autograd.

Run as ``python tests/benchmarks/layer_parts.py [samples] [repetitions]``; prints a table, on the GPU where there is
one.  Both sides take turns, so that what else the machine does falls on both.
"""

import sys
from statistics import median
from time import perf_counter

import torch
from torch import nn

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.shapes import Shape
from planner.layouts.configurations import Configuration, space_of
from planner.operations.checks import position_dims
from planner.operations.convolution import Convolution
from planner.operations.joining import Add
from planner.operations.linear import Linear
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.pooling import Pooling

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Sum(nn.Module):
    """Sum of two tensors, then ReLU."""

    def forward(self, first, second):
        return torch.relu_(first + second)


def convolution(channels, kernel, stride=1, pad=0, **rest):
    """A square 2-D convolution."""
    return Convolution(
        channels=channels, kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2, dilation=(1, 1), **rest
    )


def pooling(mode, kernel, stride, pad=0, *, ceil_mode=False):
    """Square 2-D pooling."""
    return Pooling(mode=mode, kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2, ceil_mode=ceil_mode)


def cases():
    """Name, size of a sample, operation, and the module that torch has for it."""
    relu = nn.ReLU(inplace=True)
    return (
        (
            "conv 3x3, relu",
            (64, 56, 56),
            convolution(64, 3, 1, 1, activation="relu"),
            nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), relu),
        ),
        (
            "conv 3x3/2, norm, relu",
            (64, 56, 56),
            convolution(128, 3, 2, 1, batch_norm=True, activation="relu"),
            nn.Sequential(nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), relu),
        ),
        ("conv 1x1", (256, 14, 14), convolution(512, 1), nn.Conv2d(256, 512, 1)),
        (
            "conv 5x5, 2 groups",
            (96, 27, 27),
            convolution(256, 5, 1, 2, groups=2),
            nn.Conv2d(96, 256, 5, 1, 2, groups=2),
        ),
        ("max pool 3x3/2", (64, 112, 112), pooling("max", 3, 2, 1), nn.MaxPool2d(3, 2, 1)),
        (
            "max pool 3x3/2, ceiling",
            (64, 56, 56),
            pooling("max", 3, 2, ceil_mode=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
        ),
        ("average pool 3x3", (192, 35, 35), pooling("average", 3, 1, 1), nn.AvgPool2d(3, 1, 1)),
        ("batch norm, relu", (64, 56, 56), BatchNorm(activation="relu"), nn.Sequential(nn.BatchNorm2d(64), relu)),
        ("local response norm", (96, 27, 27), LocalResponseNorm(), nn.LocalResponseNorm(5)),
        (
            "linear, relu, dropout",
            (9216,),
            Linear(channels=4096, activation="relu", dropout=0.5),
            nn.Sequential(nn.Linear(9216, 4096), relu, nn.Dropout(0.5)),
        ),
        ("linear", (4096,), Linear(channels=1000), nn.Linear(4096, 1000)),
        ("sum, relu", (256, 56, 56), Add(activation="relu"), Sum()),
    )


def whole_part(operation, sizes):
    """The operation on one device, and its number of inputs."""
    shape = Shape(("sample", "channel", *position_dims(len(sizes) - 2)), sizes)
    slots = 2 if isinstance(operation, Add) else 1
    layer = Layer("layer", operation, ("input",) * slots, (shape,) * slots, operation.output((shape,) * slots))
    graph = ComputationGraph("one", sizes[0], [layer])
    space = space_of(layer, Configuration({}, (0,)), 1)
    return part_layer(graph, 0, space, 0, dtype=torch.float32, device=DEVICE), slots


def finished():
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def measure(sizes, operation, module, repetitions):
    """Median milliseconds of the part and of the module, and the median of their ratio in pairs."""
    part, slots = whole_part(operation, sizes)
    module = module.to(DEVICE)
    inputs = [torch.randn(sizes, device=DEVICE) for _ in range(slots)]
    leaves = [values.clone().requires_grad_() for values in inputs]
    own = [value.detach().clone() for value in module.parameters()]
    parameters = dict(zip((parameter.name for parameter in part.layer.parameters), own, strict=True))
    gradient = torch.randn(part.held.shape, device=DEVICE)
    trained = [*leaves, *module.parameters()]

    @torch.no_grad()
    def ours(number):
        part.forward(inputs, parameters, TrainingStep(number, 0))
        part.begin_backward(gradient)
        part.weight_gradient()
        part.activation_gradient()
        part.release()

    def theirs(number):
        torch.autograd.grad(module(*leaves), trained, gradient)

    times = {ours: [], theirs: []}
    for number in range(repetitions + 3):
        for run in (ours, theirs) if number % 2 else (theirs, ours):
            start = finished()
            run(number)
            times[run].append((finished() - start) * 1e3)
    mine, other = times[ours][3:], times[theirs][3:]
    return median(mine), median(other), median(b / a for a, b in zip(mine, other, strict=True))


def main():
    samples, repetitions = (int(value) for value in (sys.argv[1:] + ["16", "20"][len(sys.argv) - 1 :]))
    print(f"{samples} samples, {DEVICE}, {torch.get_num_threads()} threads, median of {repetitions}")
    print(f"{'layer':28}{'part ms':>10}{'torch ms':>10}{'torch / part':>14}")
    for name, sample, operation, module in cases():
        mine, other, ratio = measure((samples, *sample), operation, module, repetitions)
        print(f"{name:28}{mine:10.2f}{other:10.2f}{ratio:14.2f}")


if __name__ == "__main__":
    main()
