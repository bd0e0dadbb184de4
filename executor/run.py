"""Runs of a plan by local processes: checked first, watched to their end, measured."""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from executor.data import load_data
from executor.devices import device_of
from executor.measurement import Measurement, read_measurement
from executor.options import RunOptions, write_options
from executor.places import free_port, local_environment
from executor.rank import MEASUREMENT, program_of
from executor.resume import Checkpoints
from executor.session import DTYPES, check_program
from executor.status import RankRow, StatusBoard
from executor.supervisor import supervise
from hwprofiles.errors import ConfigError
from planner.plan import Plan
from planner.plan_file import load_plan
from planner.program import Program

__all__ = ["Hosts", "Run", "run"]

Progress = Callable[[str, int, int], None] | None


class Hosts(Protocol):
    """Where ranks are started, if not here."""

    def command(self, rank: int, command: Sequence[str]) -> Sequence[str]:
        """The command that runs another on the host of a rank."""
        ...

    def environment(self, rank: int) -> Mapping[str, str]:
        """What the back end needs to know there."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """A plan that was run."""

    plan: Plan
    program: Program
    measurement: Measurement

    @property
    def images_per_s(self) -> float:
        """Samples a second, from the median iteration."""
        return self.plan.batch / self.measurement.iteration_s


def run(
    options: RunOptions,
    *,
    processes: int,
    hosts: Hosts | None = None,
    stall_s: float = 20.0,
    progress: Progress = None,
) -> Run:
    """Run a plan with one local process a rank.

    Args:
        options: Plan, data, optimizer and the rest.
        processes: Ranks to start; rank r is device r of the plan.
        hosts: Where they are started; here if None.
        stall_s: Silence after which a rank is taken to hang; longer than any task.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The plan needs more devices than processes, was made for another model, or asks for what is
            not here; the data or the checkpoint do not fit.
        InfeasiblePlanError: The plan does not fit in memory.
        RankFailure: A rank died, hung, ran out of memory or met a loss that is not finite.
    """
    if processes < 1:
        raise ConfigError(f"processes must be >= 1, got {processes}")
    plan = load_plan(Path(options.plan))
    program = program_of(plan)
    check_program(program, processes)
    _check(options, program, processes)
    threads = options.threads or max(len(os.sched_getaffinity(0)) // processes, 1)
    with tempfile.TemporaryDirectory(prefix="orrery-", dir=_shared_memory()) as folder:
        out = Path(options.out or folder)
        out.mkdir(parents=True, exist_ok=True)
        (out / MEASUREMENT).unlink(missing_ok=True)
        written = Path(folder) / "options.json"
        write_options(replace(options, threads=threads, out=str(out), plan=str(Path(options.plan).resolve())), written)
        command = [sys.executable, "-m", "executor.rank", str(written)]
        port = free_port()
        places = [local_environment(rank, processes, port, threads) for rank in range(processes)]
        commands: list[Sequence[str]] = [command] * processes
        if hosts is not None:
            places = [{**row, **hosts.environment(rank)} for rank, row in enumerate(places)]
            commands = [hosts.command(rank, command) for rank in range(processes)]
        supervise(
            commands,
            environments=places,
            board=StatusBoard.create(Path(folder) / "status", processes),
            stall_s=stall_s,
            progress=_reporter(progress, options.steps),
            task_name=program.name,
            log_folder=Path(options.out) / "log" if options.out else None,
        )
        if not (out / MEASUREMENT).exists():
            raise ConfigError(f"steps must be more than the checkpoint has behind it, got {options.steps}")
        return Run(plan=plan, program=program, measurement=read_measurement(out / MEASUREMENT))


def _check(options: RunOptions, program: Program, processes: int) -> None:
    """Find here what every rank would stumble over."""
    if options.device == "cuda":
        device_of("cuda", processes - 1)
    if not options.stand_in:
        dtype = DTYPES[program.graph.element_bytes]
        load_data(options.data, program.graph, seed=options.seed, dtype=dtype, device="cpu")
    if options.resume:
        Checkpoints(options, program.graph).latest_step()


def _shared_memory() -> str | None:
    """A folder that no disk is behind, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _reporter(progress: Progress, steps: int) -> Callable[[Sequence[RankRow]], None] | None:
    if progress is None:
        return None
    report = progress

    def show(rows: Sequence[RankRow]) -> None:
        done = min(row.step for row in rows)
        losses = [row.loss for row in rows if not math.isnan(row.loss)]
        label = "starting"
        if done > 0 and losses:
            label = f"loss {sum(losses):.4g}, {min(row.images_per_s for row in rows):.4g} images/s"
        report(label, max(done, 0), steps)

    return show
