"""Iterations of GPT: against the model's FLOP, sums of micro-batches, and measurements that nothing was fitted to."""

from types import SimpleNamespace

import numpy as np
import pytest

from hwprofiles.compute.profile_file import load_profile
from studies.fidelity.transformer_training import gpt_iteration_s, transformer_rows

SIZES = {"layers": 24, "hidden": 2048, "heads": 16, "seq_len": 1024, "micro_batch": 8, "micro_batches": 1,
         "tensor": 1, "replicas": 1}  # fmt: skip


def seconds(**sizes):
    return gpt_iteration_s(SimpleNamespace(**(SIZES | sizes)))


def test_an_iteration_takes_at_least_its_arithmetic_at_the_peak():
    """With recomputation 96 B s l h^2 (1 + s / 6h + V / 16 l h) FLOP: Narayanan et al., 2021, Eq. 3."""
    batch, length, layers, hidden, words = 8, 1024, 24, 2048, 51200
    share = 1 + length / (6 * hidden) + words / (16 * layers * hidden)
    least_s = 96 * batch * length * layers * hidden**2 * share / load_profile("a100-80gb@float16").peak_flop_per_s
    assert 1.2 * least_s < seconds() < 3 * least_s


def test_micro_batches_add_up_and_replicas_only_add_their_gradients():
    one, two, three = (seconds(micro_batches=count) for count in (1, 2, 3))
    assert three - two == pytest.approx(two - one)
    assert seconds(replicas=2) - one == pytest.approx(seconds(replicas=2, micro_batches=3) - three)
    assert one / 4 < seconds(tensor=4) < one


def test_large_layers_take_what_was_measured():
    """Neither the kernels nor the collectives were fitted to any iteration."""
    rows = list(transformer_rows())
    large = np.array([abs(row.error) for row in rows if not row.reason])
    assert len(rows) == 365
    assert len(large) == 85
    assert np.median(large) < 0.05
    assert np.quantile(large, 0.9) < 0.15
