"""A process as one of its own children sees it: whether it lives, is stopped, or how it ended."""

import contextlib
import os
import select
import signal
import time
from pathlib import Path

__all__ = ["GuardedProcess", "launcher_of"]

_BURIAL_S, _POLL_S = 1.0, 0.005
"""How long the system may take to write down how a process ended; between two looks."""
_STATE, _PARENT, _EXIT_CODE = 0, 1, 49
"""Places of /proc's ``stat`` after the name: proc_pid_stat(5), fields 3, 4 and 52."""


class GuardedProcess:
    """The parent of this process.

    Args:
        pid: Its number.
        alive: Read end of a pipe that closes with it.
        orders: Write end of a pipe at whose other end a thread of it ends it.
    """

    def __init__(self, pid: int, *, alive: int, orders: int) -> None:
        self.pid, self._alive, self._orders = pid, alive, orders
        self.ended = False
        self.code: int | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for its end, for so long; returns whether it has ended."""
        if self.ended:
            time.sleep(seconds)
        elif select.select([self._alive], [], [], seconds)[0] or os.getppid() != self.pid:
            self.code = self._burial()
            self.ended = True
        return self.ended

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""
        return not self.ended and _stat(self.pid, _STATE) == "T"

    def end(self, grace_s: float) -> None:
        """Let it end by itself with exit code 1, and kill it if it does not within so long."""
        with contextlib.suppress(OSError):
            os.write(self._orders, b"!")
        if self.ended or self.wait(0.0 if self.is_stopped() else grace_s):
            return
        if os.getppid() == self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(grace_s)

    def _burial(self) -> int | None:
        """Its exit code, while its own parent has not taken it away; None if that was first."""
        deadline_s = time.monotonic() + _BURIAL_S
        while os.getppid() == self.pid and time.monotonic() < deadline_s:
            if _stat(self.pid, _STATE) == "Z":
                break
            time.sleep(_POLL_S)
        code = _stat(self.pid, _EXIT_CODE) if _stat(self.pid, _STATE) == "Z" else ""
        return os.waitstatus_to_exitcode(int(code)) if code else None


def launcher_of(pid: int) -> int:
    """The parent of a process; 0 if there is none."""
    return int(_stat(pid, _PARENT) or 0)


def _stat(pid: int, field: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        # The name, in brackets, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[field]
    return ""
