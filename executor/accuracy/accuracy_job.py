"""What the ranks of a study are told."""

from dataclasses import dataclass
from pathlib import Path

from executor.accuracy.accuracy_request import FLOAT32, AccuracyCase, AccuracyRequest
from executor.runtime import check_program
from hwprofiles import ConfigError
from hwprofiles.catalogue import load_cluster
from planner.compression import compressed_of
from planner.graph import ComputationGraph
from planner.lowering import Program
from planner.models import load_model
from planner.operations import BatchNorm
from planner.plan import lower_plan, make_plan

__all__ = ["Job", "job_of"]

EXCHANGE = "ps-spread"
"""Of gradients: as in A.2.2 of the 8-bit paper, sub-gradients go to who sums them, the sums to all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A study as its ranks need it."""

    question: AccuracyRequest
    programs: dict[AccuracyCase, Program]
    held_out: ComputationGraph
    """The network with all samples that are tested on as its batch."""
    training_file: str
    testing_file: str
    steps_per_epoch: int


def job_of(question: AccuracyRequest, folder: Path, *, training: int, testing: int) -> Job:
    """Plan and lower every case.

    Args:
        question: What is trained.
        folder: Holds ``training.npz`` and ``testing.npz``.
        training, testing: Samples in them.

    Raises:
        ConfigError: The plan cannot be had, the batch is more than there are samples, or the network normalises by
            the batch: testing it would need statistics that training here does not keep.
        InfeasiblePlanError: A plan does not fit in memory.
    """
    if question.batch > training:
        raise ConfigError(f"batch must be at most the {training} samples that are trained on, got {question.batch}")
    cluster = load_cluster(f"lab-4:nodes={question.processes}")
    graph = load_model(question.model, batch=question.batch)
    for layer in graph.layers:
        if isinstance(layer.operation, BatchNorm) or getattr(layer.operation, "batch_norm", False):
            raise ConfigError(f"model must not normalise by the batch to be tested, {layer.name} of {graph.name} does")
    programs = {}
    for case in question.cases():
        kind = "" if case.type == FLOAT32 else case.type
        compressed = compressed_of(graph, EXCHANGE, **{"gradients" if case.mode == "data" else "activations": kind})
        plan = make_plan(graph, cluster, strategy=case.mode, gradient_sync=EXCHANGE, compressed=compressed)
        programs[case] = lower_plan(plan, graph, cluster)
        check_program(programs[case], question.processes)
    return Job(
        question=question,
        programs=programs,
        held_out=load_model(question.model, batch=testing),
        training_file=str(folder / "training.npz"),
        testing_file=str(folder / "testing.npz"),
        steps_per_epoch=training // question.batch,
    )
