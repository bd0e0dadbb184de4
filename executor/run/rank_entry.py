"""One process of a run: ``python -m executor.run.rank_entry OPTIONS PROGRAM`` with its place in the environment."""

import hashlib
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from executor.measurement import MEASUREMENT, WARM_UP, AllocationMeter, Measurement, clock_offset_s, join
from executor.processes import RankEnvironment, RankState, RankStatus, local_ranks, process_group, serve, threads_of
from executor.program import Measured
from executor.runtime import ComputeDevice, RunOptions, device_of, read_options
from executor.training import open_session
from hwprofiles import ConfigError
from planner.lowering import Program

if TYPE_CHECKING:
    from executor.checkpoints import Checkpoints

__all__ = ["MEASUREMENT", "run_rank"]

_KEPT = 500
"""Steps whose tasks are kept: the last ones; of the others the loss."""


def run_rank(
    where: RankEnvironment,
    program: Program,
    options: RunOptions,
    status: RankStatus,
    *,
    reduced: bool,
    progress: Callable[[float, int], None] | None = None,
) -> Measurement | None:
    """Train as one rank, with the process group that this opens and closes.

    Args:
        where: Which rank.
        program: The same on all ranks.
        options: The rest; the plan file is not read.
        status: Where the rank says what it does.
        reduced: Whether batch normalisation takes its statistics over the whole batch.
        progress: Called after each step as ``progress(images_per_s, steps)``.

    Returns:
        What all ranks measured, on rank 0; elsewhere None.
    """
    torch.set_num_threads(threads_of(options.threads, local_ranks(where)))
    device = device_of(options.device, where.local_rank, local_ranks=local_ranks(where))
    with process_group(where, device):
        _check_same_program(program)
        return _train(program, where.rank, options, device, status, reduced, progress)


def _check_same_program(program: Program) -> None:
    """Machines may have files of their own."""
    digest = hashlib.sha256(program.graph.digest.encode())
    names = ("kind", "layer", "consumer", "micro_batch", "device", "peer", "region_low", "region_high", "size_bytes")
    for column in (getattr(program, name) for name in names):
        digest.update(np.ascontiguousarray(column).tobytes())
    digest.update(np.array(program.sync_order).tobytes())
    programs: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(programs, digest.hexdigest())
    for other, found in enumerate(programs):
        if found != programs[0]:
            raise ConfigError(f"plan must be the same on all ranks: that of rank {other} differs from that of rank 0")


def _train(
    program: Program,
    rank: int,
    options: RunOptions,
    device: ComputeDevice,
    status: RankStatus,
    reduced: bool,
    progress: Callable[[float, int], None] | None,
) -> Measurement | None:
    checkpoints = _checkpoints(options, program)
    first = checkpoints.latest_step() if checkpoints and options.resume else 0
    if first >= options.steps:
        raise ConfigError(f"steps must be more than the {first} that the checkpoint has done, got {options.steps}")
    meter = AllocationMeter(device) if options.memory else None
    session = open_session(
        program, rank, options, reduced=reduced, device=device, status=status, steps=options.steps - first,
    )  # fmt: skip
    notes: tuple[str, ...] = ()
    if checkpoints and first:
        notes = checkpoints.load(session)
    offset_s = clock_offset_s(device.torch_device)
    losses: list[float] = []
    kept: deque[tuple[Measured, bool]] = deque(maxlen=_KEPT)
    paused = False
    dist.barrier()
    status.step(first)
    for number in range(first, options.steps):
        begin = time.perf_counter()
        result = session.worker.step(number)
        if meter and number + 1 == min(first + WARM_UP, options.steps):
            meter.stop()
        losses.append(result.loss)
        kept.append((result.measured, paused))
        images_per_s = program.graph.batch / (time.perf_counter() - begin)
        done = number + 1
        due = done == options.steps or (options.checkpoint_every and done % options.checkpoint_every == 0)
        if checkpoints and due:
            session.worker.settle()
            status.at(-1, RankState.SAVING)
            checkpoints.save(session, done)
        paused = bool(checkpoints and due)
        status.step(done, losses[-1], images_per_s)
        if progress:
            progress(images_per_s, done)
    status.at(-1, RankState.WAITING)
    session.worker.close()
    allocated = meter.split(session) if meter else []
    return _gathered(program, losses, kept, offset_s, device, rank, notes, allocated)


def _checkpoints(options: RunOptions, program: Program) -> "Checkpoints | None":
    if not options.checkpoint:
        return None
    from executor.checkpoints import Checkpoints  # torch's part of it takes a second to load

    return Checkpoints(options, program.graph)


def _gathered(
    program: Program,
    losses: list[float],
    kept: Iterable[tuple[Measured, bool]],
    offset_s: float,
    device: ComputeDevice,
    rank: int,
    notes: tuple[str, ...],
    allocated: list[float],
) -> Measurement | None:
    """Bring what all ranks measured to rank 0."""
    measured, paused = zip(*kept, strict=True)
    mine = (
        [Measured(start_s=m.start_s + offset_s, end_s=m.end_s + offset_s, sent_bytes=m.sent_bytes) for m in measured],
        losses,
        device.peak_memory_bytes(),
        notes,
        allocated,
    )
    rows: list[tuple[list[Measured], list[float], float, tuple[str, ...], list[float]]] | None = None
    if rank == 0:
        rows = [mine] * dist.get_world_size()
    dist.gather_object(mine, rows)
    if rows is None:
        return None
    views, shares, peaks, told, kinds = zip(*rows, strict=True)
    notes = tuple(dict.fromkeys(note for row in told for note in row))
    return join(
        program, views, np.array(shares), np.array(peaks), allocated_bytes=np.array(kinds), paused=paused, notes=notes
    )


def _main(arguments: Sequence[str]) -> NoReturn:
    """Run as the process of one rank, which this ends."""

    def work(where: RankEnvironment, status: RankStatus) -> None:
        options = read_options(Path(arguments[0]))
        program, reduced = pickle.loads(Path(arguments[1]).read_bytes())
        measurement = run_rank(where, program, options, status, reduced=reduced)
        if measurement is not None:
            measurement.write(Path(options.out) / MEASUREMENT)

    serve(work)


if __name__ == "__main__":
    _main(sys.argv[1:])
