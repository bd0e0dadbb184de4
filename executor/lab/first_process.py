"""The first process inside a lab: it starts the command, and its own end ends all processes of the lab.

Run as a script, by path, with nothing but the standard library: ``first_process.py MARK FILE_DESCRIPTOR COMMAND ...``.
It ends with the command, or when the other end of the pipe closes, which happens in whatever way the process outside
ends; the system then kills every process that is left inside.
"""

import os
import select
import signal
import subprocess
import sys

__all__ = ["run_as_first"]


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
    # Ctrl-C reaches the command too, which decides what to do.  A handler, unlike SIG_IGN, is not inherited.
    signal.signal(signal.SIGINT, lambda *_: None)
    command = subprocess.Popen(argv)
    ended = os.pidfd_open(command.pid)
    select.select([alive, ended], [], [])
    code = command.poll()
    if code is None:
        return 1
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run_as_first(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
