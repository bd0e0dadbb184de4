"""A process as one of its own children sees it: whether it lives, is stopped, or how it ended."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import time
from pathlib import Path

__all__ = ["WatchedProcess", "launcher_of"]

_BURIAL_S, _POLL_S = 1.0, 0.005
"""How long the system may take to write down how a process ended; between two looks."""
_STATE, _PARENT, _EXIT_CODE = 0, 1, 49
"""Places of /proc's ``stat`` after the name: proc_pid_stat(5), fields 3, 4 and 52."""
_GET_INFO, _EXIT = 0xC040FF0B, 1 << 3
"""PIDFD_GET_INFO and PIDFD_INFO_EXIT of linux/pidfd.h."""
_INFO = struct.Struct("=Q52xi")
"""The first 64 bytes of ``struct pidfd_info``: the mask, and last the exit code."""


class WatchedProcess:
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
        self._handle: int | None = None
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(pid)

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
        """Its exit code; None if its own parent took it away first and the system keeps none (Linux before 6.15)."""
        deadline_s = time.monotonic() + _BURIAL_S
        while (status := self._status()) is None and time.monotonic() < deadline_s:
            if self._handle is None and os.getppid() != self.pid:
                return None
            time.sleep(_POLL_S)
        return None if status is None else os.waitstatus_to_exitcode(status)

    def _status(self) -> int | None:
        """What its parent is told of its end, before or after it is told."""
        if _stat(self.pid, _STATE) == "Z" and (found := _stat(self.pid, _EXIT_CODE)):
            return int(found)
        if self._handle is None:
            return None
        info = bytearray(_INFO.pack(_EXIT, 0))
        try:
            fcntl.ioctl(self._handle, _GET_INFO, info)
        except OSError:
            return None
        mask, code = _INFO.unpack(info)
        return int(code) if mask & _EXIT else None


def launcher_of(pid: int) -> int:
    """The parent of a process; 0 if there is none."""
    return int(_stat(pid, _PARENT) or 0)


def _stat(pid: int, field: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        # The name, in brackets, may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[field]
    return ""
