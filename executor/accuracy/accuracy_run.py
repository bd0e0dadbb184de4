"""A study of accuracy by processes that are started once and train every case with every seed."""

import pickle

import numpy as np

from executor.accuracy.accuracy_job import job_of
from executor.accuracy.accuracy_request import AccuracyRequest
from executor.accuracy.accuracy_result import AccuracyResult, mean_interval
from executor.accuracy.accuracy_samples import read_accuracy_samples
from executor.data.dataset import DataRequirements
from executor.supervision.launcher import LaunchSpec, launch, threads_of
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_progress import loss_of, reporter
from groundwork.progress import Progress
from planner.models.registry import load_model


def accuracy_study(request: AccuracyRequest, *, progress: Progress | None = None) -> AccuracyResult:
    """Train every case with every seed, by plans that real processes run, and test each network.

    Args:
        request: Network, data types, kinds of parallelism and seeds.
        progress: Called as ``progress(label, done, total)``, in steps of all trainings.

    Returns:
        Losses and accuracies of all trainings.

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
