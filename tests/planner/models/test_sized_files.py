"""Transformers of the catalogue with sizes of the user's against the counts that their authors print."""

import time

import numpy as np
import pytest

from groundwork.errors import ConfigError
from planner.models.registry import load_model
from planner.models.sized_files import rotary_frequencies

LLAMA_3 = "llama-1b:tied=0,kv_heads=8,sequence=8192"
PRINTED = {
    "gpt2:layers=24,hidden=1024": 354_823_168,  # GPT-2 medium
    "gpt2:layers=48,hidden=1600": 1_557_611_200,  # GPT-2 XL
    # GPT-3: 12 products of the width squared and 13 vectors a block, tables of words and positions, the last norm
    "gpt2:layers=96,hidden=12288,heads=96,sequence=2048": (
        96 * (12 * 12288**2 + 13 * 12288) + (50257 + 2048 + 2) * 12288
    ),
    f"{LLAMA_3},layers=32,hidden=4096,heads=32,ffn=14336": 8_030_261_248,
    f"{LLAMA_3},layers=80,hidden=8192,heads=64,ffn=28672": 70_553_706_496,
    "bert-base:layers=24,hidden=1024": 335_174_458,
    "vit-b16:layers=24,hidden=1024": 304_326_632,
    "vit-b16:patch=32": 88_224_232,
}


@pytest.mark.parametrize("spec", PRINTED)
def test_larger_ones_have_the_printed_parameters(spec):
    """Of GPT-2, GPT-3, Llama 3, BERT large for masked words, and torchvision's ViT-L/16 and ViT-B/32."""
    assert load_model(spec, batch=2).parameter_count == PRINTED[spec]


def test_sizes_that_are_the_published_ones_give_the_published_model():
    """Also of what follows from others; blocks differ in their names alone."""
    usual = load_model("gpt2", batch=2)
    given = load_model("gpt2:layers=12,hidden=768,heads=12,ffn=3072,words=50257,sequence=1024,tied=1", batch=2)

    assert given.layers == usual.layers
    first, last = ([each for each in usual.layers if each.name.startswith(f"transformer.h.{i}.")] for i in (1, 11))
    assert [each.operation for each in first] == [each.operation for each in last]
    assert len({layer.name for layer in usual.layers}) == len(usual.layers)


def test_a_model_of_many_layers_is_loaded_fast():
    """2,487 layers in a fraction of a second: one block is read."""
    start = time.process_time()
    graph = load_model("llama-1b:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672", batch=8)
    assert time.process_time() - start < 2
    assert len(graph.layers) == 4 + 80 * 25


def test_rotary_frequencies_are_those_of_the_published_model():
    """Recorded from Llama 3.2 1B, in float32: fast turns stay, slow ones are 32 times slower, a few are between."""
    recorded = {0: 1.0, 1: 0.663601279258728, 15: 0.0012905480107292533, 17: 9.708286233944818e-05, 31: 9.418306490e-08}
    found = rotary_frequencies(64, 500000, 32, 1, 4, 8192)

    assert len(found) == 32
    np.testing.assert_allclose([found[i] for i in recorded], list(recorded.values()), rtol=3e-7)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gpt2:hidden=500", "gpt2: hidden / 64 must be a whole number, got hidden=500"),
        ("gpt2:hidden=512,heads=12", "gpt2: hidden / heads must be a whole number, got hidden=512, heads=12"),
        ("llama-1b:kv_heads=5", "llama-1b: heads / kv_heads must be a whole number, got heads=32, kv_heads=5"),
        ("llama-1b:hidden=96", r"llama-1b: hidden / heads / 2 must be a whole number, got .*hidden=96, heads=32"),
        ("llama-1b:layers=0", "llama-1b:layers must be an integer from 1 to 1000, got '0'"),
        ("llama-1b:tied=2", "llama-1b:tied must be an integer from 0 to 1, got '2'"),
        ("bert-base:sequence=513", "bert-base:sequence must be an integer from 1 to 512, got '513'"),
        ("gpt2:head=4", r"parameters of gpt2 must be layers=N, hidden=N, .* got 'head=4'; did you mean 'heads'\?"),
        ("gpt2:layers", "parameters of gpt2 must be layers=N, .*, got 'layers'"),
        ("vit-b16:image=225", "vit-b16: image / patch must be a whole number, got image=225, patch=16"),
        (
            "gpt2:sequence=99999,words=9999999",
            r"model gpt2:.* with batch 100,000,000 has tensors of 2\^63 bytes or more",
        ),
        ("gpt2:sequence=9999999", "model gpt2:.*: shape of a call must have at most 268,435,456 elements"),
    ],
)
def test_bad_sizes_are_refused(spec, message):
    with pytest.raises(ConfigError, match=message):
        load_model(spec, batch=10**8)
