"""A study: processes that are started once and train everything that was asked for."""

import pickle

import numpy as np

from executor.accuracy.accuracy_job import job_of
from executor.accuracy.accuracy_request import AccuracyRequest
from executor.accuracy.accuracy_result import AccuracyResult, mean_interval
from executor.accuracy.accuracy_samples import read_accuracy_samples
from executor.data import Expected
from executor.processes import launch, loss_of, reporter, scratch_folder, threads_of
from hwprofiles import Progress
from planner.models import load_model

__all__ = ["accuracy_study"]


def accuracy_study(question: AccuracyRequest, *, progress: Progress | None = None) -> AccuracyResult:
    """Train every case with every seed, by plans of ours run by real processes, and test each network.

    Args:
        question: What is trained and compared.
        progress: Called as ``progress(label, done, total)``, in steps of all trainings.

    Raises:
        ConfigError: The samples cannot be had or do not fit the model, the plans cannot, or SciPy is missing.
        InfeasiblePlanError: A plan does not fit in memory.
        RankFailure: A rank died, hung, ran out of memory or met a loss that is not finite.
    """
    mean_interval([0.0, 1.0])  # known before the long work whether it can be said
    expected = Expected.of(load_model(question.model, batch=question.batch))
    training, testing = read_accuracy_samples(question.data, expected.sample)
    with scratch_folder() as folder:
        for name, (inputs, targets) in (("training", training), ("testing", testing)):
            np.savez(folder / f"{name}.npz", inputs=inputs, targets=targets)
        job = job_of(question, folder, training=len(training[1]), testing=len(testing[1]))
        told, answer = folder / "job.pickle", folder / "answer.pickle"
        told.write_bytes(pickle.dumps(job))
        steps = len(job.programs) * question.seeds * question.epochs * job.steps_per_epoch
        launch(
            "executor.accuracy.accuracy_rank",
            [str(told), str(answer)],
            processes=question.processes,
            threads=threads_of(0, question.processes),
            folder=folder,
            progress=reporter(progress, loss_of, steps),
        )
        return AccuracyResult(
            question=question, trainings=pickle.loads(answer.read_bytes()), trained=len(training[1]),
            tested=len(testing[1]),
        )  # fmt: skip
