"""The device graph: devices, switches, the links that their transfers share, and the routes over them."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, takewhile
from types import MappingProxyType

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError, UnreachableError
from groundwork.notebook_tables import html_table
from groundwork.units import GIB
from hwprofiles.devices.collective_library import CollectiveLibrary
from hwprofiles.devices.device import Device
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.routes import Arc, Router, RouteTable, unreachable_pair

ROUTING_BYTES = float(2**20)
"""Size of the message whose time over the links of a route, one after another, is least."""
PICOSECONDS = 1e12
"""Picoseconds in a second."""
_LEAVING = 10**16
"""Cost of leaving a node, in picoseconds: more than any way inside takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A resource that transfers share: one direction of a full-duplex link, or both of a half-duplex one."""

    name: str
    source: int
    """Vertex of the device graph."""
    target: int
    """Vertex of the device graph."""
    both_ways: bool
    """Flag of a half-duplex link: transfers from target to source share it too."""
    bandwidth_bytes_per_s: float
    """Payload rate, not the signalling rate."""
    latency: Latency
    exclusive: bool
    """Flag that the link serves one transfer at a time; otherwise transfers share it fairly."""
    link_class: str
    """Kind of link, such as ``nvlink1``."""

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_bytes_per_s < math.inf:
            raise ConfigError(
                "Link.bandwidth_bytes_per_s must be finite and > 0 B/s, "
                f"got {self.bandwidth_bytes_per_s!r} for {self.name!r}"
            )

    @property
    def routing_cost(self) -> int:
        """Time of a message of ``ROUTING_BYTES`` over this link alone, in picoseconds."""
        seconds = self.latency.at(ROUTING_BYTES) + ROUTING_BYTES / self.bandwidth_bytes_per_s
        return round(seconds * PICOSECONDS)


class DeviceGraph:
    """The devices and switches of a cluster, and the links between them.

    Routes take the least sum over links of latency + size / bandwidth for a message of 1 MiB; ties go to
    fewer links, then to smaller vertices.  Devices never forward the messages of others.  Routes between two devices of
    a node leave it for a switch of no node only where they must, however fast the network is: drivers copy inside.

    Args:
        name: Name of the cluster.
        devices: Devices in order; device i is vertex i.
        switches: Names of the other vertices (switches, network cards, hosts), which follow the devices.
        links: Links in the order of their indices.
        hosts: Switches that are a host's memory, with the node of each: transfers across one are copied to it and
            from it.
        library: Library of collectives that runs on the devices.

    Raises:
        ConfigError: There is no device, two vertices have one name, a host is no switch, or a link ends at an
            unknown vertex or where it starts.
        UnreachableError: No route joins two devices, which the message names.
    """

    def __init__(
        self,
        name: str,
        devices: Sequence[Device],
        switches: Sequence[str],
        links: Sequence[Link],
        *,
        hosts: Mapping[str, int] = MappingProxyType({}),
        library: CollectiveLibrary | None = None,
    ) -> None:
        self.name = name
        self.spec = name
        """Specification from which ``load_cluster`` loads this graph."""
        self.devices = tuple(devices)
        self.vertices = (*(device.name for device in self.devices), *switches)
        self.links = tuple(links)
        self.hosts = dict(hosts)  # no proxy: ranks get the graph pickled
        """Node of each switch that is a host's memory."""
        self.library = library
        """Library of collectives; None where it is not known."""
        self._check()
        self.node_count = 1 + max(device.node for device in self.devices)
        arcs = self._arcs()
        pair = unreachable_pair(len(self.devices), len(self.vertices), arcs)
        if pair is not None:
            self._raise_unreachable(*pair)
        self._router = Router(len(self.devices), len(self.vertices), arcs)
        self._routes: dict[tuple[int, int], tuple[int, ...]] = {}

    def __repr__(self) -> str:
        return f"DeviceGraph({self.spec}, {len(self.devices)} devices on {self.node_count} nodes)"

    def _repr_html_(self) -> str:
        """Return the devices as a table, for notebooks."""
        rows = [
            {
                "device": device.name,
                "node": device.node,
                "profile": device.profile,
                "memory [GiB]": f"{device.memory_bytes / GIB:g}",
            }
            for device in self.devices
        ]
        return html_table(repr(self), rows)

    def with_profiles(self, profiles: Mapping[str, str]) -> "DeviceGraph":
        """Return the cluster with other compute profiles, names or paths, in place of those of the devices."""
        devices = [replace(device, profile=profiles.get(device.profile, device.profile)) for device in self.devices]
        graph = DeviceGraph(
            self.name, devices, self.vertices[len(devices) :], self.links, hosts=self.hosts, library=self.library
        )
        graph.spec = self.spec
        return graph

    def _check(self) -> None:
        """Raise where devices, names, hosts or links break a rule."""
        if not self.devices:
            raise ConfigError(f"devices of {self.name!r} must be at least one, got none")
        seen: set[str] = set()
        for vertex in self.vertices:
            if vertex in seen:
                raise ConfigError(f"vertices of {self.name!r} need different names, got {vertex!r} twice")
            seen.add(vertex)
        count, switches = len(self.vertices), self.vertices[len(self.devices) :]
        for host in sorted(set(self.hosts).difference(switches)):
            raise ConfigError(f"hosts of {self.name!r} must be switches of it, got {host!r}")
        for link in self.links:
            if not (0 <= link.source < count and 0 <= link.target < count and link.source != link.target):
                raise ConfigError(
                    f"link {link.name!r} must join two different vertices of 0 .. {count - 1}, "
                    f"got {link.source} and {link.target}"
                )

    def _arcs(self) -> list[Arc]:
        """Return the directions in which links can be crossed, with their costs."""
        arcs = []
        costs: dict[tuple[float, Latency], int] = {}  # a thousand devices have few kinds of links
        node_of = self._node_of_vertices()
        for i, link in enumerate(self.links):
            kind = (link.bandwidth_bytes_per_s, link.latency)
            cost = costs[kind] if kind in costs else costs.setdefault(kind, link.routing_cost)
            ways = ((link.source, link.target), (link.target, link.source))
            for source, target in ways if link.both_ways else ways[:1]:
                leaves = node_of[source] and not node_of[target]
                arcs.append(Arc(source, target, i, cost + _LEAVING if leaves else cost))
        return arcs

    def _node_of_vertices(self) -> list[str]:
        """Return the node of each vertex, by the beginning that the names of its devices share; empty outside nodes."""
        names: dict[int, list[list[str]]] = {}
        for device in self.devices:
            names.setdefault(device.node, []).append(device.name.split("/"))
        levels = (zip(*row, strict=False) for row in names.values() if len(row) > 1)
        shared = (takewhile(lambda words: len(set(words)) == 1, row) for row in levels)
        starts = {"/".join(words[0] for words in row) for row in shared}
        return [
            next((start for start in accumulate(vertex.split("/"), "{}/{}".format) if start in starts), "")
            for vertex in self.vertices
        ]

    def _raise_unreachable(self, source: int, target: int) -> None:
        """Raise the error of two devices that no route joins."""
        raise UnreachableError(
            f"no route leads from device {self.vertices[source]!r} to {self.vertices[target]!r} in cluster "
            f"{self.name!r}; join them by links over switches, devices forward nothing for others"
        )

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links from device ``source`` to device ``target``, in order; () from a device to itself.

        Raises:
            ConfigError: One of the two is no device.
        """
        if (source, target) not in self._routes:
            for device in (source, target):
                if not 0 <= device < len(self.devices):
                    raise ConfigError(f"device must be in 0 .. {len(self.devices) - 1}, got {device}")
            route = self._router.route(source, target)
            assert route is not None, "connectivity was checked when the graph was made"
            self._routes[source, target] = route
        return self._routes[source, target]

    @cached_property
    def bandwidth(self) -> Floats:
        """Bandwidth of every link in bytes/s, shape (L,)."""
        return np.array([link.bandwidth_bytes_per_s for link in self.links], dtype=np.float64)

    def latency_s(self, source: int, target: int, size_bytes: float) -> float:
        """Return the sum of the latencies along a route, for a message of ``size_bytes``."""
        return float(sum(self.links[link].latency.at(size_bytes) for link in self.route(source, target)))

    def route_table(self) -> RouteTable:
        """Return the routes of all pairs of devices as arrays, for compiled code; computed once."""
        return self._route_table

    @cached_property
    def _route_table(self) -> RouteTable:
        """Routes of all pairs of devices."""
        return self._router.table()

    def latency_table(self) -> tuple[Floats, Floats, Ints]:
        """Return the latencies of all links as arrays, for compiled code.

        Returns:
            Sizes in bytes and seconds, shape (L, K) each, and the number of rows that count, shape (L,);
            padding repeats the last row.
        """
        return self._latency_table

    @cached_property
    def _latency_table(self) -> tuple[Floats, Floats, Ints]:
        """Latencies of all links; see ``latency_table``."""
        count = np.array([len(link.latency.seconds) for link in self.links], dtype=np.int64)
        width = int(count.max(initial=1))

        def padded(row: tuple[float, ...]) -> tuple[float, ...]:
            """Return a row with its last value repeated up to the width of the table."""
            return row + row[-1:] * (width - len(row))

        shape = (len(self.links), width)
        sizes = np.array([padded(link.latency.sizes_bytes) for link in self.links], dtype=np.float64)
        seconds = np.array([padded(link.latency.seconds) for link in self.links], dtype=np.float64)
        return sizes.reshape(shape), seconds.reshape(shape), count

    @cached_property
    def digest(self) -> str:
        """Hash of the whole graph; what was added to devices later counts where any of them has it."""
        text = repr((self.name, self.devices, self.vertices, self.links))
        engines = [device.copy_engines for device in self.devices]
        if self.hosts or any(each.declared for each in engines):
            text += repr((engines, sorted(self.hosts)))
        speeds = [device.speed for device in self.devices]
        if set(speeds) != {1.0}:
            text += repr(speeds)
        overheads = [device.message_overhead for device in self.devices]
        if any(overheads):
            text += repr(overheads)
        shared = [(each.communication_channels, each.step_spread, each.board_speed) for each in self.devices]
        if set(shared) != {(0, 0.0, 1.0)}:
            text += repr(shared)
        if self.library is not None:
            text += repr(self.library)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_links(self, links: Sequence[Link]) -> "DeviceGraph":
        """Return the same devices and switches joined by other links."""
        return DeviceGraph(
            self.name, self.devices, self.vertices[len(self.devices) :], links, hosts=self.hosts, library=self.library
        )

    def with_devices(self, devices: Sequence[Device]) -> "DeviceGraph":
        """Return the same links and switches with other devices at the same vertices."""
        return DeviceGraph(
            self.name, devices, self.vertices[len(self.devices) :], self.links, hosts=self.hosts, library=self.library
        )

    def take(self, count: int) -> "DeviceGraph":
        """Return the cluster with its first ``count`` devices only; see ``only``."""
        if not 1 <= count <= len(self.devices):
            raise ConfigError(f"number of devices must be in 1 .. {len(self.devices)} of {self.name!r}, got {count}")
        return self.only(range(count))

    def only(self, device_indices: Sequence[int]) -> "DeviceGraph":
        """Return the cluster with some of its devices, in the order given.

        All switches stay, and all links between vertices that stay, so the routes that remain are
        the same; devices, and nodes that still have devices, are renumbered from 0.  Switches of other nodes are
        hosts no more.

        Raises:
            ConfigError: An index is out of range or repeats, or there is none.
        """
        chosen = list(device_indices)
        if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= i < len(self.devices) for i in chosen):
            raise ConfigError(f"devices must be different ones of 0 .. {len(self.devices) - 1}, got {chosen}")
        kept = [*chosen, *range(len(self.devices), len(self.vertices))]
        vertex = {old: new for new, old in enumerate(kept)}
        node = {old: new for new, old in enumerate(dict.fromkeys(self.devices[i].node for i in chosen))}
        links = [
            replace(link, source=vertex[link.source], target=vertex[link.target])
            for link in self.links
            if link.source in vertex and link.target in vertex
        ]
        return DeviceGraph(
            self.name if len(chosen) == len(self.devices) else f"{self.name} ({len(chosen)} devices)",
            [replace(self.devices[i], node=node[self.devices[i].node]) for i in chosen],
            self.vertices[len(self.devices) :],
            links,
            hosts={host: node[at] for host, at in self.hosts.items() if at in node},
            library=self.library,
        )
