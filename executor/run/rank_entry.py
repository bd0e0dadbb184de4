"""One process of a run: ``python -m executor.run.rank_entry JOB``, a rank of the environment."""

import hashlib
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from executor.checkpoints.module_state_save import save_module_state
from executor.checkpoints.resume import Checkpoints
from executor.measurement.clocks import clock_offset_s
from executor.measurement.gathered_tasks import RankResult, gather_measurement
from executor.measurement.measured_run import WARM_UP, Measurement
from executor.measurement.memory_meter import AllocationMeter
from executor.program.recorder import RankMeasurement
from executor.rendezvous.all_ranks import of_all_ranks
from executor.rendezvous.rank_environment import RankEnvironment, local_ranks
from executor.runtime.devices import ComputeDevice, device_of
from executor.runtime.run_options import RunOptions
from executor.supervision.launcher import threads_of
from executor.supervision.rank_work import process_group, serve_job
from executor.supervision.status_board import RankState, RankStatus
from executor.training.session import Session, open_session
from groundwork.errors import ConfigError
from planner.lowering.program import Program

_KEPT = 500
"""Number of the last steps whose tasks are kept; of earlier steps only the loss is."""


def run_rank(
    where: RankEnvironment, program: Program, options: RunOptions, status: RankStatus, *, reduced: bool
) -> Measurement | None:
    """Train as one rank, in a process group that is opened and closed here.

    Returns:
        Measurements of all ranks, on rank 0; elsewhere None.

    Raises:
        ConfigError: The programs of the ranks differ, the data do not fit, or the checkpoint has done all steps.
    """
    torch.set_num_threads(threads_of(options.threads, local_ranks(where)))
    device = device_of(options.device, where.local_rank, local_ranks=local_ranks(where))
    with process_group(where, device):
        _check_same_program(program)
        rank = _Rank(program=program, rank=where.rank, options=options, device=device, status=status)
        return rank.train(reduced=reduced)


def _check_same_program(program: Program) -> None:
    """Refuse programs that differ between ranks, as machines with plan files of their own may have."""
    digest = hashlib.sha256(program.graph.digest.encode())
    names = ("kind", "layer", "consumer", "micro_batch", "device", "peer", "region_low", "region_high", "size_bytes")
    for column in (getattr(program, name) for name in names):
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update(np.array(program.sync_order).tobytes())
    digest.update(repr(sorted(program.buckets.items())).encode() if program.buckets else b"")
    programs = of_all_ranks(digest.hexdigest())
    for other, digest_there in enumerate(programs):
        if digest_there != programs[0]:
            raise ConfigError(f"plan must be the same on all ranks: that of rank {other} differs from that of rank 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """Rank that trains a program: its device, and its row of the status board."""

    program: Program
    rank: int
    options: RunOptions
    device: ComputeDevice
    status: RankStatus

    def train(self, *, reduced: bool) -> Measurement | None:
        """Train from the first step, or from the checkpoint; return the measurements of all ranks on rank 0."""
        options = self.options
        checkpoints = _checkpoints(options, self.program)
        first = checkpoints.latest_step() if checkpoints and options.resume else 0
        if first >= options.steps:
            raise ConfigError(f"steps must be more than the {first} that the checkpoint has done, got {options.steps}")
        meter = AllocationMeter(self.device) if options.memory else None
        session = open_session(
            self.program,
            self.rank,
            options,
            reduced=reduced,
            device=self.device,
            status=self.status,
            steps=options.steps - first,
        )
        notes = checkpoints.load(session) if checkpoints and first else ()
        offset_s = clock_offset_s(self.device.torch_device)
        steps = _Steps(self, session, checkpoints, meter, first)
        dist.barrier()
        self.status.step(first)
        for number in range(first, options.steps):
            steps.run(number)
        self.status.at(-1, RankState.WAITING)
        if options.save:
            session.worker.settle()
            save_module_state(session, Path(self.options.save), start=self.options.init, steps=options.steps - first)
        session.worker.close()
        result = RankResult(
            tasks=[measured for measured, _ in steps.kept],
            paused=[paused for _, paused in steps.kept],
            losses=steps.losses,
            allocated_bytes=meter.split(session) if meter else (),
            notes=notes,
        )
        return gather_measurement(result, offset_s, self.device, lambda: self.status.at(-1, RankState.WAITING))


class _Steps:
    """Steps of one rank, with the checkpoints between them."""

    def __init__(
        self, rank: _Rank, session: Session, checkpoints: Checkpoints | None, meter: AllocationMeter | None, first: int
    ) -> None:
        self._rank, self._session, self._checkpoints = rank, session, checkpoints
        self._meter, self._metered = meter, min(first + WARM_UP, rank.options.steps)
        self._paused = False
        self.losses: list[float] = []
        self.kept: deque[tuple[RankMeasurement, bool]] = deque(maxlen=_KEPT)
        """Tasks of the last steps, each with whether a checkpoint was written before the step."""

    def run(self, number: int) -> None:
        """Run a step, and write a checkpoint after it where one is due."""
        begin_s = time.perf_counter()
        result = self._session.worker.step(number)
        done = number + 1
        if self._meter and done == self._metered:
            self._meter.stop()
        self.losses.append(result.loss)
        self.kept.append((result.measured, self._paused))
        samples_per_s = self._rank.program.graph.batch / (time.perf_counter() - begin_s)
        self._paused = self._save(done)
        self._rank.status.step(done, result.loss, samples_per_s)

    def _save(self, done: int) -> bool:
        """Write a checkpoint if one is due; return whether it was."""
        every = self._rank.options.checkpoint_every
        due = done == self._rank.options.steps or (every and done % every == 0)
        if self._checkpoints is None or not due:
            return False
        self._session.worker.settle()
        self._rank.status.at(-1, RankState.SAVING)
        self._checkpoints.save(self._session, done)
        return True


def _checkpoints(options: RunOptions, program: Program) -> Checkpoints | None:
    """Return the checkpoints of a run, None if it writes none."""
    return Checkpoints(options, program.graph) if options.checkpoint else None


def _work(job: tuple[RunOptions, Program, bool], where: RankEnvironment, status: RankStatus) -> Measurement | None:
    options, program, reduced = job
    return run_rank(where, program, options, status, reduced=reduced)


if __name__ == "__main__":
    serve_job(_work)
