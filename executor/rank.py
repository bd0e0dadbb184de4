"""One process of a run: ``python -m executor.rank OPTIONS`` with its place in the environment, as torchrun sets it."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist

from executor.clocks import clock_offset_s
from executor.devices import Device, device_of
from executor.launch import threads_of
from executor.lowered import program_of
from executor.measurement import MEASUREMENT, Measurement, join
from executor.options import RunOptions, read_options
from executor.places import Place
from executor.rank_process import process_group, serve
from executor.recorder import Measured
from executor.session import open_session
from executor.status import RankState, RankStatus
from executor.worker import StepResult
from hwprofiles.errors import ConfigError
from planner.plan import Plan
from planner.plan_file import load_plan
from planner.program import Program

if TYPE_CHECKING:
    from executor.resume import Checkpoints

__all__ = ["MEASUREMENT", "main", "program_of", "run_rank"]


def run_rank(
    where: Place,
    plan: Plan,
    program: Program,
    options: RunOptions,
    status: RankStatus,
    progress: Callable[[float, int], None] | None = None,
) -> Measurement | None:
    """Train as one rank, with the process group that this opens and closes.

    Args:
        where: Which rank.
        plan: The same on all ranks.
        program: Of the plan.
        options: The rest.
        status: Where the rank says what it does.
        progress: Called after each step as ``progress(images_per_s, steps)``.

    Returns:
        What all ranks measured, on rank 0; elsewhere None.
    """
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", where.ranks))  # set by torchrun
    torch.set_num_threads(threads_of(options.threads, local_ranks))
    device = device_of(options.device, where.local_rank)
    with process_group(where, device):
        _check_same_plan(plan)
        return _train(program, plan, where.rank, options, device, status, progress)


def _check_same_plan(plan: Plan) -> None:
    plans: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(plans, repr((plan.model_digest, sorted(plan.configurations.items(), key=repr))))
    for other, found in enumerate(plans):
        if found != plans[0]:
            raise ConfigError(f"plan must be the same on all ranks: that of rank {other} differs from that of rank 0")


def _train(
    program: Program,
    plan: Plan,
    rank: int,
    options: RunOptions,
    device: Device,
    status: RankStatus,
    progress: Callable[[float, int], None] | None,
) -> Measurement | None:
    checkpoints = _checkpoints(options, program)
    first = checkpoints.latest_step() if checkpoints and options.resume else 0
    if first >= options.steps:
        raise ConfigError(f"steps must be more than the {first} that the checkpoint has done, got {options.steps}")
    session = open_session(
        program, rank, options, reduced=plan.batch_norm == "reduced", device=device, status=status,
        steps=options.steps - first,
    )  # fmt: skip
    if checkpoints and first:
        checkpoints.load(session)
    offset_s = clock_offset_s(device.torch_device)
    results: list[StepResult] = []
    dist.barrier()
    status.step(first)
    for number in range(first, options.steps):
        begin = time.perf_counter()
        results.append(session.worker.step(number))
        images_per_s = program.graph.batch / (time.perf_counter() - begin)
        done = number + 1
        if checkpoints and (
            done == options.steps or (options.checkpoint_every and done % options.checkpoint_every == 0)
        ):
            status.at(-1, RankState.SAVING)
            checkpoints.save(session, done)
        status.step(done, results[-1].loss, images_per_s)
        if progress:
            progress(images_per_s, done)
    status.at(-1, RankState.WAITING)
    session.worker.close()
    return _gathered(program, results, offset_s, device, rank)


def _checkpoints(options: RunOptions, program: Program) -> "Checkpoints | None":
    if not options.checkpoint:
        return None
    from executor.resume import Checkpoints  # torch's part of it takes a second to load

    return Checkpoints(options, program.graph)


def _gathered(
    program: Program, results: Sequence[StepResult], offset_s: float, device: Device, rank: int
) -> Measurement | None:
    """Bring what all ranks measured to rank 0."""
    mine = (
        [
            Measured(start_s=m.start_s + offset_s, end_s=m.end_s + offset_s, sent_bytes=m.sent_bytes)
            for m in (result.measured for result in results)
        ],
        [result.loss for result in results],
        device.peak_memory_bytes(),
    )
    rows: list[tuple[list[Measured], list[float], float]] | None = None
    if rank == 0:
        rows = [mine] * dist.get_world_size()
    dist.gather_object(mine, rows)
    if rows is None:
        return None
    measured, losses, peaks = zip(*rows, strict=True)
    return join(program, measured, np.array(losses), np.array(peaks))


def main(arguments: Sequence[str]) -> int:
    """Run as the process of one rank; returns its exit code."""

    def work(where: Place, status: RankStatus) -> None:
        options = read_options(Path(arguments[0]))
        plan = load_plan(Path(options.plan))
        measurement = run_rank(where, plan, program_of(plan), options, status)
        if measurement is not None:
            measurement.write(Path(options.out) / MEASUREMENT)

    return serve(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
