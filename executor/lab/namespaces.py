"""A network of namespaces: hosts, switches and shaped cables, made and removed.

What keeps its times close to those of the model: every port is held to its rate by HTB, which never splits large
packets, with a class for each pair of hosts, so that pairs share a link max-min fairly; each class has a short queue,
so that a slow link holds back its senders.
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from executor.lab.tools import batch, call, namespaces, tool
from executor.lab.wiring import Port, Wiring

__all__ = ["LabHosts", "make_network", "members", "processes", "remove_network", "temporary_network"]

INTERFACE = "eth0"
"""Of every host."""
STORE_PORT = 29555
"""Of the store where ranks meet; a host's ports are its own."""
LEAF_BYTES = 512 * 1024
"""Longer than the window that receivers offer: nothing is lost, and who is held back elsewhere waits elsewhere."""
QUANTUM_BYTES = 60_000
"""Turns of the classes of a port; no packet is larger."""
BURST_S, LEAST_BURST_BYTES = 0.33e-3, 8 * 1024
"""What a port that was idle may send at once: it makes up for the timer, and is as much ahead of the model."""
PACKET_S, LEAST_PACKET_BYTES, MOST_PACKET_BYTES = 0.5e-3, 8 * 1024, 60_000
"""What the system hands to a port in one piece: large pieces blur the times, small ones cost more acknowledgements."""
ASSURED_SHARE = 1 / 64
"""Of the port's rate, for every class where there are few; the rest is shared by need."""
REMOVAL_S = 10.0
"""Killed processes leave their namespace in that time."""
SYSTEM = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_rmem": "4096 131072 393216",
}
"""Under /proc/sys/net: nothing but the ranks talks, no connection learns from earlier ones, windows are short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHosts:
    """The hosts of a lab that is up; rank i is the only rank of host i."""

    prefix: str
    """Beginning of the names of all its namespaces."""
    count: int

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespace of each rank's host."""
        return tuple(f"{self.prefix}{rank}" for rank in range(self.count))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Address of each rank's host."""
        return tuple(map(_address, range(self.count)))

    def command(self, rank: int, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` in the host of a rank; its process becomes that of ``argv``."""
        return [tool("nsenter"), f"--net=/run/netns/{self.namespaces[rank]}", "--", *argv]

    def environment(self, rank: int) -> dict[str, str]:
        """Variables for the process of a rank: who it is, where the ranks meet, and by which interface."""
        return {
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "MASTER_ADDR": _address(0),
            "MASTER_PORT": str(STORE_PORT),
            "RANK": str(rank),
            "WORLD_SIZE": str(self.count),
        }


def make_network(wiring: Wiring, prefix: str) -> LabHosts:
    """Make the namespaces ``<prefix>0``, ``<prefix>1``, ... of the vertices, and the cables between them.

    Raises:
        ConfigError: A tool is missing or refused; ``remove_network`` then clears what had been made.
    """
    names = [f"{prefix}{vertex}" for vertex in range(wiring.vertex_count)]
    batch("ip", None, [f"netns add {name}" for name in names])
    batch("ip", None, [_cable(names, *ends) for ends in wiring.cables])
    ports: dict[int, list[Port]] = {vertex: [] for vertex in range(wiring.vertex_count)}
    for port in (port for ends in wiring.cables for port in ends):
        ports[port.vertex].append(port)
    for vertex, name in enumerate(names):
        _set_system(name)
        host = vertex < wiring.host_count
        batch("ip", name, _host_lines(ports[vertex][0], wiring.host_count) if host else _switch_lines(ports[vertex]))
        batch("tc", name, [line for port in ports[vertex] for line in _shaping(port)])
    return LabHosts(prefix=prefix, count=wiring.host_count)


def members(prefix: str) -> list[str]:
    """Namespaces of the lab with that prefix, as far as they exist."""
    return [name for name in namespaces() if name.startswith(prefix) and name[len(prefix) :].isdigit()]


def processes(namespace: str) -> list[int]:
    """Processes in a namespace."""
    return [int(word) for word in call("ip", "netns", "pids", namespace).split()]


def remove_network(prefix: str) -> None:
    """Kill what runs in the namespaces with that prefix, and remove them; what is not there is passed over."""
    for name in members(prefix):
        deadline_s = time.monotonic() + REMOVAL_S
        while (found := processes(name)) and time.monotonic() < deadline_s:  # a fork may slip through one round
            for process in found:
                _kill(process)
            time.sleep(0.005)
        call("ip", "netns", "delete", name)


@contextmanager
def temporary_network(wiring: Wiring, prefix: str) -> Iterator[LabHosts]:
    """A network for the duration of a block."""
    try:
        yield make_network(wiring, prefix)
    finally:
        remove_network(prefix)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _address(host: int) -> str:
    return f"10.77.0.{host + 1}"


def _hardware_address(host: int) -> str:
    return f"02:00:00:4d:00:{host + 1:02x}"


def _cable(names: Sequence[str], a: Port, b: Port) -> str:
    return f"link add {a.interface} netns {names[a.vertex]} type veth peer name {b.interface} netns {names[b.vertex]}"


def _host_lines(port: Port, count: int) -> list[str]:
    """Address and neighbours of a host: fixed, so that no time goes into asking for them."""
    host, device = port.vertex, port.interface
    packet_bytes = min(MOST_PACKET_BYTES, max(LEAST_PACKET_BYTES, round(port.bandwidth_bytes_per_s * PACKET_S)))
    neighbours = [
        f"neighbour add {_address(other)} lladdr {_hardware_address(other)} dev {device} nud permanent"
        for other in range(count)
        if other != host
    ]
    return [
        "link set lo up",
        f"link set {device} address {_hardware_address(host)} gso_max_size {packet_bytes} up",
        f"address add {_address(host)}/24 dev {device}",
        *neighbours,
    ]


def _switch_lines(ports: Sequence[Port]) -> list[str]:
    return [
        "link add bridge type bridge stp_state 0",
        "link set bridge up",
        *(f"link set {port.interface} master bridge up" for port in ports),
    ]


def _shaping(port: Port) -> list[str]:
    """Commands that hold a port to its rate, shared fairly by the pairs of hosts that cross it."""
    device, rate = port.interface, port.bandwidth_bytes_per_s
    burst = max(LEAST_BURST_BYTES, round(rate * BURST_S))
    limits = f"ceil {_rate(rate)} burst {burst} cburst {burst} quantum {QUANTUM_BYTES}"
    assured = _rate(rate * min(ASSURED_SHARE, 0.5 / (len(port.pairs) + 1)))
    lines = [
        f"qdisc add dev {device} root handle 1: htb default ffff",
        f"class add dev {device} parent 1: classid 1:fffe htb rate {_rate(rate)} {limits}",
    ]
    for number in (*range(1, len(port.pairs) + 1), 0xFFFF):  # the last takes all but the traffic of the pairs
        lines += [
            f"class add dev {device} parent 1:fffe classid 1:{number:x} htb rate {assured} {limits}",
            f"qdisc add dev {device} parent 1:{number:x} bfifo limit {LEAF_BYTES}",
        ]
    for number, (source, target) in enumerate(port.pairs, start=1):
        match = f"match ip src {_address(source)}/32 match ip dst {_address(target)}/32"
        lines.append(f"filter add dev {device} parent 1: protocol ip prio 1 u32 {match} flowid 1:{number:x}")
    return lines


def _rate(bytes_per_s: float) -> str:
    return f"{round(bytes_per_s * 8)}bit"


def _set_system(name: str) -> None:
    """Set the namespace's own part of the system's settings, where the system has them."""
    settings = "; ".join(f"put {key} '{value}'" for key, value in SYSTEM.items())
    script = 'put() { if [ -e "/proc/sys/net/$1" ]; then echo "$2" > "/proc/sys/net/$1" || exit 1; fi; }; '
    call("nsenter", f"--net=/run/netns/{name}", "--", "sh", "-c", script + settings)
