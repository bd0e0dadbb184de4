"""Fused kernels of transformers: their work against counting, their times against measured rows and bounds."""

from dataclasses import replace

import numpy as np
import pytest

from groundwork.errors import ConfigError
from groundwork.units import TERA
from hwprofiles.compute.attention_versions import with_attention
from hwprofiles.compute.fused_kernels import (
    FusedEfficiency,
    attention_kernels,
    elementwise_kernels,
    expert_kernels,
    norm_kernels,
)
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.profile_file import load_profile
from hwprofiles.measured.measured_tables import measured_table
from studies.calibrate.fused_tables import table_fused

ONE = np.ones(1)


def attention(sequence, heads=32.0, key_heads=8.0, samples=1.0, head_size=128.0, *, causal=True, phase="forward"):
    return attention_kernels(
        samples=samples * ONE,
        heads=heads * ONE,
        key_heads=key_heads * ONE,
        queries=sequence * ONE,
        keys=sequence * ONE,
        head_size=head_size * ONE,
        causal=causal,
        phase=phase,
    )


def test_attention_counts_two_products_and_each_operand_once():
    queries, heads, key_heads, size = 256, 6, 2, 64
    kernels = attention(queries, heads, key_heads, 3.0, size, causal=False)
    pairs = sum(1 for _ in range(queries) for _ in range(queries))

    assert kernels.flop[0] == 3 * heads * pairs * size * 2 * 2
    assert kernels.memory_bytes[0] == 3 * 2 * size * queries * (2 * heads + 2 * key_heads)
    assert kernels.blocks[0] == 3 * heads * 2
    assert attention(queries, heads, key_heads, 3.0, size).flop[0] == kernels.flop[0] / 2


def test_experts_read_the_weights_of_those_that_have_tokens():
    few, many = (
        expert_kernels(tokens=t * ONE, hidden=64 * ONE, inner=32 * ONE, experts=8 * ONE, top_k=2 * ONE)
        for t in (1, 100)
    )

    assert many.flop[0] == 100 * 2 * 3 * 2 * 64 * 32
    assert few.memory_bytes[0] < many.memory_bytes[0]
    assert few.memory_bytes[0] >= 2 * 3 * 64 * 32 * 2  # two experts


def test_streaming_kernels_take_their_traffic():
    profile = load_profile("h200@bfloat16")
    known = replace(profile, fused={("elementwise", "forward"): FusedEfficiency(memory=0.5, overhead_s=1e-6)})
    seconds = fused_s(known, elementwise_kernels(elements=1e9 * ONE, accesses=3.0))

    assert seconds[0] == pytest.approx(1e-6 + 6e9 / (0.5 * profile.memory_bytes_per_s))


def test_all_arithmetic_of_tensor_cores_has_the_attention_of_sixteen_bits():
    """Float16 has the kernels of bfloat16, and where products are of eight bits attention is not; experts would be.

    In float32 it reaches the same share of a lower peak."""
    kernels = attention(4096)
    expected_s = fused_s(load_profile("h100-80gb@bfloat16"), kernels)

    for arithmetic in ("float16", "float8"):
        assert fused_s(load_profile(f"h100-80gb@{arithmetic}"), kernels) == pytest.approx(expected_s)
    assert ("moe", "forward") in load_profile("h100-80gb@float16").fused
    assert ("moe", "forward") not in load_profile("h100-80gb@float8").fused
    lower, wide = load_profile("h100-80gb@bfloat16"), load_profile("h100-80gb")
    slower = lower.peak_flop_per_s / wide.peak_flop_per_s
    assert fused_s(wide, kernels) == pytest.approx(fused_s(lower, replace(kernels, flop=kernels.flop * slower)))
    assert ("moe", "forward") not in wide.fused


@pytest.mark.parametrize("name", ["a100-80gb@bfloat16", "h100-80gb@bfloat16", "p100", "cpu-core"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_times_grow_with_sizes_and_stay_above_the_roofline(name, phase):
    profile = load_profile(name)
    sequences = [64, 100, 128, 129, 500, 4096, 16384]
    seconds = [fused_s(profile, attention(s, phase=phase), phase)[0] for s in sequences]

    assert seconds == sorted(seconds)
    for sequence, time_s in zip(sequences, seconds, strict=True):
        kernels = attention(sequence, phase=phase)
        assert time_s > kernels.flop[0] / profile.peak_flop_per_s
        assert time_s > kernels.memory_bytes[0] / profile.memory_bytes_per_s
    assert seconds[0] >= fused_s(profile, attention(32, phase=phase), phase)[0]


@pytest.mark.parametrize(
    ("gpu", "name", "median", "ninth"),
    [
        ("A100", "a100-80gb", 0.10, 0.25),
        ("H100", "h100-80gb", 0.08, 0.25),
        ("B200", "b200", 0.08, 0.25),
    ],
)
def test_measured_attention_is_met(gpu, name, median, ninth):
    """Rows that the profiles were fitted to: that the file holds what the fit found, in the units it is read in."""
    table = measured_table("attention_recent")
    table = table[(table["gpu"] == gpu) & (table["causal"] == 1)]
    sizes = {name: table[name].to_numpy(dtype=float) for name in ("batch", "seq", "q_heads", "kv_heads", "head_dim")}
    kernels = attention_kernels(
        samples=sizes["batch"],
        heads=sizes["q_heads"],
        key_heads=sizes["kv_heads"],
        queries=sizes["seq"],
        keys=sizes["seq"],
        head_size=sizes["head_dim"],
        causal=True,
    )
    error = np.abs(
        fused_s(load_profile(f"{name}@bfloat16").for_single_kernels(), kernels) / (table["time_us"].to_numpy() * 1e-6)
        - 1
    )

    assert np.median(error) < median
    assert np.quantile(error, 0.9) < ninth


def test_attention_of_h200_predicts_the_rows_of_its_relative():
    """H200 is an H100 with faster memory: on H100's memory its attention must be as good as H100's own."""
    table = measured_table("attention_recent").query("gpu == 'H100'")
    h100, h200 = (load_profile(f"{name}@bfloat16").for_single_kernels() for name in ("h100-80gb", "h200"))
    lent = replace(h200, memory_bytes_per_s=h100.memory_bytes_per_s)
    medians = []
    for profile in (h100, lent):
        errors = [
            fused_s(profile, group.kernels, group.phase) / group.time_s - 1
            for group in table_fused(table, "attention_recent")
        ]
        medians.append(np.median(np.abs(np.concatenate(errors))))

    assert medians[1] <= medians[0] * 1.02


def test_an_unknown_phase_is_refused():
    with pytest.raises(ConfigError, match="phase of a fused kernel must be one of forward, backward, got 'update'"):
        fused_s(load_profile("p100"), norm_kernels(rows=ONE, columns=ONE), "update")


@pytest.mark.parametrize("name", ["a100-80gb@bfloat16", "v100-32gb", "p100"])
def test_a_device_twice_as_fast_halves_fused_kernels_launches_and_dispatch(name):
    """Whatever kernels consist of, all of it scales: small ones too, which mostly wait for the host."""
    profile = load_profile(name)
    quick = profile.faster(2.0)

    assert quick.dispatch_s == profile.dispatch_s / 2
    if profile.fused:
        kernels = attention(np.array([16.0, 4096.0]))
        np.testing.assert_allclose(fused_s(quick, kernels), fused_s(profile, kernels) / 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("head_size", "causal", "sequence", "tflop_per_s"),
    [(64, True, 4096, 284), (64, True, 8192, 295), (128, False, 4096, 368), (128, False, 8192, 370)],
)
def test_the_second_flash_attention_reaches_on_h100_what_its_authors_print(head_size, causal, sequence, tflop_per_s):
    """Shah et al., "FlashAttention-3", 2024, Fig. 5: forward, 16,384 positions in all, 2,048 channels."""
    heads = 2048 / head_size
    kernels = attention(sequence, heads, heads, 16384 / sequence, head_size, causal=causal)
    profile = load_profile("h100-80gb@bfloat16").for_single_kernels()

    reached = kernels.flop / fused_s(with_attention(profile, 2), kernels) / TERA

    assert reached[0] == pytest.approx(tflop_per_s, rel=0.1)
    assert with_attention(profile, 3) is profile


def test_a_profile_of_ampere_has_the_second_flash_attention_itself():
    profile = load_profile("a100-80gb@bfloat16")

    times = [fused_s(with_attention(profile, version), attention(2048))[0] for version in (1, 2, 3)]

    assert times[0] > times[1] == times[2]
