"""``orrery run`` as a rank that fails, at once or in its third step, as its first argument says; for the watchdogs."""

import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch

from executor.checkpoints import checkpoint
from executor.communication.reduction import Reducer
from executor.processes.diagnosis import Patience
from executor.processes.status_board import RankState
from executor.runtime.optimizers import _Sgd
from executor.training.worker import Worker
from executor.watchdog import rank_watchdog
from orrery.cli import app
from orrery.terminal.exit_codes import run_app

FOREVER_S, SAVE_S, FROM_STEP, GUILTY = 600, 3.0, 3, 1
now = {"step": 0}


def deed(name):
    """What the guilty rank does instead of its work; it writes down when."""
    Path(os.environ["ORRERY_TEST_DEED"]).write_text(str(time.monotonic()))
    if name == "starve":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**28,) * 2)
        torch.ones(2**31)
    elif name == "hang":
        ctypes.PyDLL(None).sleep(FOREVER_S)  # with the interpreter's lock
    else:
        time.sleep(FOREVER_S)


def replace(owner, method, name):
    """Let a method do the deed, from the third step on."""
    before = getattr(owner, method)

    def changed(*arguments, **options):
        if now["step"] >= FROM_STEP:
            deed(name)
        return before(*arguments, **options)

    setattr(owner, method, changed)


def step(self, number, before=Worker.step):
    now["step"] = number
    return before(self, number)


def of(self, state, before=Patience.of):
    """Less patience with checkpoints."""
    return SAVE_S if state == RankState.SAVING else before(self, state)


PLACES = {
    "starve": (_Sgd, "_update"),
    "hang": (_Sgd, "_update"),
    "hang in statistics": (Reducer, "sum"),
    "hang in a checkpoint": (checkpoint, "save_file"),
}

if __name__ == "__main__":
    Worker.step = step
    if sys.argv[1] == "hang in a checkpoint":
        Patience.of = of
    if sys.argv[1] == "lost":
        rank_watchdog._UNHEARD_S = 3.0
        if int(os.environ["RANK"]) == GUILTY:
            Path(os.environ["ORRERY_TEST_DEED"]).write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)
    rank = os.environ["RANK"]
    Path(f"pid-{rank}").write_text(str(os.getpid()))
    if int(rank) == GUILTY and sys.argv[1] in PLACES:
        replace(*PLACES[sys.argv[1]], sys.argv[1])
    sys.exit(run_app(app, sys.argv[2:]))
