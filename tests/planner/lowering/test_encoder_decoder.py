"""Tensor parallelism of an encoder and a decoder with biases of relative positions, as T5 has, from its code alone."""

from collections import Counter

import pytest
import torch
from plans import star
from torch import nn

from planner.cost.cost_model import CostModel
from planner.graph.shapes import REPEATED
from planner.importing.graph_of import imported_graph
from planner.layouts.parameter_shards import shard_elements
from planner.lowering.lower_strategy import lower
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

WIDTH, HEADS, WORDS, LENGTH = 32, 4, 64, 12


class Attention(nn.Module):
    """Attention with its scores apart, on which each head has a trained bias by the distance of two words."""

    def __init__(self, *, biased: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.bias = nn.Embedding(15, HEADS) if biased else None

    def forward(self, x, other):
        pairs = ((self.q, x), (self.k, other), (self.v, other))
        q, k, v = (project(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for project, y in pairs)
        scores = q @ k.transpose(2, 3)
        if self.bias is not None:
            place = torch.arange(LENGTH)
            distance = (place[:, None] - place).clamp(-7, 7) + 7
            scores = scores + self.bias(distance).permute(2, 0, 1)[None]
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class EncoderDecoder(nn.Module):
    """A block of each, with one table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(6))
        self.encoder, self.decoder = Attention(biased=True), Attention(biased=True)
        self.cross = Attention(biased=False)
        self.inner = nn.ModuleList(nn.Linear(WIDTH, 48, bias=False) for _ in range(2))
        self.outer = nn.ModuleList(nn.Linear(48, WIDTH, bias=False) for _ in range(2))

    def forward(self, source, target):
        x, y = self.words(source), self.words(target)
        x = x + self.encoder(*[self.norms[0](x)] * 2)
        x = x + self.outer[0](self.inner[0](self.norms[1](x)).relu())
        y = y + self.decoder(*[self.norms[2](y)] * 2)
        y = y + self.cross(self.norms[3](y), x)
        y = y + self.outer[1](self.inner[1](self.norms[4](y)).relu())
        return self.head(self.norms[5](y))


@pytest.mark.parametrize("words", ["tensor=4", "tensor=4,sequence"])
def test_columns_rows_heads_and_words_are_divided(words):
    """Shoeybi et al., 2019, Sec. 3: one sum for each attention and each pair of products, and for words that go in."""
    trace = trace_of(EncoderDecoder(), input_specs([f"4x{LENGTH}:int"] * 2))
    graph = imported_graph(trace, name="t5", loss="softmax_per_position").graph
    strategy = named_strategy(words, graph, 4)
    program = lower(CostModel(graph, star(4)), spaces_of(graph, strategy, 4))
    for layer, space in zip(graph.layers, program.spaces, strict=True):
        if layer.parameters and layer.operation.kind != "feature_norm":  # biases of heads too
            elements = sum(each.elements for each in layer.parameters)
            assert shard_elements(layer.parameters, space) == elements / 4, layer.name
            assert strategy[layer.name].degrees.get(REPEATED, 1) == 1
    forward = Counter(
        each.kind
        for task, each in program.collectives.items()
        if program.moves_activations[task] and not program.backward[task]
    )
    sums = 3 + 2 + 2  # attention, pairs of products, words of source and target
    assert forward == ({"all-reduce": sums} if words == "tensor=4" else {"reduce-scatter": sums, "all-gather": 7})
