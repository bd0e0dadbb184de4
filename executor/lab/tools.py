"""The system tools that the lab is made with, and what they say when they refuse."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache

from hwprofiles import ConfigError

__all__ = ["UNSHARE", "batch", "call", "namespaces", "require_lab", "tool"]

PACKAGES = {"ip": "iproute2", "tc": "iproute2"} | dict.fromkeys(("unshare", "nsenter", "mount", "umount"), "util-linux")
UNSHARE = ("-Urnmpf", "--mount-proc", "--kill-child=KILL")
"""Own users (as root), network, mounts and processes; these end with whoever asked for them."""
PROBE = """
mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add probe
ip link add bridge0 type bridge && ip link add veth0 type veth peer name veth1
tc qdisc add dev veth0 root handle 1: htb && tc class add dev veth0 parent 1: classid 1:1 htb rate 1mbit
tc qdisc add dev veth0 parent 1:1 bfifo limit 64kb
tc filter add dev veth0 parent 1: protocol ip prio 1 u32 match ip src 10.0.0.1/32 flowid 1:1
"""
"""Everything that the lab asks of the kernel, once."""


def tool(name: str) -> str:
    """Path of a system tool; ordinary users often lack the folders of some in their path.

    Raises:
        ConfigError: It is not installed.
    """
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=folders)
    if found is None:
        raise ConfigError(f"the lab needs the tool {name!r}, which is not installed; package {PACKAGES[name]} has it")
    return found


def call(name: str, *arguments: str, text: str = "") -> str:
    """Run a tool and return what it prints.

    Raises:
        ConfigError: The tool is missing, or refuses; the message has its reason.
    """
    ended = subprocess.run([tool(name), *arguments], input=text, capture_output=True, text=True, check=False)
    if ended.returncode:
        reason = "; ".join(ended.stderr.split("\n")).strip("; ") or f"exit code {ended.returncode}"
        raise ConfigError(f"the lab could not be made: {name} says: {reason}")
    return ended.stdout


def batch(name: str, namespace: str | None, lines: Iterable[str]) -> None:
    """Give ``ip`` or ``tc`` many commands at once, in a namespace or, without one, here."""
    where = () if namespace is None else ("-n", namespace)
    call(name, *where, "-batch", "-", text="\n".join(lines) + "\n")


def namespaces() -> list[str]:
    """Names of the network namespaces that can be seen from here."""
    return [line.split()[0] for line in call("ip", "netns", "list").splitlines() if line]


@cache
def require_lab() -> None:
    """Make sure that a lab can be made on this machine, by trying its parts where nothing remains of them.

    Raises:
        ConfigError: It cannot; one line says why.
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
