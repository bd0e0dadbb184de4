"""Lifeline of a rank: a pipe whose other end its supervisor holds, so that no rank outlives its supervisor.

Every rank begins here: ``python -m executor.supervision.lifeline MODULE ARGUMENT...``.
"""

import fcntl
import os
import runpy
import select
import signal
import sys
from contextlib import suppress
from threading import Thread

LIFELINE_VARIABLE = "ORRERY_LIFELINE"
"""Environment variable with the descriptor of the pipe."""


def kill_with_supervisor(lifeline: int, group: int) -> None:
    """Let the system kill a process group as soon as its supervisor has ended, in whatever way.

    The supervisor calls it as soon as the group is there, and the group's first process once more, as the supervisor
    may have ended in between.

    That needs nothing of the group: it may still start, be stopped, or hold the interpreter's lock.  Where the system
    cannot (it is not Linux) or may not (the first process of a namespace), ``end_with_supervisor`` still does.

    Args:
        lifeline: Read end of the group's own pipe, which the group has inherited.
        group: Id of the process group.

    Source:
        Linux, fcntl(2), "Managing signals": a pipe signals its owner when its other end is closed.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -group)
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def end_with_supervisor() -> None:
    """End this process, and all of its process group, as soon as its supervisor has ended, in whatever way.

    Call it first of all.  The end of a pipe shows the supervisor's end, so this also works behind wrappers such as
    ``ip netns exec`` or ``unshare --pid``, where the parent process is another or cannot be seen.  Nothing happens
    where no supervisor started the process.
    """
    if (variable := os.environ.pop(LIFELINE_VARIABLE, None)) is not None:
        lifeline = int(variable)
        # The supervisor may have ended before it could say so itself; imports may then keep a thread waiting for long.
        kill_with_supervisor(lifeline, os.getpgrp())
        if select.select([lifeline], [], [], 0)[0]:
            _end_after(lifeline)
        Thread(target=_end_after, args=(lifeline,), name="lifeline", daemon=True).start()


def _end_after(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    # The supervisor made the group for this rank alone: wrappers and child processes end too.  Zero is the own group,
    # whatever its id in this process namespace.
    os.kill(0, signal.SIGKILL)
    # The first process of a namespace is not killed by its own signals.
    os._exit(1)


if __name__ == "__main__":
    end_with_supervisor()  # before the imports of the module, which take a second
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
