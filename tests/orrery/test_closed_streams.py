"""Closed or full standard streams, as cron and full disks have them, change nothing but what can be read."""

import json
import subprocess
import sys

import pytest

PLAN = "plan lenet5 --cluster titanx-4 --batch 8 --strategy data --out plan.json"


def ended(words, streams, folder):
    """Run a command with redirected streams; returns its exit code, and what could be read of it."""
    line = f"exec {sys.executable} -m orrery {words} {streams}"
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("streams", ["2>&-", "<&- >&- 2>&-"])
def test_what_would_be_printed_is_discarded(tmp_path, streams):
    """A table would else go to a stream that is none, or into the plan, whose file takes the closed stream's number."""
    code, printed, said = ended(PLAN, streams, tmp_path)

    assert (code, said) == (0, "")
    assert bool(printed) == (streams == "2>&-")
    assert json.loads((tmp_path / "plan.json").read_text())["strategy"] == "data"


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full"])
def test_the_exit_code_says_what_cannot_be_printed(tmp_path, streams):
    assert ended("plam", streams, tmp_path) == (2, "", "")
