"""Peak memory beside what Megatron-LM's own tests recorded on real GPUs, and what its buffers hold in closed form."""

import math

import pytest

from groundwork.units import MIB
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.lowering.send_phases import program_order
from planner.memory.buffers import BUFFERS
from planner.memory.lifetimes import BufferLifetimes
from planner.memory.peak_memory import peak_by_kind_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan
from studies.fidelity import peak_memory
from studies.fidelity.device_names import rows_of_table

LAYERS, HIDDEN, POSITIONS, WORDS, MICRO_BATCHES = 2, 64, 128, 4096, 4


def program_of(software):
    sizes = f"layers={LAYERS},hidden={HIDDEN},heads=2,sequence={POSITIONS},words={WORDS},tied=0"
    graph, cluster = load_model(f"gpt2:{sizes}", batch=16, element_bytes=2), load_cluster("polaris:nodes=1")
    options = {"dtype": "bfloat16", "gradient_dtype": "float32", "optimizer": "adam", "micro_batches": MICRO_BATCHES}
    return lower_plan(make_plan(graph, cluster, strategy="data=4", software=software, **options), graph, cluster)


def bytes_by_kind(software):
    return peak_by_kind_bytes(program_of(software))


def test_the_peak_of_a_buffer_of_gradients_is_eighteen_bytes_a_parameter():
    """At the loss, where most is held, no gradient is beside the buffer; PyTorch keeps the first until the update.

    A block of GPT-2 has 12 H^2 + 13 H parameters, the last norm 2 H, tables and head as many rows of H as they say.
    """
    parameters = LAYERS * (12 * HIDDEN**2 + 13 * HIDDEN) + (2 + POSITIONS + 2 * WORDS) * HIDDEN
    by_kind = {sums: bytes_by_kind(f"megatron-core:sums={sums},workspace_mib=0") for sums in (0, 2)}
    for found in by_kind.values():
        assert (found["parameters"], found["optimizer_state"]) == (2 * parameters, 12 * parameters)
        assert found["gradients"] == 4 * parameters
    assert bytes_by_kind("torch-compile")["gradients"] > 5 * parameters
    held = [sum(bytes_by_kind(f"megatron-core:workspace_mib={mib}").values()) for mib in (0, 100)]
    assert held[1] - held[0] == 100 * MIB


def test_products_that_add_to_the_buffer_make_no_gradients_beside_it():
    """Of a block, four products with their biases: 12 H^2 + 9 H; the head has no bias."""
    made = {}
    for sums in (0, 2):
        program = program_of(f"megatron-core:sums={sums}")
        held = BufferLifetimes(program, None).transient(*program_order(program))
        first = held.take((held.kind == BUFFERS.index("parameter gradients")) & (held.device == 0))
        made[sums] = first.size_bytes.sum()
    products = LAYERS * (12 * HIDDEN**2 + 9 * HIDDEN) + WORDS * HIDDEN
    assert made[2] - made[0] == 2 * products * MICRO_BATCHES
    assert made[0] > 0  # those of norms and tables


@pytest.mark.parametrize(
    "kind",
    [
        {"pipeline": 1, "recomputed": 1},
        {"gpus": 4, "tensor": 4},
        {"pipeline": 4, "tied": 0, "chunk_layers": 0},
        {"pipeline": 4, "gpus": 8, "chunk_layers": 1},
        {"tensor": 2, "context": 2, "pipeline": 1},
        {"transformer_engine": 0, "pipeline": 2},
    ],
    ids=str,
)
def test_peaks_are_those_that_were_measured(monkeypatch, kind):
    table = [row for row in rows_of_table("megatron_memory") if all(getattr(row, name) == kind[name] for name in kind)]
    monkeypatch.setattr(peak_memory, "rows_of_table", lambda _: table)
    errors = [row.error for row in peak_memory.memory_rows()]
    assert errors
    assert max(map(math.fabs, errors)) < 0.05
