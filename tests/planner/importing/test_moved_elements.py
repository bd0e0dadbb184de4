"""Layers that move elements read, for each element, the one that PyTorch moves there."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from planner.graph.data_sources import is_data
from planner.importing.graph_of import imported_graph
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

MOVES = {
    "a slice of all channels": ("2x6x4x2", lambda x: x[:, 1:4], (0, 1, 2, 3)),
    "every second position": ("2x3x7x2", lambda x: x[:, :, 1::2], (0, 1, 2, 3)),
    "a slice of groups": ("2x12x3x2", lambda x: x.view(2, 3, 4, 3, 2)[:, 1:].flatten(1, 2), (0, 1, 2, 3)),
    "the last group": ("2x12x3x2", lambda x: x.view(2, 3, 4, 3, 2)[:, 2], (0, 1, 2, 3)),
    "a slice within groups": ("2x12x3x2", lambda x: x.view(2, 3, 4, 3, 2)[:, :, 1:3].flatten(1, 2), (0, 1, 2, 3)),
    "joined channels": ("2x4x3x2", lambda x: torch.cat([x, x], 1), (0, 1, 2, 3)),
    "joined groups": ("2x6x3x2", lambda x: torch.cat([x.view(2, 2, 3, 3, 2)] * 2, 1), (0, 2, 3, 4, 1)),
    "joined within groups": ("2x6x3x2", lambda x: torch.cat([x.view(2, 2, 3, 3, 2)] * 2, 2), (0, 1, 3, 4, 2)),
    "joined rows of positions": ("2x3x4x2", lambda x: torch.cat([x.flatten(2)] * 2, 2), (0, 1, 2)),
    "rotated positions": ("2x3x5x2", lambda x: x.roll(2, 2), (0, 1, 2, 3)),
    "chosen groups": ("2x12x3x2", lambda x: x.view(2, 3, 4, 3, 2)[:, torch.tensor([2, 0])], (0, 2, 3, 4, 1)),
    "chosen in groups": ("2x12x3x2", lambda x: x.view(2, 3, 4, 3, 2)[:, :, torch.tensor([3, 1])], (0, 1, 3, 4, 2)),
    "a table of channels": ("2x5x3x2", lambda x: x[:, torch.tensor([[4, 0], [2, 2]])].flatten(1, 2), (0, 1, 2, 3)),
}
"""Sizes of the data, what is done with them, and the order in which a layer has the axes of the result."""


class Moved(nn.Module):
    """A module that computes one function."""

    def __init__(self, move) -> None:
        super().__init__()
        self.move = move

    def forward(self, x: torch.Tensor):
        return self.move(x)


def read_by(graph, name, index):
    """Boxes of the data from which one element of a layer is made; each box as its low and high indices."""
    if is_data(name):
        return [(tuple(index), tuple(each + 1 for each in index))]
    layer, boxes = graph.layers[graph.index[name]], []
    for slot, (source, shape) in enumerate(zip(layer.inputs, layer.input_shapes, strict=True)):
        place = dict(zip(layer.output.dims, index, strict=True))
        rows = [
            each.interval(np.array(place.get(each.dim, 0)), np.array(place.get(each.dim, 0) + 1), size)
            for each, size in zip(layer.operation.interval_maps(slot, layer.input_shapes), shape.sizes, strict=True)
        ]
        for element in itertools.product(*(range(int(low), int(high)) for low, high in rows)):
            boxes += read_by(graph, source, element)
    return boxes


@pytest.mark.parametrize("name", MOVES)
def test_each_element_is_read_where_pytorch_finds_it(name):
    text, move, order = MOVES[name]
    sizes = [int(size) for size in text.split("x")]
    moved = move(torch.arange(math.prod(sizes)).view(sizes)).permute(order)
    graph = imported_graph(trace_of(Moved(move), input_specs([text])), name="moved", loss="mean_squared_error").graph
    last = graph.layers[-2]

    assert last.output.sizes == tuple(moved.shape)
    for index in np.ndindex(*moved.shape):
        found = np.unravel_index(int(moved[index]), sizes)
        boxes = read_by(graph, last.name, index)
        assert any(np.all(np.array(low) <= found) and np.all(found < np.array(high)) for low, high in boxes), index


@pytest.mark.parametrize(("dim", "sizes"), [(-1, (2, 6, 8)), (1, (2, 6, 8)), (None, (2, 6, 4))])
def test_a_gated_unit_halves_one_axis(dim, sizes):
    """The last one, unless another is named."""

    def gate(x):
        return functional.glu(x) if dim is None else functional.glu(x, dim)

    text = "x".join(map(str, sizes))
    graph = imported_graph(trace_of(Moved(gate), input_specs([text])), name="gate", loss="mean_squared_error").graph

    assert math.prod(graph.layers[-2].output.sizes) == gate(torch.zeros(sizes)).numel()
    halves = [layer for layer in graph.layers if layer.operation.kind == "slice"]
    made = torch.zeros(sizes).chunk(2, -1 if dim is None else dim)
    assert [sorted(layer.output.sizes) for layer in halves] == [sorted(each.shape) for each in made]
