"""Iterations of MPT: against an imported module, published counts, sums over parts, and measurements of others."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the importer needs torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from hwprofiles.compute.profile_file import load_profile  # noqa: E402
from planner.importing.graph_of import imported_graph  # noqa: E402
from planner.tracing.exported import trace_of  # noqa: E402
from planner.tracing.inputs import input_specs  # noqa: E402
from studies.fidelity.transformer_training import sharded_rows  # noqa: E402
from studies.sharded.decoder_networks import MPT_WORDS, llama_network, mpt_network  # noqa: E402
from studies.sharded.sharded_iteration import llama_iteration_s, mpt_iteration_s  # noqa: E402

SIZES = {
    "layers": 24,
    "hidden": 2048,
    "heads": 16,
    "seq_len": 2048,
    "micro_batch": 8,
    "micro_batches": 1,
    "gpus": 8,
    "gpu": "a100-80gb",
    "precision": "bfloat16",
    "gradient_bytes": 4,
    "gathered": 2,
    "recomputed": 0,
}
PARAMETERS = {(12, 768, 12): 0.1253, (24, 2048, 16): 1.3160, (40, 5120, 40): 12.8540, (80, 8192, 64): 64.8624}
"""Billions of parameters by layers, hidden size and heads, as llm-foundry prints them."""

LLAMA = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "key_heads": 32,
    "inner": 11008,
    "seq_len": 4096,
    "micro_batch": 2,
    "gpus": 128,
    "gpu": "a100-80gb",
    "shards": 8,
    "machine_gbit_per_s": 400,
    "recomputed": 0.0,
}
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


def seconds(**sizes):
    return mpt_iteration_s(SimpleNamespace(**(SIZES | sizes)))


def plain(layer):
    """Return what determines the price of a layer, without names."""
    operation = layer.operation
    if hasattr(operation, "weights"):
        weights = tuple(replace(each, shared="another" if each.shared else "") for each in operation.weights)
        operation = replace(operation, weights=weights, computes=())
    return operation, layer.input_shapes, layer.output


def test_the_network_is_that_which_is_imported_from_a_module():
    with torch.device("meta"):
        module = Decoder(layers=2, hidden=32, heads=4, length=16)
    imported = imported_graph(trace_of(module, input_specs(["3x16:int"])), name="it", loss="softmax_per_position").graph
    built = mpt_network(layers=2, hidden=32, heads=4, seq_len=16, batch=3)

    assert [plain(layer) for layer in built.layers] == [plain(layer) for layer in imported.layers]


@pytest.mark.parametrize("sizes", PARAMETERS)
def test_networks_have_the_parameters_that_were_published(sizes):
    layers, hidden, heads = sizes
    graph = mpt_network(layers=layers, hidden=hidden, heads=heads, seq_len=2048, batch=1)

    assert sum(layer.parameter_count for layer in graph.layers) / 1e9 == pytest.approx(PARAMETERS[sizes], abs=5e-5)


def test_an_iteration_takes_at_least_its_arithmetic_at_the_peak():
    """6 FLOP a parameter and token, 8 for those of blocks with recomputation."""
    tokens, products, words = 8 * 2048, 24 * 12 * 2048**2, MPT_WORDS * 2048
    peak = load_profile("a100-80gb@bfloat16").peak_flop_per_s
    least_s = 6 * tokens * (products + words) / peak
    again_s = 2 * tokens * products / peak

    assert 1.2 * least_s < seconds() < 2 * least_s
    assert 1.2 * again_s < seconds(recomputed=1) - seconds() < 2 * again_s


def test_micro_batches_and_blocks_add_up():
    one, two, three = (seconds(micro_batches=count) for count in (1, 2, 3))
    assert three - two == pytest.approx(two - one)
    none, few, many = (seconds(layers=count) for count in (0, 12, 24))
    assert many - few == pytest.approx(few - none)


def test_transfers_are_hidden_as_far_as_arithmetic_lasts():
    """Many tokens hide what few tokens wait for; to gather parameters once costs less than twice."""

    def waits(**sizes):
        return seconds(**sizes) / seconds(**sizes, gathered=1) - 1

    assert 0 < waits(micro_batch=8) < 0.02 < waits(micro_batch=1, seq_len=512)
    assert seconds(gradient_bytes=2) < seconds()
    few = {"hidden": 5120, "heads": 40, "layers": 40, "micro_batch": 2}
    assert seconds(**few, gpus=64) > seconds(**few)  # over the cards of eight machines


def test_only_the_products_of_blocks_are_in_eight_bits():
    """Sequences of 65,536 tokens are bound by attention, which gains nothing."""
    h100 = {"gpu": "h100-80gb", "micro_batches": 4}
    sizes = ({"seq_len": 512, "micro_batch": 128}, {"seq_len": 65536, "micro_batch": 1})
    gains = [seconds(**h100, **each) / seconds(**h100, **each, precision="float8") for each in sizes]
    assert 1.1 < gains[0] < 2
    assert 1 < gains[1] < 1.02


def test_iterations_take_what_was_measured():
    """One number, of heads of 64, was fitted to the rows that are marked; nothing was fitted to the others."""
    rows = [row for row in sharded_rows() if row.measure == "iterations of MPT (formulas of a study)"]
    assert len(rows) == 216
    assert {row.subject for row in rows if row.fitted} == {"MPT-125m", "MPT-350m"}
    found = np.array([abs(row.error) for row in rows if not row.fitted])
    assert len(found) == 177
    assert np.median(found) < 0.06
    assert np.quantile(found, 0.9) < 0.15
    assert abs(np.mean([row.log_ratio for row in rows if not row.fitted])) < 0.06


@pytest.mark.parametrize("sizes", LLAMA_PARAMETERS)
def test_llama_has_the_parameters_that_were_published(sizes):
    layers, hidden, heads, key_heads, inner = sizes
    graph = llama_network(
        layers=layers, hidden=hidden, heads=heads, key_heads=key_heads, inner=inner, seq_len=64, batch=1
    )

    assert sum(layer.parameter_count for layer in graph.layers) == LLAMA_PARAMETERS[sizes]


def test_shards_inside_machines_spare_the_links_between_them():
    def llama_s(**sizes):
        return llama_iteration_s(SimpleNamespace(**(LLAMA | sizes)))

    assert llama_s() < llama_s(shards=128)
    assert llama_s(machine_gbit_per_s=1600) < llama_s()
    none, half, whole = (llama_s(recomputed=share) for share in (0.0, 0.5, 1.0))
    assert none < half < whole
    assert whole - half == pytest.approx(half - none)


def test_iterations_of_llama_take_what_was_measured():
    found = [row for row in sharded_rows() if row.measure == "iterations of Llama (formulas of a study)"]
    assert len(found) == 8
    assert not any(row.fitted for row in found)
    assert max(abs(row.error) for row in found) < 0.18
