"""A network of namespaces: hosts, switches and shaped cables, made and removed.

Its times are close to those of the model because HTB holds every port to its rate without splitting large packets;
each pair of hosts has a class of its own, so that pairs share a link max-min fairly; and each class has a short queue,
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

INTERFACE = "eth0"
"""Network interface of every host."""
STORE_PORT = 29555
"""Port of the store where ranks meet; each host has ports of its own."""
LEAF_BYTES = 512 * 1024
"""Length of a class's queue: longer than the window that receivers offer, so that no packet is lost, and traffic
that another link holds back waits at that link."""
QUANTUM_BYTES = 60_000
"""Bytes that a class of a port may send in its turn; no packet is larger."""
BURST_S, LEAST_BURST_BYTES = 0.33e-3, 8 * 1024
"""Burst that an idle port may send at once, in seconds at its rate and at least in bytes: it makes up for the coarse
timer, and lets the port be ahead of the model by as much."""
PACKET_S, LEAST_PACKET_BYTES, MOST_PACKET_BYTES = 0.5e-3, 8 * 1024, 60_000
"""Largest packet that the system hands to a port, in seconds at its rate, with bounds in bytes: large packets make
times coarse, small ones need more acknowledgements."""
ASSURED_SHARE = 1 / 64
"""Share of the port's rate that each class is assured of where there are few; the rest goes to classes with traffic."""
REMOVAL_S = 10.0
"""Time in which killed processes leave their namespace, in seconds."""
SYSTEM = {
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_rmem": "4096 131072 393216",
}
"""Settings under /proc/sys/net: no traffic but that of the ranks, no connection learns from earlier ones, short
windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHosts:
    """Hosts of a lab that is up; rank i is the only rank of host i."""

    prefix: str
    """Start of the names of all its namespaces."""
    count: int
    """Number of hosts."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespace of each rank's host."""
        return tuple(f"{self.prefix}{rank}" for rank in range(self.count))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Address of each rank's host."""
        return tuple(map(_address, range(self.count)))

    def command(self, rank: int, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the host of a rank; its process becomes that of ``argv``."""
        return [tool("nsenter"), f"--net=/run/netns/{self.namespaces[rank]}", "--", *argv]

    def environment(self, rank: int) -> dict[str, str]:
        """Return the environment variables of a rank: its number, where the ranks meet, and by which interface."""
        return {
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "MASTER_ADDR": _address(0),
            "MASTER_PORT": str(STORE_PORT),
            "RANK": str(rank),
            "WORLD_SIZE": str(self.count),
        }


def make_network(wiring: Wiring, prefix: str) -> LabHosts:
    """Make the namespaces ``<prefix>0``, ``<prefix>1``, ... of the vertices, and the cables between them.

    Args:
        wiring: Hosts, switches and cables.
        prefix: Start of the names of the namespaces.

    Raises:
        ConfigError: A tool is missing or failed; ``remove_network`` then removes what had been made.
    """
    names = [f"{prefix}{vertex}" for vertex in range(wiring.vertex_count)]
    batch("ip", None, [f"netns add {name}" for name in names])
    cables = [
        f"link add {a.interface} netns {names[a.vertex]} type veth peer name {b.interface} netns {names[b.vertex]}"
        for a, b in wiring.cables
    ]
    batch("ip", None, cables)
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
    """Return the namespaces that exist of the lab with a prefix."""
    return [name for name in namespaces() if name.startswith(prefix) and name[len(prefix) :].isdigit()]


def processes(namespace: str) -> list[int]:
    """Return the ids of the processes in a namespace."""
    return [int(word) for word in call("ip", "netns", "pids", namespace).split()]


def remove_network(prefix: str) -> None:
    """Kill the processes in the namespaces with a prefix, and remove those namespaces that exist."""
    for name in members(prefix):
        deadline_s = time.monotonic() + REMOVAL_S
        while (running := processes(name)) and time.monotonic() < deadline_s:  # a fork may escape one round
            for process in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.005)
        call("ip", "netns", "delete", name)


@contextmanager
def temporary_network(wiring: Wiring, prefix: str) -> Iterator[LabHosts]:
    """Make a network for the duration of a block."""
    try:
        yield make_network(wiring, prefix)
    finally:
        remove_network(prefix)


def _address(host: int) -> str:
    return f"10.77.0.{host + 1}"


def _hardware_address(host: int) -> str:
    return f"02:00:00:4d:00:{host + 1:02x}"


def _host_lines(port: Port, count: int) -> list[str]:
    """Return commands for the address and the neighbours of a host: fixed, so that no time goes into ARP requests."""
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
    """Return commands that join the ports of a switch by a bridge."""
    return [
        "link add bridge type bridge stp_state 0",
        "link set bridge up",
        *(f"link set {port.interface} master bridge up" for port in ports),
    ]


def _shaping(port: Port) -> list[str]:
    """Return commands that hold a port to its rate, shared fairly by the pairs of hosts whose route crosses it.

    Each pair has a class below the port's class, and a filter by addresses that leads its packets there::

        1: htb -- 1:fffe at the port's rate -- 1:1    pair 1, queue
                                            -- 1:2    pair 2, queue
                                            -- 1:ffff everything else
    """
    device, rate = port.interface, port.bandwidth_bytes_per_s
    burst = max(LEAST_BURST_BYTES, round(rate * BURST_S))
    limits = f"ceil {_rate(rate)} burst {burst} cburst {burst} quantum {QUANTUM_BYTES}"
    assured = _rate(rate * min(ASSURED_SHARE, 0.5 / (len(port.pairs) + 1)))
    lines = [
        f"qdisc add dev {device} root handle 1: htb default ffff",
        f"class add dev {device} parent 1: classid 1:fffe htb rate {_rate(rate)} {limits}",
    ]
    for number in (*range(1, len(port.pairs) + 1), 0xFFFF):  # the last class takes all other traffic
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
    """Set the settings that a namespace has of its own, where the system has them."""
    settings = "; ".join(f"put {key} '{value}'" for key, value in SYSTEM.items())
    script = 'put() { if [ -e "/proc/sys/net/$1" ]; then echo "$2" > "/proc/sys/net/$1" || exit 1; fi; }; '
    call("nsenter", f"--net=/run/netns/{name}", "--", "sh", "-c", script + settings)
