"""Failures of a run, each by really doing it: the reason is told, the last checkpoint stays, no process is left.

The cases run side by side, for most of their time is spent on starting and on waiting.
"""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from executor.checkpoints.resume import Checkpoints
from executor.data.load import load_data
from executor.run.plan_run import program_of, run_plan
from executor.runtime.boxes import whole_box
from executor.runtime.run_options import RunOptions
from executor.supervision.diagnosis import RankFailure
from groundwork.errors import ConfigError, OrreryError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import load_plan, save_plan

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"),
]
CLUSTER = "titanx-4"
FOREVER = 1_000_000
SAMPLES, BATCH = 96, 16
TOLD_S = 30
"""Within which a failure must have ended the run."""


class Marked:
    """Ranks that write down their process groups, and that can be found by their working directory."""

    def __init__(self, folder, program):
        self.folder, self.program = folder, program

    def command(self, rank, command):
        if self.program:
            command = [command[0], "-c", self.program, *command[4:]]
        return ["sh", "-c", f'cd "{self.folder}"; echo $$ > group-{rank}; exec "$@"', "sh", *command]

    def environment(self, rank):
        return {}

    def group(self, rank):
        return int((self.folder / f"group-{rank}").read_text())

    def left(self):
        """Processes that still live."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if path.readlink() == self.folder:
                    found.append(path.parent.name)
            except OSError:
                continue
        return found


@dataclass
class Outcome:
    """How a run ended, and how long after the deed, where there was one."""

    error: OrreryError | None
    told_s: float
    left: list[str]
    folder: Path

    @property
    def checkpoint(self):
        return self.folder / "checkpoint"


def undo(
    folder, processes, deed=None, *, steps=FOREVER, batch=BATCH, cluster=CLUSTER, devices=0, program="", **changes
):
    """Run until the deed, done to a rank after two steps, has its consequence."""
    folder.mkdir()
    plan = folder / "plan.json"
    graph, machines = load_model("lenet5", batch=batch), load_cluster(cluster).take(devices or processes)
    made = make_plan(graph, machines, strategy="data")
    save_plan(replace(made, request=replace(made.request, cluster=cluster)), plan)
    hosts, done_s = Marked(folder, program), []

    def progress(_, done, __):
        if deed and done >= 2 and not done_s:
            done_s.append(time.monotonic())
            deed(hosts.group(1))

    options = RunOptions(plan=str(plan), steps=steps, device="cpu", threads=1)
    changes = {name: value.format(folder=folder) if name == "checkpoint" else value for name, value in changes.items()}
    error = None
    try:
        run_plan(replace(options, **changes), processes=processes, hosts=hosts, progress=progress)
    except OrreryError as caught:
        error = caught
    return Outcome(error, time.monotonic() - done_s[0] if done_s else 0.0, hosts.left(), folder)


def kill(group):
    os.killpg(group, signal.SIGKILL)


def stop(group):
    os.killpg(group, signal.SIGSTOP)


STARVED = """
import resource
from executor.run.rank_entry import _work
from executor.supervision.rank_work import serve_job
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**31,) * 2)
serve_job(_work)
"""
"""A rank with 2 GiB from its start on."""
LARGE_BATCH = 2**16
"""The first convolution of LeNet-5 then gives 3 GB."""


def write_data(path, side=28):
    """Digits, one of which is so bright that its convolution overflows."""
    inputs = np.random.default_rng(0).normal(size=(SAMPLES, 1, side, side)).astype(np.float32)
    inputs[40] = 3e38
    np.savez(path, inputs=inputs, targets=np.arange(SAMPLES) % 10)
    return str(path)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, warm_ranks):
    """All runs, by name."""
    base = tmp_path_factory.mktemp("failures")
    bright, wide = write_data(base / "bright.npz"), write_data(base / "wide.npz", 27)
    saved = {"checkpoint": "{folder}/checkpoint", "checkpoint_every": 1}
    cases = {
        "stopped": partial(undo, processes=3, batch=24, deed=stop, **saved),
        "killed": partial(undo, processes=2, deed=kill, **saved),
        "starved": partial(
            undo, processes=2, devices=1, batch=LARGE_BATCH, cluster="dgx-h100", program=STARVED, **saved
        ),
        "bright": partial(undo, processes=2, steps=SAMPLES // BATCH, data=bright, **saved),
        "wide": partial(undo, processes=1, data=wide),
        "nothing to resume": partial(undo, processes=1, resume=True, checkpoint="{folder}/checkpoint"),
        "no cuda": partial(undo, processes=1, device="cuda"),
    }
    with ThreadPoolExecutor(3) as pool:
        runs = {name: pool.submit(case, base / name.replace(" ", "-")) for name, case in cases.items()}

    return {name: future.result() for name, future in runs.items()}


def check_failure(outcome, rank, reason):
    """A failed rank, in time, with nothing left."""
    error = outcome.error
    assert isinstance(error, RankFailure)
    assert error.exit_code == 1
    assert error.rank == rank
    assert reason in error.reason
    assert "\n" not in str(error)
    assert outcome.told_s < TOLD_S
    assert outcome.left == []


def checkpoint_of(outcome):
    """Steps behind the last checkpoint, which can be read and is of a step that was done."""
    plan = load_plan(outcome.folder / "plan.json")
    options = RunOptions(plan="", checkpoint=str(outcome.checkpoint))
    step = Checkpoints(options, program_of(plan).graph).latest_step()
    assert step <= outcome.error.step + 1
    return step


def check_refusal(outcome, words):
    """Bad input that only the ranks see is the user's mistake, not a failed rank."""
    assert type(outcome.error) is ConfigError
    assert words in str(outcome.error)
    assert "\n" not in str(outcome.error)
    assert outcome.left == []


def test_a_killed_rank(outcomes):
    check_failure(outcomes["killed"], 1, "killed by signal 9")
    assert checkpoint_of(outcomes["killed"]) >= 2


def test_a_stopped_rank_is_told_by_default_within_30_s(outcomes):
    outcome = outcomes["stopped"]
    check_failure(outcome, 1, "hangs: a signal has stopped it")
    assert checkpoint_of(outcome) >= 2
    assert outcome.told_s > 15  # so the default is what was measured


def test_a_rank_out_of_memory(outcomes):
    """Its task is named; the other rank, which has nothing to do in this plan, is ended as well."""
    check_failure(outcomes["starved"], 0, "out of memory: ")
    assert "step 0, task 0 (conv1 forward [0])" in str(outcomes["starved"].error)


def test_a_loss_that_is_not_finite(outcomes):
    """Step and layer are named; the checkpoint is of the step before."""
    outcome = outcomes["bright"]
    plan = load_plan(outcome.folder / "plan.json")
    graph = program_of(plan).graph
    data = load_data(str(outcome.folder.parent / "bright.npz"), graph, seed=0, dtype=torch.float32, device="cpu")
    box = whole_box((BATCH, 1, 28, 28))
    step = next(step for step in range(SAMPLES // BATCH) if data.inputs(step, box).max() > 1e38)
    sample = int(data.inputs(step, box).amax((1, 2, 3)).argmax())

    reason = f"loss is not finite at step {step}: conv1 is the first layer with such outputs"
    check_failure(outcome, sample // (BATCH // 2), reason)
    assert checkpoint_of(outcome) == step
    assert outcome.error.step == step


def test_data_of_the_wrong_shape(outcomes):
    check_refusal(outcomes["wide"], "samples must be 1 x 28 x 28 as lenet5 reads them, got 1 x 27 x 27")


def test_no_checkpoint_to_resume(outcomes):
    check_refusal(outcomes["nothing to resume"], "holds no checkpoint")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_no_cuda(outcomes):
    check_refusal(outcomes["no cuda"], "device cuda must have a GPU for each local rank")


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.json"
    made = make_plan(load_model("lenet5", batch=16), load_cluster(CLUSTER), strategy="data")
    save_plan(replace(made, request=replace(made.request, cluster=CLUSTER)), path)
    return path


def test_a_plan_for_more_devices_than_processes(plan_file):
    with pytest.raises(ConfigError, match="processes must be at least the plan's 4 devices, got 3"):
        run_plan(RunOptions(plan=str(plan_file)), processes=3)


def test_a_plan_of_another_model(plan_file):
    digest = load_plan(plan_file).model_digest
    plan_file.write_text(plan_file.read_text().replace(digest, digest[::-1]))

    with pytest.raises(ConfigError, match="plan was made for another lenet5"):
        run_plan(RunOptions(plan=str(plan_file)), processes=4)
