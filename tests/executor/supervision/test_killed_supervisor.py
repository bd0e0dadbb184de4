"""The promise that a killed run leaves no process, and after the next run no folder, kept at several moments."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from working_folders import at_work_in

from executor.supervision import scratch_folders
from executor.supervision.scratch_folders import scratch_folder
from executor.supervision.status_board import StatusBoard
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc"),
]
CLUSTER = "titanx-4"
WAIT_S = 60
"""For what must come, on a busy machine."""
MOST_WORK_S = 0.3
"""Processor time that a rank gets from just before the kill, on a busy machine, too; its imports take longer."""

SUPERVISOR = """
import sys
from pathlib import Path
from executor.supervision import scratch_folders
from executor.run.plan_run import run_plan
from executor.runtime.run_options import RunOptions
scratch_folders._MEMORY = Path(sys.argv[2])
run_plan(RunOptions(plan=sys.argv[1], steps=1_000_000, device="cpu", threads=1))
"""


def until(met):
    """Wait, and return what the condition returns."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := met()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return found


def processor_time_s(pid):
    """Processor time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def adopting():
    """Let this process be the parent of all below that lose theirs, so that it hears how they ended."""
    libc, was = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(37, ctypes.byref(was))  # PR_GET_CHILD_SUBREAPER
    libc.prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    yield
    libc.prctl(36, was.value)


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """The folder in which folders of jobs are made."""
    folder = tmp_path / "memory"
    folder.mkdir()
    monkeypatch.setattr(scratch_folders, "_MEMORY", folder)
    return folder


def board_of(memory):
    """The status board of the only job, None before it is there."""
    path = next(memory.glob("*/status"), None)
    return path and StatusBoard.open(path)


MOMENTS = {
    "imports": lambda folder, memory: len(at_work_in(folder)) > 2,
    "steps": lambda folder, memory: (board := board_of(memory)) and min(row.step for row in board.rows()) >= 1,
}


@pytest.mark.usefixtures("adopting")
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_leaves_nothing(tmp_path, memory, moment):
    """The system kills its ranks, whatever they do; its folder goes with the next job, whose own is not touched."""
    made = make_plan(load_model("lenet5", batch=8), load_cluster(CLUSTER).take(2), strategy="data")
    save_plan(replace(made, request=replace(made.request, cluster=CLUSTER)), tmp_path / "plan.json")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", SUPERVISOR, "plan.json", str(memory)]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    try:
        until(lambda: process.poll() is not None or MOMENTS[moment](tmp_path, memory))
        assert process.poll() is None
        ranks = [pid for pid in at_work_in(tmp_path) if pid != process.pid]
        begun = [row.started_s > 0 for row in board_of(memory).rows()]
        worked_s = {pid: processor_time_s(pid) for pid in ranks}
    finally:
        process.kill()
        process.wait()
    ended = {pid: os.wait4(pid, 0) for pid in ranks}
    until(lambda: not at_work_in(tmp_path))

    for pid, (_, status, used) in ended.items():
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        assert used.ru_utime + used.ru_stime - worked_s[pid] < MOST_WORK_S
    assert begun == [moment == "steps"] * 2
    assert len(list(memory.iterdir())) == 1
    with scratch_folder() as other, scratch_folder() as folder:
        assert set(memory.iterdir()) == {other, folder}
    assert list(memory.iterdir()) == []


def test_a_folder_that_another_job_removes_before_it_is_locked_is_made_again(memory, monkeypatch):
    """For a moment it looks like one that was left."""
    lock, removed = scratch_folders._lock, []

    def late(folder):
        if not removed:
            removed.append(folder)
            folder.rmdir()
        return lock(folder)

    monkeypatch.setattr(scratch_folders, "_lock", late)
    with scratch_folder() as folder:
        assert [folder] == list(memory.iterdir()) != removed
