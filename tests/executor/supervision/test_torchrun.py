"""Failures under torchrun, each by really doing it: the run ends in time, one line tells, no process is left.

The cases run side by side, for most of their time is spent on starting and on waiting.
"""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from ports import free_port
from working_folders import at_work_in

from executor.checkpoints.resume import Checkpoints
from executor.run.plan_run import program_of
from executor.runtime.run_options import RunOptions
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
]
CLUSTER, STALL_S, FOREVER = "titanx-4", 3.0, "1000000"
DEED, FAILING_RANK = "ORRERY_TEST_DEED", str(Path(__file__).parents[1] / "torchrun_rank.py")
TOLD_S = 30
"""Within which a failure must have ended the run."""
WAIT_S = 100
"""For what must come, on a busy machine."""


@dataclass
class Outcome:
    """How a run ended, and how long after the deed."""

    codes: list[int]
    errors: list[str]
    told_s: float
    left: list[int]
    folder: Path

    @property
    def lines(self):
        """What the ranks said, on each machine; torchrun says more."""
        return [[line for line in text.splitlines() if line.startswith("orrery: ")] for text in self.errors]


def pid_of(folder, rank, what="pid"):
    """The process of a rank or its supervisor, which has written it down."""
    pid = int((folder / f"{what}-{rank}").read_text())
    assert pid in at_work_in(folder)
    return pid


def plan_of(folder, model, **options):
    """A plan for two replicas."""
    graph, machines = load_model(model, batch=4), load_cluster(CLUSTER).take(2)
    plan = make_plan(graph, machines, strategy="data", **options)
    save_plan(replace(plan, request=replace(plan.request, cluster=CLUSTER)), folder / "plan.json")


def undo(folder, name="nothing", deed=None, *, python=sys.executable, machines=1, model="lenet5", **options):
    """Run until the deed, done to a rank after two steps or by itself, has its consequence."""
    folder.mkdir()
    plan_of(folder, model, **options)
    checkpoint, done = folder / "checkpoint", folder / "done"
    words = ["run", str(folder / "plan.json"), "--steps", FOREVER, "--stall-timeout", str(STALL_S), "--device", "cpu"]
    words += ["--threads", "1", "--checkpoint", str(checkpoint), "--checkpoint-every", "1"]
    start = [python, "-m", "torch.distributed.run", "--nnodes", str(machines)]
    start += ["--nproc-per-node", str(2 // machines), "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    paths = ":".join(str(Path(__file__).parents[level]) for level in (3, 1))
    environment = {**os.environ, DEED: str(done), "PYTHONPATH": paths}
    starts = [
        subprocess.Popen(
            [*start, "--node-rank", str(machine), FAILING_RANK, name, *words],
            env=environment,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for machine in range(machines)
    ]
    if deed:
        wait_for_step(checkpoint, 2, starts)
        deed(folder)
        done.write_text(str(time.monotonic()))
    with ThreadPoolExecutor(len(starts)) as pool:
        errors = list(pool.map(lambda one: one.communicate(timeout=WAIT_S)[1], starts))
    told_s = time.monotonic() - float(done.read_text())
    return Outcome([one.returncode for one in starts], errors, told_s, at_work_in(folder), folder)


def wait_for_step(checkpoint, step, starts):
    """Until so many steps have been saved."""
    deadline_s = time.monotonic() + WAIT_S
    while not (checkpoint / "latest").exists() or saved_step(checkpoint) < step:
        assert all(one.poll() is None for one in starts)
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def saved_step(checkpoint):
    return int((checkpoint / "latest").read_text().split()[0].split("-")[1])


def stop_rank_1(folder):
    os.kill(pid_of(folder, 1), signal.SIGSTOP)


def stop_rank_0_and_its_supervisor(folder):
    for what in ("supervisor", "pid"):
        os.kill(pid_of(folder, 0, what), signal.SIGSTOP)


def terminate_supervisor_1(folder):
    os.kill(pid_of(folder, 1, "supervisor"), signal.SIGTERM)


def kill_supervisor_1(folder):
    os.kill(pid_of(folder, 1, "supervisor"), signal.SIGKILL)


def kill_rank_1(folder):
    os.kill(pid_of(folder, 1), signal.SIGKILL)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, warm_programs):
    """All runs, by name; the first by interpreters that import all by themselves."""
    base = tmp_path_factory.mktemp("torchrun")
    warm = partial(undo, python=str(warm_programs / "python"))
    cases = {
        "stopped": partial(undo, deed=stop_rank_1, machines=2),
        "unheard": partial(warm, deed=stop_rank_0_and_its_supervisor),
        "killed": partial(warm, deed=kill_rank_1),
        "supervisor killed": partial(warm, deed=kill_supervisor_1),
        "terminated": partial(warm, deed=terminate_supervisor_1),
        "hang": partial(warm, "hang"),
        "starve": partial(warm, "starve"),
        "statistics": partial(warm, "hang in statistics", model="resnet-cifar:depth=8", batch_norm="reduced"),
        "lost": partial(warm, "lost", machines=2),
        "checkpoint": partial(warm, "hang in a checkpoint"),
    }
    with ThreadPoolExecutor(3) as pool:
        runs = {name: pool.submit(case.func, base / name, *case.args, **case.keywords) for name, case in cases.items()}
    return {name: future.result() for name, future in runs.items()}


def check(outcome, pattern):
    """One line on each machine, exit code 1, in time, nothing left, and a checkpoint that can be read."""
    assert all(code == 1 for code in outcome.codes), outcome.errors
    for lines, error in zip(outcome.lines, outcome.errors, strict=True):
        assert len(lines) == 1, error
        assert re.fullmatch(f"orrery: {pattern}", lines[0]), lines
    assert outcome.told_s < TOLD_S
    assert outcome.left == []
    plan = load_plan(outcome.folder / "plan.json")
    options = RunOptions(plan="", checkpoint=str(outcome.folder / "checkpoint"))
    assert Checkpoints(options, program_of(plan).graph).latest_step() >= 2


TASK = r"step \d+, task \d+ \(.+\)"


LINES = {
    # nobody else there could kill it, and torchrun's request to end does not reach it
    "stopped": r"rank 1, step \d+.*: hangs: a signal has stopped it for \d+ s",
    # who judges the others is judged by them
    "unheard": r"rank 0, .*: hangs: its process and its supervisor have been silent for \d+ s",
    "terminated": r"rank 1, step \d+.*: was requested to end",
    "supervisor killed": r"rank 1, .*: hangs: its process and its supervisor have been silent for \d+ s",
    "killed": r"rank 1, step \d+.*: killed by signal 9, which the system also sends when memory .*",
    # with the interpreter's lock
    "hang": r"rank 1, step 3, task \d+ \(.* update.*\): hangs: no progress for \d+ s while computing; if .*",
    "starve": rf"rank 1, {TASK}: out of memory: .*",
    # all wait: one of them is named, and what for
    "statistics": rf"rank [01], {TASK}: hangs: has waited \d+ s for a message or a collective; check .*",
}


@pytest.mark.parametrize("name", LINES)
def test_the_line_says_who_and_why(outcomes, name):
    check(outcomes[name], LINES[name])


def test_a_checkpoint_that_is_never_whole(outcomes):
    """The one before it stays."""
    check(outcomes["checkpoint"], r"rank [01], step \d+: hangs: no progress for \d+ s while saving")
    assert saved_step(outcomes["checkpoint"].folder / "checkpoint") == 3


def test_a_rank_that_is_lost_before_its_first_heartbeat(outcomes):
    """The torchrun of its machine ends at once; the other machine is told by its own supervisor."""
    outcome = outcomes["lost"]

    assert outcome.codes == [1, 1]
    assert outcome.lines == [["orrery: rank 1, before the first step: hangs: no progress for 3 s while starting"], []]
    assert outcome.told_s < TOLD_S
    assert outcome.left == []
