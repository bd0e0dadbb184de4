"""One process of a run: ``python -m executor.rank OPTIONS`` with its place in the environment, as torchrun sets it."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from executor.clocks import clock_offset_s
from executor.devices import Device, device_of
from executor.launch import threads_of
from executor.measurement import Measurement, join
from executor.options import RunOptions, read_options
from executor.places import Place
from executor.rank_process import process_group, serve
from executor.recorder import Measured
from executor.resume import Checkpoints
from executor.session import check_program, open_session
from executor.status import RankState, RankStatus
from executor.worker import StepResult
from hwprofiles.catalogue import load_cluster
from hwprofiles.errors import ConfigError
from planner.models import load_model
from planner.plan import Plan, lower_plan
from planner.plan_file import load_plan
from planner.program import Program

__all__ = ["MEASUREMENT", "main", "run_rank"]

MEASUREMENT = "measured.npz"
"""What rank 0 writes into the run's folder."""


def program_of(plan: Plan) -> Program:
    """Lower a plan as it is run: collectives as activities, on its model and cluster.

    Raises:
        ConfigError: The plan was made for another model.
        InfeasiblePlanError: It does not fit in memory.
    """
    graph = load_model(plan.model, batch=plan.batch, element_bytes=plan.element_bytes)
    return lower_plan(plan, graph, load_cluster(plan.cluster))


def run_rank(where: Place, options: RunOptions, status: RankStatus) -> Measurement | None:
    """Train as one rank, with the process group that this opens and closes.

    Returns:
        What all ranks measured, on rank 0; elsewhere None.
    """
    torch.set_num_threads(threads_of(options.threads, where.ranks))
    device = device_of(options.device, where.local_rank)
    plan = load_plan(Path(options.plan))
    program = program_of(plan)
    check_program(program, where.ranks)
    with process_group(where, device):
        _check_same_plan(plan)
        return _train(program, plan, where.rank, options, device, status)


def _check_same_plan(plan: Plan) -> None:
    plans: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(plans, repr((plan.model_digest, sorted(plan.configurations.items(), key=repr))))
    for other, found in enumerate(plans):
        if found != plans[0]:
            raise ConfigError(f"plan must be the same on all ranks: that of rank {other} differs from that of rank 0")


def _train(
    program: Program, plan: Plan, rank: int, options: RunOptions, device: Device, status: RankStatus
) -> Measurement | None:
    checkpoints = Checkpoints(options, program.graph) if options.checkpoint else None
    first = checkpoints.latest_step() if checkpoints and options.resume else 0
    session = open_session(
        program, rank, options, reduced=plan.batch_norm == "reduced", device=device, status=status,
        steps=options.steps - first,
    )  # fmt: skip
    if checkpoints and first:
        checkpoints.load(session)
    offset_s = clock_offset_s(device.torch_device)
    results: list[StepResult] = []
    dist.barrier()
    for number in range(first, options.steps):
        begin = time.perf_counter()
        results.append(session.worker.step(number))
        taken_s = time.perf_counter() - begin
        status.step(number + 1, results[-1].loss, program.graph.batch / taken_s)
        last = number + 1 == options.steps
        if checkpoints and (last or (options.checkpoint_every and (number + 1) % options.checkpoint_every == 0)):
            status.at(-1, RankState.SAVING)
            checkpoints.save(session, number + 1)
    status.at(-1, RankState.WAITING)
    session.worker.close()
    return _gathered(program, results, offset_s, device, rank)


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
    if rows is None or not results:
        return None
    measured, losses, peaks = zip(*rows, strict=True)
    return join(program, measured, np.array(losses), np.array(peaks))


def main(arguments: Sequence[str]) -> int:
    """Run as the process of one rank; returns its exit code."""

    def work(where: Place, status: RankStatus) -> None:
        options = read_options(Path(arguments[0]))
        measurement = run_rank(where, options, status)
        if measurement is not None and options.out:
            Path(options.out).mkdir(parents=True, exist_ok=True)
            measurement.write(Path(options.out) / MEASUREMENT)

    return serve(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
