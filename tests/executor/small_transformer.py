"""A small transformer, whose sizes no degree divides."""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional
from undivided import wide

from planner.importing.graph_of import imported_graph
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

BATCH, LENGTH, WORDS, WIDTH, HEADS = 4, 6, 13, 8, 4


class Transformer(nn.Module):
    """One block between a table of words, whose number no degree divides, and scores made with that table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(WIDTH) for _ in range(3))
        self.query, self.value, self.proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        # a bias of the keys adds the same to all scores of a query: its gradient is rounding alone, which Adam enlarges
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down, self.head = nn.Linear(WIDTH, 10), nn.Linear(10, WIDTH), nn.Linear(WIDTH, WORDS)
        self.drop, self.head.weight = nn.Dropout(0.25), self.words.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(LENGTH))
        y = self.norm1(x)
        q, k, v = (m(y).view(len(y), LENGTH, HEADS, -1).transpose(1, 2) for m in (self.query, self.key, self.value))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.drop(self.proj(y))
        return self.head(self.norm3(x + self.down(functional.gelu(self.up(self.norm2(x))))))


@cache
def graph():
    """The network in float64."""
    trace = trace_of(Transformer(), input_specs([f"{BATCH}x{LENGTH}:int"]))
    return wide(imported_graph(trace, name="small", loss="softmax_per_position").graph)
