"""One process of a validation: ``python -m executor.validation.validation_rank JOB``.

All plans take turns within one process group, so that whatever changes with time, such as the clock of the
processor, affects all of them alike.  The receives of a plan are posted ahead, and the ids of tasks are the tags of
messages: so one plan is open at a time, and has no receive left when the next is opened.
"""

import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from executor.measurement.clocks import clock_offset_s
from executor.measurement.gathered_tasks import RankResult, gather_measurement
from executor.measurement.measured_run import WARM_UP, Measurement
from executor.probe.codec_probe import CodecProbe, CodecRow
from executor.probe.device_probe import device_name
from executor.probe.measured_rows import ProbeRow, over_ranks
from executor.rendezvous.rank_environment import RankEnvironment, local_ranks
from executor.runtime.devices import ComputeDevice, device_of
from executor.supervision.launcher import threads_of
from executor.supervision.rank_work import process_group, serve_job
from executor.supervision.status_board import RankState, RankStatus
from executor.training.session import open_session
from executor.validation.part_samples import PartSamples
from executor.validation.spread import median_spread
from executor.validation.validation_job import FinishedRound, PlanSamples, ValidationJob, write_round
from groundwork.array_types import Floats

_LEAST_COUNTED, _MOST_COUNTED = 3, 100
"""Counted iterations of one turn."""
_SAMPLES = 2
"""Samples of every part of a plan, after every turn of the plan."""
_KEPT_BYTES = 2e9
"""Memory for tensors of parts that stay between turns, of all plans; other plans make theirs anew in every turn."""


class _Turns:
    """Turns of one rank: iterations of each plan, and samples of the plan's parts and codecs after them."""

    def __init__(self, job: ValidationJob, where: RankEnvironment, status: RankStatus, device: ComputeDevice) -> None:
        """Make the probes of the plans."""
        self._job, self._rank, self._status, self._device = job, where.rank, status, device
        self._plans = job.programs
        self._counted = dict.fromkeys(self._plans, _LEAST_COUNTED)
        self._times_s: dict[str, list[Floats]] = {name: [] for name in self._plans}
        """Iteration times by plan, an array a turn."""
        self._samples: dict[str, PartSamples] = {}
        self._kept: set[str] = set()
        if not job.run.stand_in:
            self._samples = {
                name: PartSamples(program, self._rank, device, status, job.run.optimizer)
                for name, (program, _) in self._plans.items()
            }
            free_bytes = _KEPT_BYTES
            for name, samples in self._samples.items():
                if samples.tensor_bytes <= free_bytes:
                    free_bytes -= samples.tensor_bytes
                    self._kept.add(name)
        self._codecs = {name: CodecProbe(types, device) for name, types in job.types.items()}
        self._warm: set[str] = set()

    def run(self) -> None:
        """Take turns until every median is known well enough, or rounds or time are over."""
        self._offset_s = clock_offset_s(self._device.torch_device)
        place = {"device": device_name(self._device), "back end": self._device.backend}
        begin, done, turn = time.monotonic(), False, 0
        while not done:
            measured = dict[str, Measurement]()
            for number, name in enumerate(self._job.order(turn)):
                measurement = self._turn(name, turn * len(self._plans) + number)
                if measurement is not None:
                    measured[name] = measurement
                    self._times_s[name].append(measurement.iterations_s)
                self._sample(name)
            self._status.at(-1, RankState.WAITING)
            samples = {name: self._gathered_samples(name) for name in self._plans}
            if self._rank == 0:
                write_round(
                    Path(self._job.run.out), turn, FinishedRound(place=place, measured=measured, samples=samples)
                )
            turn += 1
            done = self._agreed(turn, time.monotonic() - begin)

    def _gathered_samples(self, name: str) -> PlanSamples:
        """Bring the samples of a plan from all ranks to rank 0; elsewhere there are none."""
        parts = self._samples[name].rows() if name in self._samples else []
        mine = parts, self._codecs[name].rows() if name in self._codecs else []
        ranks: list[tuple[list[ProbeRow], list[CodecRow]]] | None = None
        if self._rank == 0:
            ranks = [mine] * dist.get_world_size()
        dist.gather_object(mine, ranks)
        if ranks is None:
            return PlanSamples()
        part_rows = tuple(row for rows, _ in ranks for row in rows)
        return PlanSamples(part_rows, tuple(over_ranks([rows for _, rows in ranks])))

    def _sample(self, name: str) -> None:
        """Time the parts of a plan, on all its ranks at once: they share caches and memory as in training."""
        self._sample_codecs(name)
        if name not in self._samples:
            return
        samples = self._samples[name]
        samples.prepare()
        self._status.at(-1, RankState.WAITING)
        dist.barrier()
        for _ in range(_SAMPLES):
            samples.sample()
        if name not in self._kept:
            samples.drop()

    def _sample_codecs(self, name: str) -> None:
        """Time the compression of a plan's messages, on all ranks at once."""
        if name not in self._codecs:
            return
        probe = self._codecs[name]
        self._status.at(-1, RankState.COMPUTING)
        if name not in self._warm:
            self._warm.add(name)
            probe.warm_up()
        for _ in range(_SAMPLES):
            self._status.at(-1, RankState.WAITING)
            dist.barrier()
            probe.sample()

    def _turn(self, name: str, number: int) -> Measurement | None:
        """Run some iterations of one plan, of which the first, in which buffers are made, are not counted.

        Returns:
            What all ranks measured, on rank 0; elsewhere None.
        """
        program, reduced = self._plans[name]
        steps = WARM_UP + self._counted[name]
        session = open_session(
            program, self._rank, self._job.run, reduced=reduced, device=self._device, status=self._status, steps=steps
        )
        self._status.step(number)
        self._status.at(-1, RankState.WAITING)
        dist.barrier()
        results = [session.worker.step(step) for step in range(steps)]
        self._status.at(-1, RankState.WAITING)
        session.worker.close()
        result = RankResult(
            tasks=[each.measured for each in results],
            paused=[False] * steps,
            losses=[each.loss for each in results],
        )
        return gather_measurement(result, self._offset_s, self._device, lambda: self._status.at(-1, RankState.WAITING))

    def _agreed(self, turns: int, elapsed_s: float) -> bool:
        """Return whether the turns end, and set the iterations of the next turns; all ranks follow rank 0."""
        request, decision = self._job.request, [(False, self._counted)]
        if self._rank == 0:
            known = all(median_spread(rows) <= request.spread for rows in self._times_s.values())
            counts = {
                name: round(request.turn_s / float(np.median(np.concatenate(rows))))
                for name, rows in self._times_s.items()
            }
            done = known or turns >= request.rounds or elapsed_s > request.budget_s
            decision = [
                (done, {name: min(max(count, _LEAST_COUNTED), _MOST_COUNTED) for name, count in counts.items()})
            ]
        dist.broadcast_object_list(decision, src=0)
        done, self._counted = decision[0]
        return done


def _work(job: ValidationJob, where: RankEnvironment, status: RankStatus) -> None:
    torch.set_num_threads(threads_of(job.run.threads, where.ranks))
    device = device_of(job.run.device, where.local_rank, local_ranks=local_ranks(where))
    turns = _Turns(job, where, status, device)
    with process_group(where, device):
        turns.run()


if __name__ == "__main__":
    serve_job(_work)
