"""Iterations of GPT as ``orrery plan`` prices them, beside public times: those whose training a plan can express.

A plan knows data parallelism, of one micro-batch, and pipelines of one device a stage, with full recomputation.  It has
no tensor parallelism, no replicas of pipelines and no sharded parameters, so that most measured iterations of GPT, and
all of MPT and Llama, cannot be planned.
"""

from collections.abc import Iterator
from typing import Any

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.plan.planning import simulated_plan
from studies.fidelity.device_names import rows_of_table
from studies.fidelity.judged_row import JudgedRow
from studies.fidelity.transformer_training import GPT_WORDS, gpt_row
from studies.sharded.decoder_networks import mpt_network

_PER_NODE = 8


def planned_rows() -> Iterator[JudgedRow]:
    """Yield every measured iteration of GPT that ``orrery plan`` can express."""
    for row in rows_of_table("gpt_iterations"):
        if row.tensor == 1 and (row.replicas == 1 or row.pipeline == row.micro_batches == 1):
            yield gpt_row(
                row,
                measure="iterations of GPT as orrery plan prices them",
                compared="as planned",
                devices=f"{row.replicas} x {row.pipeline} GPUs, {row.micro_batches} micro-batches",
                subject="as planned",
                times=(row.time_s, _planned_s(row)),
            )


def _planned_s(row: Any) -> float:
    """Return the simulated time of the plan of an iteration, with equal stages, by ``orrery plan``'s own defaults."""
    graph = mpt_network(
        layers=row.layers,
        hidden=row.hidden,
        heads=row.heads,
        seq_len=row.seq_len,
        words=GPT_WORDS,
        batch=row.micro_batch * row.micro_batches * row.replicas,
    )
    layers = row.layers // row.pipeline
    starts = tuple(f"blocks.{layers * stage}.norm_1" for stage in range(1, row.pipeline))
    options: dict[str, Any] = {"strategy": "data"}
    if row.replicas == 1:
        options = {"stages": row.pipeline, "micro_batches": row.micro_batches, "stage_at": starts}
    machines = load_cluster(f"dgx-a100:nodes={-(-row.replicas // _PER_NODE)}")
    planned = simulated_plan(
        graph,
        machines,
        dtype="float16",
        optimizer="adam",
        recompute=",".join(f"blocks.{i}.add_2" for i in range(row.layers)),
        **options,
    )
    return planned.replayed.iteration_s
