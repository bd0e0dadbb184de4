"""Tables of attention, norms, elementwise chains, experts: known parameters are found again, unfit input is refused."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from groundwork.errors import ConfigError
from hwprofiles.compute.fused_kernels import FusedEfficiency
from hwprofiles.compute.fused_times import fused_s
from hwprofiles.compute.profile_file import load_profile
from studies.calibrate.fused_tables import fit_fused, fused_columns, held_out_fused, table_fused

RNG = np.random.default_rng(5)
TRUTH = FusedEfficiency(ceiling=0.45, half_blocks=2.0, head_exponent=0.4, memory=0.4, overhead_s=20e-6)


def attention_table(efficiency=None):
    """Attention of all sorts of sizes, with the times of an efficiency."""
    rows = [
        {
            "pass": "fwd",
            "causal": 1,
            "precision": "bf16",
            "batch": batch,
            "seq": seq,
            "q_heads": heads,
            "kv_heads": keys,
            "head_dim": size,
            "time_us": 1.0,
        }
        for batch in (1, 8)
        for seq in (512, 2048, 8192)
        for heads, keys in ((8, 1), (8, 8), (32, 4), (64, 64))
        for size in (64, 128)
    ]
    table = pd.DataFrame(rows)
    if efficiency:
        profile = replace(load_profile("h100-80gb@bfloat16"), fused={("attention", "forward"): efficiency})
        table["time_us"] = 1e6 * fused_s(profile, table_fused(table, "made")[0].kernels)
    return table


def test_known_parameters_are_found_again():
    rows = table_fused(attention_table(TRUTH), "made")
    found = fit_fused(load_profile("h100-80gb@bfloat16"), rows)

    for name in ("ceiling", "half_blocks", "head_exponent", "memory", "overhead_s"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.1)
    assert np.abs(held_out_fused(load_profile("h100-80gb@bfloat16"), rows)).max() < 0.1


def test_what_elementwise_chains_reach_is_found_again():
    """Chains move all that they read and write at one share of the bandwidth, after one launch."""
    sizes = [(elements, accesses) for elements in (1e6, 4e6, 16e6, 64e6) for accesses in (2, 3, 5)]
    profile = load_profile("h100-80gb@bfloat16")
    us_an_access = 2 / (0.9 * profile.memory_bytes_per_s) * 1e6
    table = pd.DataFrame(
        {
            "pass": "bwd",
            "elements": elements,
            "accesses": accesses,
            "precision": "bf16",
            "time_us": 9.0 + elements * accesses * us_an_access,
        }
        for elements, accesses in sizes
    )
    (rows,) = table_fused(table, "made")
    found = fit_fused(profile, [rows])

    assert rows.kernels.kind == "elementwise"
    assert (found.memory, found.overhead_s) == (pytest.approx(0.9, rel=0.02), pytest.approx(9e-6, rel=0.02))


def test_the_kind_of_a_table_follows_from_its_columns():
    assert fused_columns(attention_table()) == "attention"
    assert fused_columns(pd.DataFrame({"m": [1], "n": [1], "k": [1], "time_us": [1.0]})) is None


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("seq", -1, "table made: seq must be a number > 0, got '-1'"),
        ("pass", "sideways", "pass must be fwd or bwd"),
        ("time_us", "fast", "table made: time_us must be a number > 0, got 'fast'"),
        ("precision", "int3", "unknown precision 'int3'"),
    ],
)
def test_unfit_values_are_refused(column, value, message):
    table = attention_table().astype(object)
    table.loc[3, column] = value
    with pytest.raises(ConfigError, match=message):
        table_fused(table, "made")


def test_too_few_rows_are_refused():
    rows = table_fused(attention_table(TRUTH).head(4), "made")
    with pytest.raises(
        ConfigError, match="a fit of attention needs at least 8 rows of 2 different q_heads and head_dim"
    ):
        held_out_fused(load_profile("h100-80gb@bfloat16"), rows)
