"""Labs that only their own processes see: made inside namespaces of their own, gone with the command that ran there."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from executor.lab.namespaces import LabHosts, temporary_network
from executor.lab.tools import UNSHARE, call, require_lab, tool
from executor.lab.wiring import wiring_of
from hwprofiles import ConfigError
from hwprofiles.devices import DeviceGraph

__all__ = ["is_inside", "lab_hosts", "run_inside"]

_MARK = "ORRERY_LAB"
"""Variable of the environment that names the mount namespace inside."""
FIRST_PROCESS = Path(__file__).with_name("first_process.py")
_PATIENCE_S = 10.0
"""After Ctrl-C the command inside has so long to end by itself."""


def is_inside() -> bool:
    """Whether this process was started by ``run_inside``, or by one that was."""
    return sys.platform.startswith("linux") and os.environ.get(_MARK) == os.readlink("/proc/self/ns/mnt")


def run_inside(argv: Sequence[str]) -> int:
    """Run a command where ``lab_hosts`` works, as root of its own users, network and processes.

    Nothing is left when it ends, nor when this process ends in whatever way: processes inside are killed.

    Returns:
        The command's exit code.

    Raises:
        ConfigError: No lab can be made on this machine.
        KeyboardInterrupt: After Ctrl-C, when the command, which gets it too, has ended or taken too long for it.
    """
    require_lab()
    alive, closes_with_us = os.pipe()
    first = [sys.executable, "-I", str(FIRST_PROCESS), _MARK, str(alive), *argv]
    try:
        process = subprocess.Popen([tool("unshare"), *UNSHARE, "--", *first], pass_fds=[alive])
        try:
            return process.wait()
        except KeyboardInterrupt:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)
            raise
        finally:
            os.close(closes_with_us)
            process.wait()
    finally:
        os.close(alive)


@contextmanager
def lab_hosts(cluster: DeviceGraph) -> Iterator[LabHosts]:
    """Hosts of a cluster, for the duration of a block; their processes are killed in the end.

    Raises:
        ConfigError: The lab cannot make the cluster, a tool refused, or this process is not inside.
    """
    wiring = wiring_of(cluster)
    if not is_inside():
        raise ConfigError("lab_hosts works in commands that run_inside started; this process is outside")
    with temporary_network(wiring, f"lab{os.getpid()}-") as hosts, _named(hosts):
        yield hosts


@contextmanager
def _named(hosts: LabHosts) -> Iterator[None]:
    """Names for the addresses of the hosts; without, every connection of torch warns that it finds none."""
    if not (known := Path("/etc/hosts")).is_file():
        yield
        return
    # Sockets that serve both versions of IP give IPv4 addresses the longer form.
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
            call("umount", "--lazy", str(known))  # a rank may be reading it
