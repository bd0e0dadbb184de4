"""Processes that others start, where a signal to all of a group kills the one that tracks their resources, too."""

import subprocess
import sys

import pytest

AGAIN = """
import os, signal
from multiprocessing import resource_tracker

{use}

def killed():
    pid = resource_tracker._resource_tracker._pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

if __name__ == "__main__":
    use()
    killed()
    use()
"""
"""A program that starts processes, and starts others when the tracker of multiprocessing has died."""
USES = {
    "workbench": """
from pathlib import Path
from orrery.workbench.processes import run_once

def use():
    print(run_once(Path("."), len, "abc"))
""",
    "sweep": """
from studies.sweep.workers import compute_in_processes

def use():
    print(*[result for _, result in compute_in_processes(["abc"], processes=1, evaluate=len, died=len)])
""",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", USES)
def test_a_killed_tracker_is_not_spoken_of(tmp_path, name):
    program = tmp_path / "program.py"
    program.write_text(AGAIN.format(use=USES[name]))
    ended = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n3\n", "")


@pytest.mark.timeout(60)
def test_a_script_that_starts_processes_whenever_it_is_loaded_is_told_so(tmp_path):
    """Its processes load it again, and would start others; each point was tried, in vain, by a process of its own."""
    program = tmp_path / "program.py"
    program.write_text(f"{USES['sweep']}\nuse()\n")
    ended = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "must do so under: if __name__ == '__main__'" in ended.stderr.splitlines()[-1]
