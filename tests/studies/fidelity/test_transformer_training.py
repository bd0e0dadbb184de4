"""Iterations of GPT: against the model's FLOP, sums of micro-batches, and measurements that nothing was fitted to."""

from types import SimpleNamespace

import numpy as np
import pytest

from hwprofiles.compute.profile_file import load_profile
from studies.fidelity.transformer_training import gpt_iteration_s, host_s, transformer_rows

SIZES = {
    "layers": 24,
    "hidden": 2048,
    "heads": 16,
    "seq_len": 1024,
    "micro_batch": 8,
    "micro_batches": 1,
    "tensor": 1,
    "pipeline": 1,
    "replicas": 1,
    "source": "VIA-Research/vTrain",
}


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


def test_calls_of_collectives_are_those_of_the_machines_that_were_measured():
    """Six all-reduces of 32 MiB a layer go by the last protocol, whose calls take 35.3 us at vTrain's, else 27.8 us."""
    other_s = seconds(tensor=2, source="NVIDIA/Megatron-LM")
    assert seconds(tensor=2) - other_s == pytest.approx(6 * 24 * 7.5e-6, rel=1e-6)
    assert seconds() == pytest.approx(seconds(source="NVIDIA/Megatron-LM"))


def test_the_host_bounds_layers_that_are_too_small_for_the_device():
    """Tiny layers take what 76 launches, the forward ones twice, take; large layers hide the host."""
    forward_s, backward_s = host_s(layers=48, heads=16, split=False, head=False)
    tiny = {"hidden": 128, "seq_len": 128, "micro_batch": 1}
    assert seconds(**tiny, layers=48) - seconds(**tiny, layers=0) == pytest.approx(forward_s + backward_s, rel=0.01)
    assert backward_s / forward_s == pytest.approx((15 + 46) / 15)
    unfused_s = host_s(layers=1, heads=2, split=False, head=False)
    assert sum(unfused_s) == pytest.approx(sum(host_s(layers=1, heads=4, split=False, head=False)) * 88 / 76)
    assert seconds(**tiny, tensor=2, layers=48) > seconds(**tiny, layers=48)  # launches of all-reduces


def test_stages_of_a_pipeline_wait_for_the_first_micro_batch_and_then_share_the_work():
    """Many micro-batches on two stages take half the time of the layers; one micro-batch passes both."""
    one, two = ({m: seconds(pipeline=stages, micro_batches=m) for m in (1, 2)} for stages in (1, 2))
    assert two[1] > 0.9 * one[1]
    assert 0.5 < (two[2] - two[1]) / (one[2] - one[1]) < 0.65


def test_layers_take_what_was_measured():
    """Neither kernels nor collectives were fitted to any iteration; one number of the host was, to the marked rows."""
    rows = list(transformer_rows())
    assert len(rows) == 731
    assert sum(row.fitted for row in rows) == 55

    def errors(measure):
        return np.array([abs(row.error) for row in rows if row.measure == measure and not row.fitted])

    bars = {
        "iterations of GPT, large layers": (76, 0.05, 0.14),
        "iterations of GPT, small layers": (242, 0.10, 0.22),
        "iterations of GPT, pipelines": (355, 0.08, 0.20),
        "layers of GPT": (3, 0.08, 0.10),
    }
    bars = {f"{name} (formulas of a study)": bar for name, bar in bars.items()}
    for measure, (count, median, p90) in bars.items():
        found = errors(measure)
        assert len(found) == count
        assert np.median(found) < median
        assert np.quantile(found, 0.9) < p90
