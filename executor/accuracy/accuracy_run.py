"""A study of accuracy by processes that are started once and train every case with every seed."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.accuracy.accuracy_job import job_of
from executor.accuracy.accuracy_request import AccuracyRequest
from executor.accuracy.accuracy_result import AccuracyResult, mean_interval
from executor.data.dataset import DataRequirements
from executor.data.idx import read_mnist
from executor.supervision.launcher import LaunchSpec, launch, threads_of
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_board import loss_of, reporter
from groundwork.errors import ConfigError
from groundwork.progress import Progress
from planner.models.registry import load_model


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
        job_file, result_file = folder / "job.pickle", folder / "trainings.pickle"
        job_file.write_bytes(pickle.dumps(job))
        steps = len(job.programs) * request.seeds * request.epochs * job.steps_per_epoch
        ranks = LaunchSpec(
            module="executor.accuracy.accuracy_rank",
            arguments=[str(job_file), str(result_file)],
            processes=request.processes,
            threads=threads_of(0, request.processes),
            folder=folder,
        )
        launch(ranks, progress=reporter(progress, loss_of, steps))
        return AccuracyResult(
            request=request,
            trainings=pickle.loads(result_file.read_bytes()),
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
