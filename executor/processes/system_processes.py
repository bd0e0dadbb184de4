"""Ranks as processes of the system: started in groups of their own, heard, looked at, and ended without a trace."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["RankProcess", "end_all", "out_of_memory_kills"]

TERMINATE_S = 2.0
"""Time between the request to end and the order."""
VANISH_S = 1.0
"""Time allowed for what was killed to leave the table of processes."""
POLL_S = 0.01
TAIL_BYTES = 8192
LOG_BYTES = 64 * 2**20
_PIPE_BYTES = 2**20
"""More than a pipe holds, so that one read takes all."""
_SHELL_SIGNAL = 128
"""What a shell adds to the number of the signal that ended its child."""


class RankProcess:
    """One rank: its command in a process group of its own, with its output held back."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, lifeline: int, log: Path | None
    ) -> None:
        """Start the command.

        Args:
            command: Program and arguments, such as ``ip netns exec host-0 python ...``.
            environment: All of its environment.
            lifeline: Descriptor that it inherits.
            log: File for the first 64 MiB that it prints; its directory exists.

        Raises:
            OSError: The command cannot be started or the log not be written.
        """
        # A group, not a session: the system then wakes a stopped rank whose supervisor is gone, and ends it.
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            process_group=0,
            pass_fds=(lifeline,),
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._outputs = (self._process.stdout, self._process.stderr)
        for output in self._outputs:
            os.set_blocking(output.fileno(), False)
        self._tail = b""
        self._log, self._log_left_bytes = log, LOG_BYTES

    def drain(self) -> None:
        """Take what the rank has printed, so that it never waits for a reader."""
        out, error = (output.read(_PIPE_BYTES) or b"" for output in self._outputs)
        self._tail = (self._tail + error)[-TAIL_BYTES:]
        text = (out + error)[: self._log_left_bytes]
        if self._log is not None and text:
            self._log_left_bytes -= len(text)
            with self._log.open("ab") as file:
                file.write(text)

    def error_lines(self) -> list[str]:
        """Return the last lines of its standard error that hold anything."""
        self.drain()
        return [line.strip() for line in self._tail.decode(errors="replace").splitlines() if line.strip()]

    def exit_code(self) -> int | None:
        """Return its exit code, minus the number of a signal that ended it, None while it runs."""
        # Not reaped: while the dead process keeps its number, no stranger's group can have it.
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        if found.si_code != os.CLD_EXITED:
            return -found.si_status
        ended_by = found.si_status - _SHELL_SIGNAL
        return -ended_by if ended_by in signal.valid_signals() else found.si_status

    def is_stopped(self) -> bool:
        """Whether a signal has stopped a process of its group."""
        return "T" in _states(self._process.pid)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def bury(self) -> None:
        """Kill what is left of the group, and wait until it is gone."""
        self.send(signal.SIGKILL)
        # A process that is stuck in the kernel ends when that lets it; nobody can do more.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(VANISH_S)
        deadline_s = time.monotonic() + VANISH_S
        while _states(self._process.pid) - {"Z"} and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        self.drain()
        for output in self._outputs:
            output.close()


def end_all(processes: Sequence[RankProcess]) -> None:
    """End every process: ask those that run, kill what is left after 2 s."""
    for process in processes:
        if process.exit_code() is None:
            process.send(signal.SIGTERM)
            process.send(signal.SIGCONT)
    deadline_s = time.monotonic() + TERMINATE_S
    while any(process.exit_code() is None for process in processes) and time.monotonic() < deadline_s:
        for process in processes:
            process.drain()
        time.sleep(POLL_S)
    # All at once before the first is waited for.
    for process in processes:
        process.send(signal.SIGKILL)
    for process in processes:
        process.bury()


def _states(group: int) -> set[str]:
    """The states, as letters of ``ps``, of a process group's members; empty where the system has no ``/proc``."""
    states = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in brackets, may hold anything.
            state, _, its_group, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(its_group) == group:
                states.add(state)
    return states


def out_of_memory_kills(groups: Path = Path("/proc/self/cgroup"), tree: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many processes of this one's control group the system has killed for want of memory.

    Args:
        groups: The control groups of this process, as the kernel lists them.
        tree: Where control groups are mounted.

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
