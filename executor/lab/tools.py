"""System tools that the lab is made with, and the errors that they report."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache

from groundwork.errors import ConfigError

PACKAGES = {"ip": "iproute2", "tc": "iproute2"} | dict.fromkeys(("unshare", "nsenter", "mount", "umount"), "util-linux")
UNSHARE = ("-Urnmpf", "--mount-proc", "--kill-child=KILL")
"""Options for namespaces of users (as root), network, mounts and processes, whose processes end with ``unshare``."""
PROBE = """
mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add probe
ip link add bridge0 type bridge && ip link add veth0 type veth peer name veth1
tc qdisc add dev veth0 root handle 1: htb && tc class add dev veth0 parent 1: classid 1:1 htb rate 1mbit
tc qdisc add dev veth0 parent 1:1 bfifo limit 64kb
tc filter add dev veth0 parent 1: protocol ip prio 1 u32 match ip src 10.0.0.1/32 flowid 1:1
"""
"""Commands that try once everything that the lab needs of the kernel."""


def tool(name: str) -> str:
    """Return the path of a system tool, also from folders that the paths of ordinary users often lack.

    Raises:
        ConfigError: The tool is not installed.
    """
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    path = shutil.which(name, path=folders)
    if path is None:
        raise ConfigError(
            f"the lab needs the tool {name!r}, which is not installed; install the package {PACKAGES[name]}"
        )
    return path


def call(name: str, *arguments: str, text: str = "") -> str:
    """Run a tool, and return what it prints.

    Raises:
        ConfigError: The tool is missing, or fails; the message has its reason.
    """
    ended = subprocess.run([tool(name), *arguments], input=text, capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = "; ".join(ended.stderr.split("\n")).strip("; ") or f"exit code {ended.returncode}"
        raise ConfigError(f"the lab could not be made: {name} says: {reason}")
    return ended.stdout


def batch(name: str, namespace: str | None, lines: Iterable[str]) -> None:
    """Run many commands of ``ip`` or ``tc`` at once, in a namespace or, without one, in that of this process."""
    where = () if namespace is None else ("-n", namespace)
    call(name, *where, "-batch", "-", text="\n".join(lines) + "\n")


def namespaces() -> list[str]:
    """Return the names of the network namespaces that this process can see."""
    return [line.split()[0] for line in call("ip", "netns", "list").splitlines() if line]


@cache
def require_lab() -> None:
    """Make sure that a lab can be made on this machine, by making its parts where nothing remains of them.

    Raises:
        ConfigError: A lab cannot be made; one line says why.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError(f"the lab is made of network namespaces and needs Linux, got {sys.platform}")
    for name in PACKAGES:
        tool(name)
    path = os.pathsep.join(dict.fromkeys(os.path.dirname(tool(name)) for name in PACKAGES))
    shell: Sequence[str] = ("sh", "-c", f"PATH=$PATH:{path}; set -e\n{PROBE}")
    ended = subprocess.run(
        [tool("unshare"), *UNSHARE, "--", *shell], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        reason = "; ".join(ended.stderr.split("\n")).strip("; ") or f"exit code {ended.returncode}"
        raise ConfigError(f"the lab needs namespaces, veth, bridge, HTB, bfifo and u32, and was refused: {reason}")
