"""Ranks as processes of the system: started in process groups of their own, read from, checked, and ended."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from executor.supervision.lifeline import LIFELINE_VARIABLE, kill_with_supervisor

TERMINATE_S = 2.0
"""Time between SIGTERM and SIGKILL."""
VANISH_S = 1.0
"""Time allowed for killed processes to leave the table of processes."""
POLL_S = 0.01
TAIL_BYTES = 8192
"""Last bytes of standard error that are kept for the diagnosis."""
LOG_BYTES = 64 * 2**20
"""First bytes of the output that are written to a log."""
_PIPE_BYTES = 2**20
"""Size of a read from a pipe: more than a pipe holds, so that one read takes all."""
_SHELL_SIGNAL = 128
"""Number that a shell adds to the signal that ended its child, for its own exit code."""


class RankProcess:
    """Process of one rank: its command in a process group of its own, with its output kept from the terminal."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, log: Path | None) -> None:
        """Start the command.

        Args:
            command: Program and arguments, such as ``ip netns exec host-0 python ...``.
            environment: Its whole environment, but for the pipe that shows it the end of this process.
            log: File for the first 64 MiB that it prints; its directory exists.

        Raises:
            OSError: The command cannot be started or the log not be written.
        """
        read, self._lifeline = os.pipe()
        try:
            # A group, not a session: the system then wakes a stopped rank whose supervisor is gone, and ends it.
            self._process = subprocess.Popen(
                command,
                env={**environment, LIFELINE_VARIABLE: str(read)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                process_group=0,
                pass_fds=(read,),
            )
        except OSError:
            os.close(self._lifeline)
            raise
        else:
            kill_with_supervisor(read, self._process.pid)
        finally:
            os.close(read)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._outputs = (self._process.stdout, self._process.stderr)
        for output in self._outputs:
            os.set_blocking(output.fileno(), False)
        self._tail = b""
        self._log, self._log_left_bytes = log, LOG_BYTES

    def drain(self) -> None:
        """Read what the rank has printed, so that it never waits for a reader."""
        out, error = (output.read(_PIPE_BYTES) or b"" for output in self._outputs)
        self._tail = (self._tail + error)[-TAIL_BYTES:]
        text = (out + error)[: self._log_left_bytes]
        if self._log is not None and text:
            self._log_left_bytes -= len(text)
            with self._log.open("ab") as file:
                file.write(text)

    def error_lines(self) -> list[str]:
        """Return the last lines of its standard error that are not empty."""
        self.drain()
        return [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]

    def exit_code(self) -> int | None:
        """Return its exit code, minus the number of a signal that ended it, None while it runs."""
        # Not reaped: while the dead process keeps its id, no other process group can get the same id.
        result = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if result is None:
            return None
        if result.si_code != os.CLD_EXITED:
            return -result.si_status
        ended_by = result.si_status - _SHELL_SIGNAL
        return -ended_by if ended_by in signal.valid_signals() else result.si_status

    def is_stopped(self) -> bool:
        """Return whether a signal has stopped a process of its group."""
        return psutil.STATUS_STOPPED in _states(self._process.pid)

    def end(self, *, kill: bool) -> None:
        """Tell the whole group to end, or kill it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL if kill else signal.SIGTERM)
            os.killpg(self._process.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Wait until the group, which has been killed, is gone."""
        # A process that is stuck in the kernel ends when the kernel lets it; nothing more can be done.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(VANISH_S)
        deadline_s = time.monotonic() + VANISH_S
        while _states(self._process.pid) - {psutil.STATUS_ZOMBIE} and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        self.drain()
        for output in self._outputs:
            output.close()
        os.close(self._lifeline)


def end_all(processes: Sequence[RankProcess]) -> None:
    """End every process: send SIGTERM to those that run, kill what is left after 2 s."""
    for process in processes:
        if process.exit_code() is None:
            process.end(kill=False)
    deadline_s = time.monotonic() + TERMINATE_S
    while any(process.exit_code() is None for process in processes) and time.monotonic() < deadline_s:
        for process in processes:
            process.drain()
        time.sleep(POLL_S)
    # All groups are killed before the first one is waited for.
    for process in processes:
        process.end(kill=True)
    for process in processes:
        process.remove()


def _states(group: int) -> set[str]:
    """Return the states, as ``psutil`` names them, of the members of a process group."""
    states = set[str]()
    for pid in psutil.pids():
        # A process may end between two of these calls.
        with contextlib.suppress(OSError, psutil.Error):
            if os.getpgid(pid) == group:
                states.add(psutil.Process(pid).status())
    return states


def out_of_memory_kills(groups: Path = Path("/proc/self/cgroup"), tree: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processes of this one's control group the system has killed because memory ran out.

    ``psutil`` knows nothing of control groups, so this reads the kernel's own files.

    Args:
        groups: File in which the kernel lists the control groups of this process.
        tree: Folder in which control groups are mounted.

    Returns:
        The count since the group was made; 0 where it cannot be read.

    Source:
        Linux, Documentation/admin-guide/cgroup-v2.rst (``memory.events``) and cgroup-v1/memory.rst
        (``memory.oom_control``).
    """
    counts: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                file = tree / path.lstrip("/") / "memory.events"
            elif "memory" in controllers.split(","):
                file = tree / "memory" / path.lstrip("/") / "memory.oom_control"
            else:
                continue
            if file.exists():
                counts |= {name: int(count) for name, count in map(str.split, file.read_text().splitlines())}
    return counts.get("oom_kill", 0)
