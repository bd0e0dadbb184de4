"""A study of accuracy by processes that are started once and train every case with every seed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.accuracy.accuracy_request import FLOAT32, AccuracyCase, AccuracyRequest
from executor.accuracy.accuracy_result import AccuracyResult, mean_interval
from executor.checks.program_check import check_program
from executor.data.idx import read_mnist
from executor.data.requirements import DataRequirements
from executor.supervision.launcher import LaunchSpec, launch, threads_of
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_board import loss_of, reporter
from groundwork.errors import ConfigError
from groundwork.progress import Progress
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


def accuracy_study(request: AccuracyRequest, *, progress: Progress | None = None) -> AccuracyResult:
    """Train every case with every seed, by plans that real processes run, and test each network.

    Raises:
        ConfigError: The samples cannot be read or do not fit the model, a plan cannot be made, or SciPy is missing.
        InfeasiblePlanError: A plan does not fit in memory.
        RankFailure: A rank died, hung, ran out of memory or computed a loss that is not finite.
    """
    mean_interval([0.0, 1.0])  # SciPy is missed before the long work, not after it
    expected = DataRequirements.of(load_model(request.model, batch=request.batch))
    training, testing = read_accuracy_samples(request.data, expected.only_input(request.data).sample)
    with scratch_folder() as folder:
        for name, (inputs, targets) in (("training", training), ("testing", testing)):
            np.savez(folder / f"{name}.npz", inputs=inputs, targets=targets)
        job = job_of(request, folder, training=len(training[1]), testing=len(testing[1]))
        steps = len(job.programs) * request.seeds * request.epochs * job.steps_per_epoch
        ranks = LaunchSpec(
            module="executor.accuracy.accuracy_rank",
            job=job,
            processes=request.processes,
            threads=threads_of(0, request.processes),
            folder=folder,
        )
        trainings = launch(ranks, progress=reporter(progress, loss_of, steps))
        return AccuracyResult(
            request=request,
            trainings=trainings,
            trained=len(training[1]),
            tested=len(testing[1]),
        )


Samples = tuple[NDArray[Any], NDArray[np.int64]]
"""Inputs, shape (N, channel, height, width), and labels, shape (N,)."""
_TESTED = 357
"""Number of the 1797 digits that are held out; the 1440 others, a number with many divisors, are trained on."""


def read_accuracy_samples(data: str, sample: tuple[int, ...]) -> tuple[Samples, Samples]:
    """Return the samples to train on and those to test on; the division does not depend on the seed of a training.

    Args:
        data: Folder of the MNIST files; if empty, the digits that scikit-learn brings, in one fixed random order.
        sample: Channels and positions of the network's input.

    Raises:
        ConfigError: The files are missing or damaged, the network reads samples of another shape, or scikit-learn is
            needed and missing.
    """
    training, testing = (read_mnist(Path(data), "training"), read_mnist(Path(data), "testing")) if data else _digits()
    for inputs, _ in (training, testing):
        if inputs.shape[1:] != sample:
            wanted, given = (" x ".join(map(str, shape)) for shape in (sample, inputs.shape[1:]))
            if not data:
                raise ConfigError(f"data must name a folder of samples of {wanted}, got none, and digits are {given}")
            raise ConfigError(f"data {data} must be samples of {wanted} as the model reads them, got {given}")
    return training, testing


def _digits() -> tuple[Samples, Samples]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ConfigError(
            "data must name a folder without scikit-learn, which orrery-training[accuracy] brings"
        ) from error
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    inputs = (digits.images[order, None] / 8 - 1).astype(np.float32)  # 0 to 16 becomes -1 to 1
    labels = digits.target[order].astype(np.int64)
    return (inputs[_TESTED:], labels[_TESTED:]), (inputs[:_TESTED], labels[:_TESTED])
