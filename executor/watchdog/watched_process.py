"""A process as one of its own children sees it: whether it runs, is stopped, or how it ended."""

import contextlib
import fcntl
import os
import select
import signal
import struct
import time
from pathlib import Path

import psutil

_EXIT_CODE_S, _POLL_S = 1.0, 0.005
"""Time that the system may take to record how a process ended; time between two looks."""
_EXIT_CODE = 49
"""Index in /proc's ``stat``, counted after the name, of the exit status: proc_pid_stat(5), field 52."""
_GET_INFO, _EXIT = 0xC040FF0B, 1 << 3
"""PIDFD_GET_INFO and PIDFD_INFO_EXIT of linux/pidfd.h."""
_INFO = struct.Struct("=Q52xi")
"""First 64 bytes of ``struct pidfd_info``: the mask, and last the exit status."""


class WatchedProcess:
    """Parent of this process."""

    def __init__(self, pid: int, *, alive: int, orders: int) -> None:
        """Open a handle to the process, which must still run.

        Args:
            pid: Id of the process.
            alive: Read end of a pipe that closes with the process.
            orders: Write end of a pipe; a thread of the process at its other end ends the process when something
                arrives.
        """
        self.pid, self._alive, self._orders = pid, alive, orders
        self.ended = False
        self.code: int | None = None
        self._handle: int | None = None
        with contextlib.suppress(OSError):
            self._handle = os.pidfd_open(pid)

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the process, at most ``seconds``; return whether it has ended."""
        if self.ended:
            time.sleep(seconds)
        elif select.select([self._alive], [], [], seconds)[0] or os.getppid() != self.pid:
            self.code = self._exit_code()
            self.ended = True
        return self.ended

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped the process."""
        return not self.ended and _state(self.pid) == psutil.STATUS_STOPPED

    def end(self, grace_s: float) -> None:
        """Let the process end by itself with exit code 1, and kill it if it does not within ``grace_s`` seconds."""
        with contextlib.suppress(OSError):
            os.write(self._orders, b"!")
        if self.ended or self.wait(0.0 if self.is_stopped() else grace_s):
            return
        if os.getppid() == self.pid:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(grace_s)

    def _exit_code(self) -> int | None:
        """Return the exit code; None if its parent reaped it first and the system keeps none (Linux before 6.15)."""
        deadline_s = time.monotonic() + _EXIT_CODE_S
        while (status := self._status()) is None and time.monotonic() < deadline_s:
            if self._handle is None and os.getppid() != self.pid:
                return None
            time.sleep(_POLL_S)
        return None if status is None else os.waitstatus_to_exitcode(status)

    def _status(self) -> int | None:
        """Return the exit status as ``wait`` reports it to the parent, before or after the parent has called it.

        ``psutil`` reports exit codes of child processes alone, so this reads /proc and the process's handle.
        """
        if _state(self.pid) == psutil.STATUS_ZOMBIE and (status := _stat_field(self.pid, _EXIT_CODE)):
            return int(status)
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
    """Return the parent of a process; 0 if there is none."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).ppid()
    return 0


def _state(pid: int) -> str:
    """Return the state of a process, as ``psutil`` names it; empty if there is no such process."""
    with contextlib.suppress(psutil.Error):
        return str(psutil.Process(pid).status())
    return ""


def _stat_field(pid: int, field: int) -> str:
    """Return a field of /proc's ``stat``, counted after the name of the process; empty if there is none."""
    with contextlib.suppress(OSError, IndexError):
        # The name, in brackets, may contain anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[field]
    return ""
