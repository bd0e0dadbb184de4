"""Instructions for the ranks of a study: every case planned and lowered."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executor.accuracy.accuracy_request import FLOAT32, AccuracyCase, AccuracyRequest
from executor.checks.program_check import check_program
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.program import Program
from planner.models.registry import load_model
from planner.operations.normalisation import BatchNorm
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import make_plan

STUDY_SYNC = "ps-spread"
"""Gradient synchronisation of the 8-bit paper: every rank reduces one part of the gradients, and sends it to all.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, A.2.2.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyJob:
    """Study in the form in which its ranks need it."""

    request: AccuracyRequest
    programs: dict[AccuracyCase, Program]
    held_out: ComputationGraph
    """Network with all samples that it is tested on as its batch."""
    training_file: str
    testing_file: str
    steps_per_epoch: int


def job_of(request: AccuracyRequest, folder: Path, *, training: int, testing: int) -> AccuracyJob:
    """Plan and lower every case.

    Args:
        request: Network, data types and seeds.
        folder: Folder that holds ``training.npz`` and ``testing.npz``.
        training: Number of samples that the network is trained on.
        testing: Number of samples that it is tested on.

    Raises:
        ConfigError: A plan cannot be made, the batch is larger than the number of samples, or the network normalises
            by the batch: testing it would need statistics that training here does not keep.
        InfeasiblePlanError: A plan does not fit in memory.
    """
    if request.batch > training:
        raise ConfigError(f"batch must be at most the {training} samples that are trained on, got {request.batch}")
    cluster = load_cluster(f"lab-4:nodes={request.processes}")
    graph = load_model(request.model, batch=request.batch)
    for layer in graph.layers:
        if isinstance(layer.operation, BatchNorm) or getattr(layer.operation, "batch_norm", False):
            raise ConfigError(f"model must not normalise by the batch to be tested, {layer.name} of {graph.name} does")
    programs = {}
    for case in request.cases():
        kind = "" if case.type == FLOAT32 else case.type
        compressed: dict[str, Any] = {"compress_gradients" if case.mode == "data" else "compress_activations": kind}
        plan = make_plan(graph, cluster, strategy=case.mode, gradient_sync=STUDY_SYNC, **compressed)
        programs[case] = lower_plan(plan, graph, cluster)
        check_program(programs[case], request.processes)
    return AccuracyJob(
        request=request,
        programs=programs,
        held_out=load_model(request.model, batch=testing),
        training_file=str(folder / "training.npz"),
        testing_file=str(folder / "testing.npz"),
        steps_per_epoch=training // request.batch,
    )
