"""A network and its programs where input channels are split too, and random strategies that do so."""

import math

from planner.compression.settings import UNCOMPRESSED
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration, all_configurations
from planner.lowering.lower_strategy import lower
from planner.models.builder import ModelBuilder
from planner.strategies.micro_batches import WHOLE_BATCH


def choices(layer, count):
    """Every configuration's degrees on up to so many devices, those that split what is summed over included."""
    space = all_configurations(layer.output, layer.parallel_dims, count)
    found = {tuple(sorted(space.configuration(c).degrees.items())) for c in range(space.size)}
    rows = [dict(row) for row in sorted(found)]
    channels, size = layer.operation.summed_size(layer.input_shapes), layer.output.size("channel")
    return rows + [
        row | {SUMMED: r}
        for row in rows
        for r in range(2, count // math.prod(row.values()) + 1)
        if channels >= r and size >= r * row["channel"]
    ]


def random_reducing_strategy(graph, count, rng, *, wanted=0.8):
    """Any configuration for every layer on shuffled devices; a layer that may splits its input channels mostly."""
    strategy = {}
    for layer in graph.layers:
        rows = choices(layer, count)
        split = [row for row in rows if SUMMED in row]
        rows = split if split and rng.random() < wanted else rows
        row = rows[int(rng.integers(len(rows)))]
        devices = rng.permutation(count)[: math.prod(row.values())]
        strategy[layer.name] = Configuration.of(row, devices.tolist())
    return strategy


def network(batch=8):
    """Convolutions and linear layers whose channels all divide by 4, but for those of the data."""
    net = ModelBuilder("small", batch=batch, image=(3, 8, 8))
    net.conv(8, 3, pad=1)
    net.conv(16, 3, pad=1)
    net.pool("max", 2)
    net.conv(8, 3, stride=2, pad=1)
    net.linear(12, activation="relu")
    net.linear(4)
    net.loss()
    return net.build()


def program_of(model, strategy, micro_batching=WHOLE_BATCH, compressed=UNCOMPRESSED, **form):
    """The program of a strategy."""
    return lower(model, model.spaces_of(strategy), micro_batching=micro_batching, compressed=compressed, **form)
