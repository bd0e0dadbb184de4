"""A small network of experts, with five rows of each sample for four experts that take two or three each."""

from functools import cache
from pathlib import Path

from torch import Tensor, nn
from undivided import wide

from executor.families.configuration import PublishedFields
from executor.families.llama import Experts
from planner.importing.graph_of import imported_graph
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

BATCH, LENGTH, WORDS, WIDTH = 8, 6, 12, 8
SIZES = {"hidden_size": WIDTH, "intermediate_size": 10, "num_local_experts": 4, "num_experts_per_tok": 2}


class ExpertNetwork(nn.Module):
    """Experts between a table of words and scores."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.experts, self.head = Experts(PublishedFields(Path("small.json"), SIZES)), nn.Linear(WIDTH, WORDS)
        for matrix in (self.experts.w1, self.experts.w2, self.experts.w3):
            nn.init.normal_(matrix, std=0.5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        return self.head(x + self.experts(self.norm(x)))


@cache
def graph():
    """The network in float64."""
    trace = trace_of(ExpertNetwork(), input_specs([f"{BATCH}x{LENGTH}:int"]))
    return wide(imported_graph(trace, name="experts", loss="softmax_per_position").graph)
