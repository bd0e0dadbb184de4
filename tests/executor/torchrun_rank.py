"""``orrery run`` as a rank that fails, at once or in its third step, as its first argument says."""

import ctypes
import dataclasses
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch

from executor.checkpoints import checkpoint
from executor.communication.reduction import Reducer
from executor.run import plan_run, rank_entry
from executor.runtime.optimizers import _Sgd
from executor.supervision import launcher, other_supervisors
from executor.supervision.diagnosis import Patience
from executor.supervision.rank_work import serve_job
from executor.supervision.status_board import RankState
from executor.training.worker import Worker
from orrery.cli import app
from orrery.terminal.exit_codes import run_app

CASE = "ORRERY_TEST_CASE"
"""Variable by which the supervisor tells its rank, which runs this file too, how to fail."""
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


def supervise_this(spec, before=launcher.launch, **options):
    """Start this file as the rank, which it then is, in place of the rank's own module."""
    os.environ[CASE] = sys.argv[1]
    return before(dataclasses.replace(spec, module="torchrun_rank"), **options)


if __name__ == "__main__":
    guilty = int(os.environ["RANK"]) == GUILTY
    if CASE not in os.environ:
        if sys.argv[1] == "lost":
            other_supervisors._UNHEARD_S = 3.0
            if guilty:
                Path(os.environ["ORRERY_TEST_DEED"]).write_text(str(time.monotonic()))
                os.kill(os.getpid(), signal.SIGKILL)
        Patience.of = of if sys.argv[1] == "hang in a checkpoint" else Patience.of
        plan_run.launch = supervise_this
        Path(f"supervisor-{os.environ['RANK']}").write_text(str(os.getpid()))
        sys.exit(run_app(app, sys.argv[2:]))
    Path(f"pid-{os.environ['RANK']}").write_text(str(os.getpid()))
    Worker.step = step
    case = os.environ[CASE]
    if guilty and case in PLACES:
        replace(*PLACES[case], case)
    serve_job(rank_entry._work)
