"""Peak memory beside what Megatron-LM's own tests recorded on real GPUs.

Source:
    NVIDIA/Megatron-LM, tests/functional_tests/test_cases/gpt: ``mem-max-allocated-bytes`` of the last rank in the
    golden values of GPT of 12 layers, hidden size 512, 8 heads, 1,024 positions, 50,257 words (padded to
    a multiple of 128 times the degree of tensor parallelism), 4 sequences a micro-batch and 32 a batch, on 8 GPUs.
"""

import pytest

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan

WORDS, BATCH, LAYERS = 50304, 32, 12


def predicted_bytes(strategy, *, cluster="dgx-a100", attention=0, dropout=10, tied=1, stages=1):
    """Peak of the last device, of stages of equally many blocks."""
    sizes = f"layers={LAYERS},hidden=512,heads=8,sequence=1024,words={WORDS},tied={tied}"
    drops = f"attention_dropout_percent={dropout},dropout_percent={dropout}"
    graph, devices = load_model(f"gpt2:{sizes},{drops}", batch=BATCH, element_bytes=2), load_cluster(cluster)
    plan = make_plan(
        graph,
        devices,
        strategy=strategy,
        dtype="bfloat16",
        gradient_dtype="float32",
        optimizer="adam",
        software=f"megatron-2021:flash={attention}",
        stage_at=tuple(f"transformer.h.{LAYERS // stages * stage}.ln_1" for stage in range(1, stages)),
    )
    return peak_memory_bytes(lower_plan(plan, graph, devices))[-1]


@pytest.mark.parametrize(
    ("strategy", "how", "measured_bytes"),
    [
        ("data=8,zero=1", {}, 4673069568),
        ("data=8,zero=1", {"cluster": "dgx-h100"}, 4702430720),
        ("data=8,recompute=full", {}, 2534070272),
        ("pipeline=4,data=2,micro-batches=4", {"tied": 0, "stages": 4}, 2685758976),
        ("pipeline=4,data=2,micro-batches=4", {"stages": 4}, 2685758976),
        ("pipeline=2,context=4,micro-batches=8", {"stages": 2, "attention": 2, "dropout": 0}, 1250505728),
        (
            "data=2,context=2,tensor=2,sequence,micro-batches=4,recompute=gathers",
            {"attention": 2, "dropout": 0},
            1144809472,
        ),
    ],
)
def test_peaks_are_those_that_were_measured(strategy, how, measured_bytes):
    assert predicted_bytes(strategy, **how) == pytest.approx(measured_bytes, rel=0.04)
