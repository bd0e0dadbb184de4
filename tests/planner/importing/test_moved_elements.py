"""Layers that move elements read, for each element, those that PyTorch makes it from."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from groundwork.errors import ConfigError
from planner.graph.data_sources import is_data
from planner.importing.graph_of import imported_graph
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs


def groups(x):
    """Channels of an image of 2 x 12 x 3 x 2 as three groups of four."""
    return x.view(2, 3, 4, 3, 2)


MOVES = {
    "a slice of all channels": ("2x6x4x2", lambda x: x[:, 1:4], (0, 1, 2, 3), 1),
    "every second position": ("2x3x7x2", lambda x: x[:, :, 1::2], (0, 1, 2, 3), 1),
    "whole rows of positions": ("2x3x4x2", lambda x: x.flatten(2)[:, :, 2:6].view(2, 3, 2, 2), (0, 1, 2, 3), 1),
    "parts of rows": ("2x3x4x2", lambda x: x.flatten(2)[:, :, 1:4], (0, 1, 2), 8),
    "parts of repetitions": ("2x3x4x2", lambda x: x[:, :, :1].expand(2, 3, 9, 2)[:, :, 1:5] + x, (0, 1, 2, 3), 2),
    "one of repetitions": ("2x3x1x2", lambda x: x.expand(2, 3, 9, 2)[:, :, 4:5] + x, (0, 1, 2, 3), 2),
    "two of repetitions": (
        "2x3x1x4",
        lambda x: x.expand(2, 3, 9, 4)[:, :, 4:6] * torch.tensor([[1.0], [2.0]]),
        (0, 1, 3, 2),
        1,
    ),
    "rows of groups": (
        "2x12x3x2",
        lambda x: groups(x).transpose(2, 3).flatten(1, 2)[:, 3:].view(2, 2, 3, 4, 2).transpose(2, 3).flatten(1, 2),
        (0, 1, 2, 3),
        1,
    ),
    "a slice of groups": ("2x12x3x2", lambda x: groups(x)[:, 1:].flatten(1, 2), (0, 1, 2, 3), 1),
    "the last group": ("2x12x3x2", lambda x: groups(x)[:, 2], (0, 1, 2, 3), 1),
    "a slice within groups": ("2x12x3x2", lambda x: groups(x)[:, :, 1:3].flatten(1, 2), (0, 1, 2, 3), 4),
    "joined channels": ("2x4x3x2", lambda x: torch.cat([x, x], 1), (0, 1, 2, 3), 1),
    "joined groups": ("2x12x3x2", lambda x: torch.cat([groups(x)] * 2, 1), (0, 2, 3, 4, 1), 4),
    "joined within groups": ("2x12x3x2", lambda x: torch.cat([groups(x)] * 2, 2), (0, 1, 3, 4, 2), 4),
    "joined rows of positions": ("2x3x4x2", lambda x: torch.cat([x.flatten(2)] * 2, 2), (0, 1, 2), 2),
    "rotated positions": ("2x3x5x2", lambda x: x.roll(2, 2), (0, 1, 2, 3), 1),
    "chosen groups": ("2x12x3x2", lambda x: groups(x)[:, torch.tensor([2, 0])], (0, 2, 3, 4, 1), 12),
    "chosen within groups": ("2x12x3x2", lambda x: groups(x)[:, :, torch.tensor([3, 1])], (0, 1, 3, 4, 2), 4),
    "a table of channels": (
        "2x5x3x2",
        lambda x: x[:, torch.tensor([[4, 0, 1], [2, 2, 3]])].flatten(1, 2),
        (0, 1, 2, 3),
        5,
    ),
    "gated channels": ("2x6x3x2", lambda x: functional.glu(x, 1), (0, 1, 2, 3), 2),
    "gated positions": ("2x3x3x4", torch.ops.aten.glu.default, (0, 1, 2, 3), 2),
}
"""Sizes of the data, what is done with them, the order in which a layer has the axes of the result, and how many
elements of the data an element is read from at most: PyTorch's, or more where no map of intervals finds it."""


class Moved(nn.Module):
    """A module that computes one function."""

    def __init__(self, move) -> None:
        super().__init__()
        self.move = move

    def forward(self, x: torch.Tensor):
        return self.move(x)


def graph_of(move, text):
    """The graph of a function on data of these sizes."""
    return imported_graph(trace_of(Moved(move), input_specs([text])), name="moved", loss="mean_squared_error").graph


def read_by(graph, name, index):
    """Indices of the data that one element of a layer is made from."""
    if is_data(name):
        return {tuple(index)}
    layer, found = graph.layers[graph.index[name]], set()
    place = dict(zip(layer.output.dims, index, strict=True))
    for slot, (source, shape) in enumerate(zip(layer.inputs, layer.input_shapes, strict=True)):
        maps = layer.operation.interval_maps(slot, layer.input_shapes)
        first = [np.array(place.get(each.dim, 0)) for each in maps]
        bounds = [each.interval(low, low + 1, size) for each, low, size in zip(maps, first, shape.sizes, strict=True)]
        for element in itertools.product(*(range(int(low), int(high)) for low, high in bounds)):
            found |= read_by(graph, source, element)
    return found


@pytest.mark.parametrize("name", MOVES)
def test_each_element_is_read_where_pytorch_finds_it(name):
    text, move, order, count = MOVES[name]
    data = torch.rand([int(size) for size in text.split("x")], dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(move, data).permute(*order, *range(len(order), len(order) + 4))
    graph = graph_of(move, text)
    last = graph.layers[-2]

    assert last.output.sizes == slopes.shape[: len(order)]
    for index in np.ndindex(*last.output.sizes):
        found = read_by(graph, last.name, index)
        assert set(map(tuple, slopes[index].nonzero().tolist())) <= found, index
        assert len(found) <= count


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.flatten(0, 1)[torch.tensor([1, 0, 2, 3])],  # samples are chosen, too
        lambda x: x[:, torch.tensor([0, 1]), :, torch.tensor([1, 0])],  # apart, which puts them before the samples
    ],
)
def test_indices_that_leave_no_axis_of_samples_are_refused(move):
    with pytest.raises(ConfigError, match="has no axis of samples"):
        graph_of(move, "2x3x4x2")
