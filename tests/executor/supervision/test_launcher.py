"""Limits of the system that are met before the first rank starts."""

import os
import resource
import subprocess
import sys
import threading

import pytest

from executor.supervision.launcher import LaunchSpec, launch

LIMITED = """
import os, resource, sys
from pathlib import Path
from executor.supervision.launcher import LaunchSpec, launch
resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
if os.getuid() == 0:
    os.setuid(1_234_567)  # root has no such limit
launch(LaunchSpec(module="no.module", job=None, processes=2, threads=1, folder=Path(sys.argv[1])))
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_NPROC"), reason="the system has no limit of processes")
def test_a_limit_of_processes_is_met_at_once(tmp_path):
    """Ranks that cannot start their threads end in many ways, or wait for one another; none is started."""
    run = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, timeout=60)

    assert run.stderr.splitlines()[-1] == "RuntimeError: can't start new thread"
    assert os.listdir(tmp_path) == []


def test_the_threads_that_were_tried_are_gone(tmp_path, monkeypatch):
    """Whether or not they could be started."""
    before, started = threading.active_count(), threading.Thread.start
    monkeypatch.setattr("executor.supervision.launcher.supervise", lambda *_, **__: None)
    spec = LaunchSpec(module="no.module", job=None, processes=2, threads=1, folder=tmp_path)

    launch(spec)
    assert threading.active_count() == before

    def start(thread):
        if threading.active_count() > before + 5:
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start"):
        launch(spec)
    assert threading.active_count() == before
