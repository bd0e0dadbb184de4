"""The first process inside a lab: it starts the command, and its own end ends all processes of the lab.

Run as a script, by path, with nothing but the standard library: ``first_process.py MARK FILE_DESCRIPTOR COMMAND ...``.
It ends with the command, or when the other end of the pipe closes, which happens in whatever way the process outside
ends; the system then kills every process that is left inside.  A byte in the pipe is the number of a signal for the
command, which must then end within some seconds.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

PATIENCE_S, START_S = 10.0, 0.5


def run_as_first(mark: str, alive: int, argv: list[str]) -> int:
    """Prepare, run ``argv``, and return its exit code, 128 + signal for a command that a signal ended.

    Args:
        mark: Environment variable that will name the mount namespace.
        alive: File descriptor of the pipe.
        argv: Program and arguments of the command.
    """
    os.environ[mark] = os.readlink("/proc/self/ns/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.mkdir("/run/netns")
    command = subprocess.Popen(argv)
    ended, patience_s, asked = os.pidfd_open(command.pid), None, 0
    while ready := select.select([alive, ended], [], [], patience_s)[0]:
        if ended in ready:
            code = command.wait()
            return code if code >= 0 else 128 - code
        if not (numbers := os.read(alive, 1)):
            return 1
        asked, patience_s = numbers[0], PATIENCE_S
        _await_handler_of_sigterm(command.pid)
        command.send_signal(asked)
    return 128 + asked


def _await_handler_of_sigterm(process: int) -> None:
    """Wait for a process that has just begun to handle SIGTERM, for a while: some never do."""
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        with suppress(OSError), open(f"/proc/{process}/status") as file:
            caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
            if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
                return
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(run_as_first(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
