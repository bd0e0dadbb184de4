"""Peak memory of GPT by Megatron-Core, as ``orrery plan`` accounts for it, beside what its own tests record.

The tests train twelve blocks of 512 features on four or eight GPUs and note the most that PyTorch's allocator had given
out on the last rank.  All arguments of a run are known, nothing is fitted, and each row is a command::

    orrery plan gpt2:layers=12,hidden=512,heads=8,sequence=1024,words=50304,dropout_percent=10,
        attention_dropout_percent=10 --cluster dgx-a100 --batch 32 --strategy data=8,zero=1 --dtype bfloat16
        --gradient-dtype float32 --optimizer adam --software megatron-core:sums=2,flash=0,workspace_mib=68

Source:
    pytorch/pytorch, aten/src/ATen/cuda/CublasHandlePool.cpp: 8,320 KiB for each handle and stream, 32 MiB on Hopper and
    where products are to be the same in each run (``CUBLAS_WORKSPACE_CONFIG=:4096:8``); the backward pass has its own.
    NVIDIA/TransformerEngine, module/base.py, ``get_workspace``: 4 MiB, from Hopper on 32 MiB.
    NVIDIA/Megatron-LM, training/tokenizer: words are padded to a multiple of 128 on each device that divides them.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from groundwork.units import MIB
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow

_LAYERS, _WORDS, _PADDED, _MICRO_BATCH = 12, 50257, 128, 4
_CLUSTERS = {4: "polaris:nodes=1", 8: "dgx-a100"}
"""Clusters of as many GPUs: what a plan holds does not depend on the kind of GPU, but for the workspace."""
_WORKSPACE_MIB = {"A100": (8.125, 4.0), "H100": (32.0, 32.0), "GB200": (8.125, 32.0)}
"""Workspace of PyTorch for a handle, and that of Transformer Engine."""
_SAME_MIB = 32.0
"""Workspace for a handle under which products are the same in each run."""


def memory_rows() -> Iterator[JudgedRow]:
    """Yield the tests whose arguments say how attention is computed, and all of which a plan can say."""
    for row in rows_of_table("megatron_memory"):
        handle_mib, engine_mib = _WORKSPACE_MIB[row.gpu]
        workspace_mib = 2 * (_SAME_MIB if row.deterministic else handle_mib) + engine_mib * row.transformer_engine
        words = _words(row)
        words += ["interleaved"] * (row.chunk_layers > 0) + ["recomputed"] * row.recomputed
        yield JudgedRow(
            measure="peak memory of GPT",
            comparison=f"Megatron-Core, {row.gpu}",
            label=f"{', '.join(words)}, {row.gpus} GPUs, {'flash attention' if row.flash else 'scores in memory'}",
            group=f"megatron-core-{row.gpu.lower()}-memory",
            subject=",".join(words),
            size=row.micro_batches,
            measured=row.peak_bytes,
            predicted=_peak_bytes(row._replace(gpu="", transformer_engine=0, deterministic=0, runs=0, peak_bytes=0))
            + workspace_mib * MIB,
        )


def _words(row: Any) -> list[str]:
    """Return the strategy of a row in words."""
    replicas = row.gpus // (row.tensor * row.pipeline * row.context)
    degrees = {"pipeline": row.pipeline, "data": replicas, "context": row.context, "tensor": row.tensor}
    switches = {"sequence": row.sequence, "zero=1": row.zero}
    words = [f"{name}={degree}" for name, degree in degrees.items() if degree > 1]
    return words + [word for word, is_on in switches.items() if is_on]


@cache
def _peak_bytes(row: Any) -> float:
    """Return the most that the last device holds, without workspace.

    Args:
        row: Columns of the table; those that do not matter here are nothing.
    """
    replicas = row.gpus // (row.tensor * row.pipeline * row.context)
    blocks = row.chunk_layers or _LAYERS // row.pipeline
    multiple, dropped = _PADDED * row.tensor, row.dropout_percent
    sizes = f"layers={_LAYERS},hidden=512,heads=8,sequence=1024,words={-(-_WORDS // multiple) * multiple}"
    graph = load_model(
        f"gpt2:{sizes},tied={row.tied},dropout_percent={dropped},attention_dropout_percent={dropped}",
        batch=_MICRO_BATCH * row.micro_batches * replicas,
        element_bytes=2,
    )
    planned = simulated_plan(
        graph,
        load_cluster(_CLUSTERS[row.gpus]),
        strategy=",".join(_words(row)),
        dtype="bfloat16",
        gradient_dtype="float32",
        optimizer="adam",
        micro_batches=row.micro_batches if row.micro_batches > 1 or row.pipeline > 1 else None,
        schedule="interleaved" if row.chunk_layers else "",
        stages=_LAYERS // blocks if row.chunk_layers else None,
        stage_at=tuple(f"transformer.h.{first}.ln_1" for first in range(blocks, _LAYERS, blocks))
        if row.pipeline > 1
        else (),
        recompute="full" if row.recomputed else "gathers" if row.sequence else "none",
        software=f"megatron-core:sums=2,flash={3 if row.flash else 0},workspace_mib=0",
    )
    return float(peak_memory_bytes(planned.replayed.program)[-1])
