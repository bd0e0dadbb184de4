"""Networks of MPT and Llama: against an imported module, and published counts of parameters."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the importer needs torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from planner.graph.computation_graph import LAYER_PHASES  # noqa: E402
from planner.importing.graph_of import imported_graph  # noqa: E402
from planner.tracing.exported import trace_of  # noqa: E402
from planner.tracing.inputs import input_specs  # noqa: E402
from studies.sharded.decoder_networks import MPT_WORDS, llama_network, mpt_network  # noqa: E402

KERNEL_SIZES = ("flop", "memory_bytes", "streamed_bytes", "rows", "columns", "depth")
PARAMETERS = {(12, 768, 12): 0.1253, (24, 2048, 16): 1.3160, (40, 5120, 40): 12.8540, (80, 8192, 64): 64.8624}
"""Billions of parameters by layers, hidden size and heads, as llm-foundry prints them."""

LLAMA_PARAMETERS = {(32, 4096, 32, 32, 11008): 6_738_415_616, (80, 8192, 64, 8, 28672): 68_976_648_192}
"""Parameters by layers, hidden size, heads of queries and of keys, and inner size, as Llama 2 was published."""


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.packed, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        parts = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in self.packed(self.norms[0](x)).chunk(3, 2)
        )
        values = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(values.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    def __init__(self, layers, hidden, heads, length):
        super().__init__()
        self.words, self.positions = nn.Embedding(MPT_WORDS, hidden), nn.Embedding(length, hidden)
        self.blocks, self.norm = nn.Sequential(*(Block(hidden, heads) for _ in range(layers))), nn.LayerNorm(hidden)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return functional.linear(self.norm(self.blocks(x)), self.words.weight)


def priced(layer):
    """Return what determines the price of a layer: its kernels, parameters, and the elements that it makes."""
    whole = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    kernels = [layer.kernels(phase, whole) for phase in LAYER_PHASES]
    numbers = [[float(getattr(each, name)[0]) for name in KERNEL_SIZES] for each in kernels]
    return layer.operation.kind, numbers, layer.parameter_count, layer.output.elements


def test_the_network_is_that_which_is_imported_from_a_module():
    with torch.device("meta"):
        module = Decoder(layers=2, hidden=32, heads=4, length=16)
    imported = imported_graph(trace_of(module, input_specs(["3x16:int"])), name="it", loss="softmax_per_position").graph
    built = mpt_network(layers=2, hidden=32, heads=4, seq_len=16, batch=3)

    assert [priced(layer) for layer in built.layers] == [priced(layer) for layer in imported.layers]


@pytest.mark.parametrize("sizes", PARAMETERS)
def test_networks_have_the_parameters_that_were_published(sizes):
    layers, hidden, heads = sizes
    graph = mpt_network(layers=layers, hidden=hidden, heads=heads, seq_len=2048, batch=1)

    assert sum(layer.parameter_count for layer in graph.layers) / 1e9 == pytest.approx(PARAMETERS[sizes], abs=5e-5)


@pytest.mark.parametrize("sizes", LLAMA_PARAMETERS)
def test_llama_has_the_parameters_that_were_published(sizes):
    layers, hidden, heads, key_heads, inner = sizes
    graph = llama_network(
        layers=layers, hidden=hidden, heads=heads, key_heads=key_heads, inner=inner, seq_len=64, batch=1
    )

    assert sum(layer.parameter_count for layer in graph.layers) == LLAMA_PARAMETERS[sizes]
