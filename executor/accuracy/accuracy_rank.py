"""One process of a study: ``python -m executor.accuracy.accuracy_rank JOB OUT`` with its rank in the environment.

Processes start once and train every case with every seed, one after another.
"""

import pickle
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from executor.accuracy.accuracy_job import AccuracyJob
from executor.accuracy.accuracy_request import AccuracyCase
from executor.accuracy.accuracy_result import Training
from executor.accuracy.held_out import HeldOut, whole_parameters
from executor.rendezvous.rank_environment import RankEnvironment
from executor.runtime.devices import ComputeDevice, device_of
from executor.runtime.run_options import RunOptions
from executor.supervision.launcher import threads_of
from executor.supervision.rank_work import process_group, serve
from executor.supervision.status_board import RankState, RankStatus
from executor.training.session import open_session
from groundwork.errors import ConfigError


class _Trainer:
    """Trainings of one rank, one after another."""

    def __init__(self, job: AccuracyJob, where: RankEnvironment, device: ComputeDevice, status: RankStatus) -> None:
        self._job, self._where, self._device, self._status = job, where, device, status
        self._held_out = HeldOut(job.held_out, job.testing_file) if where.rank == 0 else None
        self._steps = 0

    def train(self, case: AccuracyCase, seed: int) -> Training | None:
        """Train once; return the losses and accuracies on rank 0, elsewhere None.

        Raises:
            FloatingPointError: The training diverged; the message says which.
        """
        try:
            return self._train(case, seed)
        except (ConfigError, FloatingPointError) as error:  # codecs and losses refuse values that are not finite
            raise FloatingPointError(
                f"training with {case.type}, {case.mode} parallel, seed {seed}: {error}"
            ) from error

    def _train(self, case: AccuracyCase, seed: int) -> Training | None:
        job, per_epoch = self._job, self._job.steps_per_epoch
        steps = job.request.epochs * per_epoch
        options = RunOptions(
            plan="", steps=steps, seed=seed, data=job.training_file, optimizer=job.request.optimizer_spec, device="cpu"
        )
        session = open_session(
            job.programs[case],
            self._where.rank,
            options,
            reduced=False,
            device=self._device,
            status=self._status,
            steps=steps,
        )
        shares, accuracies, begin = torch.zeros(steps, dtype=torch.float64), [], time.perf_counter()
        for number in range(steps):
            shares[number] = session.worker.step(number).loss
            self._steps += 1
            self._status.step(self._steps, float(shares[number]), job.request.batch / (time.perf_counter() - begin))
            if (number + 1) % per_epoch == 0:
                self._status.at(-1, RankState.WAITING)
                parameters = whole_parameters(session)
                accuracies.append(self._held_out.accuracy(parameters) if self._held_out and parameters else 0.0)
            begin = time.perf_counter()
        session.worker.close()
        dist.all_reduce(shares)
        if self._held_out is None:
            return None
        losses = shares.view(job.request.epochs, per_epoch).mean(1).tolist()
        return Training(mode=case.mode, type=case.type, seed=seed, losses=losses, accuracies=accuracies)


def _main(arguments: Sequence[str]) -> NoReturn:
    """Run as the process of one rank, which this ends."""

    def work(where: RankEnvironment, status: RankStatus) -> None:
        """Train every case with every seed."""
        job: AccuracyJob = pickle.loads(Path(arguments[0]).read_bytes())
        torch.set_num_threads(threads_of(0, where.ranks))
        device = device_of("cpu", 0)
        with process_group(where, device):
            trainer = _Trainer(job, where, device, status)
            trainings = [trainer.train(case, seed) for seed in range(job.request.seeds) for case in job.programs]
        if where.rank == 0:
            Path(arguments[1]).write_bytes(pickle.dumps(trainings))

    serve(work)


if __name__ == "__main__":
    _main(sys.argv[1:])
