"""Labs inside namespaces of their own, which only their own processes see and which end with the command."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import FrameType

from executor.lab.namespaces import LabHosts, temporary_network
from executor.lab.tools import UNSHARE, call, require_lab, tool
from executor.lab.wiring import wiring_of
from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph

_MARK = "ORRERY_LAB"
"""Environment variable that names the mount namespace inside."""
FIRST_PROCESS = Path(__file__).with_name("first_process.py")
_RELAYED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def is_inside() -> bool:
    """Return whether this process was started by ``run_inside``, directly or not."""
    return sys.platform.startswith("linux") and os.environ.get(_MARK) == os.readlink("/proc/self/ns/mnt")


def run_inside(argv: Sequence[str]) -> int:
    """Run a command where ``lab_hosts`` works: in its own namespaces of users, network and processes, as their root.

    Nothing is left when it ends, nor when this process ends in whatever way: processes inside are killed.  SIGINT,
    SIGTERM and SIGHUP to this process, where it does not ignore them, go to the command alone, in whose session is no
    other process: it says what there is to say, and its code is the end of both.

    Returns:
        The command's exit code.

    Raises:
        ConfigError: A lab cannot be made on this machine.
    """
    require_lab()
    # Only this process holds the write end, so the pipe closes with it.
    alive, held = os.pipe()
    first = [sys.executable, "-I", str(FIRST_PROCESS), _MARK, str(alive), *argv]

    def relay(number: int, frame: FrameType | None) -> None:
        os.write(held, bytes([number]))

    heard = threading.current_thread() is threading.main_thread()  # Python calls handlers in the main thread alone
    handled = [number for number in _RELAYED if heard and signal.getsignal(number) != signal.SIG_IGN]
    former = {number: signal.signal(number, relay) for number in handled}
    try:
        command = [tool("unshare"), *UNSHARE, "--", *first]
        with subprocess.Popen(command, pass_fds=[alive], start_new_session=True) as process:
            return process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        os.close(held)
        os.close(alive)


@contextmanager
def lab_hosts(cluster: DeviceGraph) -> Iterator[LabHosts]:
    """Make the hosts of a cluster for the duration of a block; their processes are killed at its end.

    Raises:
        ConfigError: The lab cannot make the cluster, a tool failed, or this process is not inside.
    """
    wiring = wiring_of(cluster)
    if not is_inside():
        raise ConfigError("lab_hosts works in commands that run_inside started; this process is outside")
    with temporary_network(wiring, f"lab{os.getpid()}-") as hosts, _named(hosts):
        yield hosts


@contextmanager
def _named(hosts: LabHosts) -> Iterator[None]:
    """Name the addresses of the hosts in /etc/hosts; without names every connection of torch prints a warning."""
    if not (known := Path("/etc/hosts")).is_file():
        yield
        return
    # Sockets that serve both versions of IP write IPv4 addresses in the longer form.
    lines = [
        f"{form}{address} host{rank}\n" for rank, address in enumerate(hosts.addresses) for form in ("", "::ffff:")
    ]
    with NamedTemporaryFile("w", dir="/run") as file:
        file.write(known.read_text() + "".join(lines))
        file.flush()
        call("mount", "--bind", file.name, str(known))
        try:
            yield
        finally:
            call("umount", "--lazy", str(known))  # lazy: a rank may be reading it
