"""How a process ended, as its child sees it, whether or not its own parent has taken it away."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(30)

FAMILY = """
import os, signal, sys
from executor.watchdog.watched_process import WatchedProcess

buried_first, end = sys.argv[1] == "buried", sys.argv[2]
(seen, go), (alive, held), (told, telling) = os.pipe(), os.pipe(), os.pipe()
parent = os.fork()
if parent == 0:
    watched = WatchedProcess(os.getpid(), alive=alive, orders=-1)
    if os.fork() == 0:
        os.close(held)
        os.close(go)
        os.read(seen, 1)
        assert watched.wait(10.0)
        print(watched.code, flush=True)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL) if end == "killed" else os._exit(3)
os.close(held)
os.close(telling)
if buried_first:
    os.waitpid(parent, 0)
    os.write(go, b"!")
else:
    os.waitid(os.P_PID, parent, os.WEXITED | os.WNOWAIT)
    os.write(go, b"!")
os.read(told, 1)  # until the child has ended
"""
"""The child looks once its parent has ended, or has been taken away too; the one that takes it away waits for it."""


def is_new():
    """Whether the system keeps how a process ended for those that hold it."""
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1])) >= (6, 15)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("end", "code"), [("killed", "-9"), ("exits", "3")])
@pytest.mark.parametrize("when", ["ended", "buried"])
def test_how_a_parent_ended_is_known(when, end, code):
    if when == "buried" and not is_new():
        pytest.skip("the system keeps no exit codes of processes that are taken away: Linux before 6.15")
    run = subprocess.run([sys.executable, "-c", FAMILY, when, end], capture_output=True, text=True, timeout=20)
    assert run.stderr == ""
    assert run.stdout.split() == [code]
