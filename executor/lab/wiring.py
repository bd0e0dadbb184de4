"""Wiring of a lab for a cluster: hosts, switches, and the cables between them, described and checked."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import networkx

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.link import Link

MOST_HOSTS = 16
"""Most hosts of a lab: a port has a class for every pair of hosts whose route crosses it."""
MOST_BYTES_PER_S = 1e9 / 8
"""Highest rate of a link: above 1 Gbit/s a few cores no longer carry all links at their rates."""
PAYLOAD_SHARE = 1448 / 1514
"""Payload of a full packet (MTU 1500, IPv4, TCP with time stamps) over the bytes that a shaper counts, which include
the Ethernet header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """End of a cable, with the link that leaves by it."""

    vertex: int
    interface: str
    bandwidth_bytes_per_s: float
    """Rate of the wire, headers included."""
    pairs: tuple[tuple[int, int], ...]
    """Source and target of every pair of hosts whose route leaves by this port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Hosts 0 to n - 1, in the order of the devices, switches after them, and the two ends of each cable."""

    host_count: int
    vertex_count: int
    cables: tuple[tuple[Port, Port], ...]


def lab_cluster(graph: DeviceGraph) -> DeviceGraph:
    """Return the cluster with the rates that programs in the lab can reach.

    The shapers hold the wire to the rates of the file; a packet of 1514 bytes carries 1448 bytes of payload.
    """
    links = [replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * PAYLOAD_SHARE) for link in graph.links]
    cluster = DeviceGraph(graph.name, graph.devices, graph.vertices[len(graph.devices) :], links)
    cluster.spec = graph.spec
    return cluster


def wiring_of(graph: DeviceGraph) -> Wiring:
    """Return the wiring of a cluster.

    Raises:
        ConfigError: The lab cannot make it: more than 16 hosts, a host with several devices or links, links that
            are exclusive, half duplex, parallel, one-way or faster than 1 Gbit/s, or loops among switches.
    """
    if len(graph.devices) > MOST_HOSTS:
        raise _refuse(graph, f"it makes at most {MOST_HOSTS} hosts, got {len(graph.devices)}")
    if graph.node_count != len(graph.devices):
        count = f"{len(graph.devices)} devices in {graph.node_count} nodes"
        raise _refuse(graph, f"a host has one device, for links within a host cannot be held to a rate; got {count}")
    links = _links_by_ends(graph)
    _check_tree(graph, links)
    pairs = _pairs_by_ends(graph)
    names = _interfaces(graph, links)

    def port(a: int, b: int) -> Port:
        rate = links[a, b].bandwidth_bytes_per_s
        return Port(vertex=a, interface=names[a, b], bandwidth_bytes_per_s=rate, pairs=tuple(pairs.get((a, b), ())))

    return Wiring(
        host_count=len(graph.devices),
        vertex_count=len(graph.vertices),
        cables=tuple((port(a, b), port(b, a)) for a, b in links if a < b),
    )


def _refuse(graph: DeviceGraph, rule: str) -> ConfigError:
    """Return the error that names the cluster and the rule that it breaks."""
    return ConfigError(f"the lab cannot make cluster {graph.name!r}: {rule}")


def _links_by_ends(graph: DeviceGraph) -> dict[tuple[int, int], Link]:
    """Return the links by source and target; refuse those that a cable with two shapers cannot be."""
    links: dict[tuple[int, int], Link] = {}
    for link in graph.links:
        if link.exclusive or link.both_ways:
            kind = "exclusive" if link.exclusive else "half duplex"
            raise _refuse(graph, f"links must be fair and full duplex, got {link.name!r}, which is {kind}")
        if link.bandwidth_bytes_per_s > MOST_BYTES_PER_S:
            rate = f"{link.bandwidth_bytes_per_s * 8e-9:g} Gbit/s"
            raise _refuse(graph, f"links must have at most 1 Gbit/s, got {rate} of {link.name!r}")
        if (link.source, link.target) in links:
            raise _refuse(graph, f"links must not be parallel (give one link the count), got {link.name!r} twice")
        links[link.source, link.target] = link
    for (a, b), link in links.items():
        if (b, a) not in links:
            raise _refuse(graph, f"links must go both ways, got {link.name!r} alone")
    return links


def _check_tree(graph: DeviceGraph, links: Iterable[tuple[int, int]]) -> None:
    """Refuse hosts with other than one link, and loops among switches: bridges would send packets round for ever."""
    cables = networkx.Graph(list(links))
    for host, device in enumerate(graph.devices):
        degree = cables.degree(host) if host in cables else 0
        if degree != 1:
            raise _refuse(graph, f"a host has one link, got {degree} of {device.name!r}")
    if not networkx.is_forest(cables):
        loop = ", ".join(graph.vertices[a] for a, _ in networkx.find_cycle(cables))
        raise _refuse(graph, f"switches must form no loop, got {loop}")


def _pairs_by_ends(graph: DeviceGraph) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return the pairs of hosts whose route crosses each link, by the ends of the link."""
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    hosts = range(len(graph.devices))
    for source in hosts:
        for target in hosts:
            for link in graph.route(source, target):
                ends = graph.links[link].source, graph.links[link].target
                pairs.setdefault(ends, []).append((source, target))
    return pairs


def _interfaces(graph: DeviceGraph, links: Iterable[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """Return the names of the ports: ``eth0`` at hosts, ``p0``, ``p1``, ... at each switch."""
    names: dict[tuple[int, int], str] = {}
    used: dict[int, int] = {}
    for a, b in links:
        number = used.get(a, 0)
        names[a, b] = "eth0" if a < len(graph.devices) else f"p{number}"
        used[a] = number + 1
    return names
