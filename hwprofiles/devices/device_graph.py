"""The device graph: devices, switches, the links that their transfers share, and the routes over them."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Floats, UnreachableError
from hwprofiles.devices.copy_engines import CopyEngines
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.message_overhead import MessageOverhead
from hwprofiles.devices.routes import Arc, Router, RouteTable, unreachable_pair

__all__ = ["ROUTING_BYTES", "Device", "DeviceGraph", "Latency", "Link", "RouteTable"]


ROUTING_BYTES = float(2**20)
"""Size of the message whose time over its links, one after another, a route makes least."""
PICOSECONDS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """An accelerator."""

    name: str
    node: int
    """Machine that holds it, counted from 0."""
    profile: str
    """Name of its compute profile."""
    memory_bytes: float
    copy_engines: CopyEngines = field(default=CopyEngines(), repr=False)
    message_overhead: MessageOverhead = field(default=MessageOverhead(), repr=False)
    speed: float = field(default=1.0, repr=False)
    """Of its arithmetic and memory, relative to what the profile says."""

    def __post_init__(self) -> None:
        if not 0 < self.speed < math.inf:
            raise ConfigError(f"Device.speed must be finite and > 0, got {self.speed!r} for {self.name!r}")
        if not 0 < self.memory_bytes < math.inf:
            raise ConfigError(
                f"Device.memory_bytes must be finite and > 0 B, got {self.memory_bytes!r} for {self.name!r}"
            )
        if self.node < 0:
            raise ConfigError(f"Device.node must be >= 0, got {self.node} for {self.name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A resource that transfers share: one direction of a full-duplex link, or both of a half-duplex one."""

    name: str
    source: int
    """Vertex of the device graph."""
    target: int
    both_ways: bool
    """Half duplex: transfers from target to source share this link too."""
    bandwidth_bytes_per_s: float
    """Payload rate, not the signalling rate."""
    latency: Latency
    exclusive: bool
    """Serves one transfer at a time; otherwise transfers share it fairly."""
    link_class: str
    """What kind of link it is, such as ``nvlink1``."""

    def __post_init__(self) -> None:
        if not 0 < self.bandwidth_bytes_per_s < math.inf:
            raise ConfigError(
                "Link.bandwidth_bytes_per_s must be finite and > 0 B/s, "
                f"got {self.bandwidth_bytes_per_s!r} for {self.name!r}"
            )

    @property
    def routing_cost(self) -> int:
        """Picoseconds that a message of ``ROUTING_BYTES`` takes over this link alone."""
        seconds = self.latency.at(ROUTING_BYTES) + ROUTING_BYTES / self.bandwidth_bytes_per_s
        return round(seconds * PICOSECONDS)


class DeviceGraph:
    """Devices and switches, and the links between them.

    Routes take the least sum over links of latency + size / bandwidth for a message of 1 MiB; ties go to
    fewer links, then to smaller vertices.  Devices never forward what others send.

    Args:
        name: What the user called the cluster.
        devices: In order; device i is vertex i.
        switches: Names of the other vertices (switches, network cards, hosts), which follow the devices.
        links: In the order that link indices count.
        hosts: Names of the switches that are a host's memory: what crosses one is copied there and copied on.

    Raises:
        ConfigError: There is no device, two vertices have one name, a host is no switch, or a link ends at no
            vertex or where it starts.
        UnreachableError: Two devices that no route joins; the message names both.
    """

    def __init__(
        self,
        name: str,
        devices: Sequence[Device],
        switches: Sequence[str],
        links: Sequence[Link],
        *,
        hosts: Collection[str] = (),
    ) -> None:
        self.name = name
        self.spec = name
        """What ``load_cluster`` was asked for: it leads back here."""
        self.devices = tuple(devices)
        self.vertices = (*(device.name for device in self.devices), *switches)
        self.links = tuple(links)
        self.hosts = frozenset(hosts)
        self._check()
        self.node_count = 1 + max(device.node for device in self.devices)
        arcs = self._arcs()
        pair = unreachable_pair(len(self.devices), len(self.vertices), arcs)
        if pair is not None:
            self._raise_unreachable(*pair)
        self._router = Router(len(self.devices), len(self.vertices), arcs)
        self._routes: dict[tuple[int, int], tuple[int, ...]] = {}

    def with_profiles(self, profiles: Mapping[str, str]) -> "DeviceGraph":
        """The same cluster with other compute profiles, names or paths, in place of those that devices have."""
        devices = [replace(device, profile=profiles.get(device.profile, device.profile)) for device in self.devices]
        graph = DeviceGraph(self.name, devices, self.vertices[len(devices) :], self.links, hosts=self.hosts)
        graph.spec = self.spec
        return graph

    def _check(self) -> None:
        if not self.devices:
            raise ConfigError(f"devices of {self.name!r} must be at least one, got none")
        seen: set[str] = set()
        for vertex in self.vertices:
            if vertex in seen:
                raise ConfigError(f"vertices of {self.name!r} need different names, got {vertex!r} twice")
            seen.add(vertex)
        count, switches = len(self.vertices), self.vertices[len(self.devices) :]
        for host in sorted(self.hosts.difference(switches)):
            raise ConfigError(f"hosts of {self.name!r} must be switches of it, got {host!r}")
        for link in self.links:
            if not (0 <= link.source < count and 0 <= link.target < count and link.source != link.target):
                raise ConfigError(
                    f"link {link.name!r} must join two different vertices of 0 .. {count - 1}, "
                    f"got {link.source} and {link.target}"
                )

    def _arcs(self) -> list[Arc]:
        arcs = []
        costs: dict[tuple[float, Latency], int] = {}  # a thousand devices have a handful of kinds of links
        for i, link in enumerate(self.links):
            kind = (link.bandwidth_bytes_per_s, link.latency)
            cost = costs[kind] if kind in costs else costs.setdefault(kind, link.routing_cost)
            arcs.append(Arc(link.source, link.target, i, cost))
            if link.both_ways:
                arcs.append(Arc(link.target, link.source, i, cost))
        return arcs

    def _raise_unreachable(self, source: int, target: int) -> None:
        raise UnreachableError(
            f"no route leads from device {self.vertices[source]!r} to {self.vertices[target]!r} in cluster "
            f"{self.name!r}; join them by links over switches, devices forward nothing for others"
        )

    def route(self, source: int, target: int) -> tuple[int, ...]:
        """Links from device ``source`` to device ``target``, in order; () from a device to itself.

        Raises:
            ConfigError: One of the two is no device.
        """
        if (source, target) not in self._routes:
            for device in (source, target):
                if not 0 <= device < len(self.devices):
                    raise ConfigError(f"device must be in 0 .. {len(self.devices) - 1}, got {device}")
            found = self._router.route(source, target)
            assert found is not None, "connectivity was checked when the graph was made"
            self._routes[source, target] = found
        return self._routes[source, target]

    @cached_property
    def bandwidth(self) -> Floats:
        """Bytes/s of every link, shape (L,)."""
        return np.array([link.bandwidth_bytes_per_s for link in self.links], dtype=np.float64)

    def latency_s(self, source: int, target: int, size_bytes: float) -> float:
        """Sum of the latencies along the route, for a message of ``size_bytes``."""
        return float(sum(self.links[link].latency.at(size_bytes) for link in self.route(source, target)))

    def route_table(self) -> RouteTable:
        """Routes of all pairs of devices as arrays, for compiled code; computed once."""
        return self._route_table

    @cached_property
    def _route_table(self) -> RouteTable:
        return self._router.table()

    def latency_table(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Latencies of all links as arrays, for compiled code.

        Returns:
            Sizes in bytes and seconds, shape (L, K) each, and the number of rows that count, shape (L,);
            padding repeats the last row.
        """
        return self._latency_table

    @cached_property
    def _latency_table(self) -> tuple[Floats, Floats, NDArray[np.int64]]:
        count = np.array([len(link.latency.seconds) for link in self.links], dtype=np.int64)
        width = int(count.max(initial=1))

        def padded(row: tuple[float, ...]) -> tuple[float, ...]:
            return row + row[-1:] * (width - len(row))

        shape = (len(self.links), width)
        sizes = np.array([padded(link.latency.sizes_bytes) for link in self.links], dtype=np.float64)
        seconds = np.array([padded(link.latency.seconds) for link in self.links], dtype=np.float64)
        return sizes.reshape(shape), seconds.reshape(shape), count

    @cached_property
    def digest(self) -> str:
        """Hash of everything; copy engines, hosts, speeds and overheads of messages where any are given."""
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
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_links(self, links: Sequence[Link]) -> "DeviceGraph":
        """The same devices and switches joined by other links."""
        return DeviceGraph(self.name, self.devices, self.vertices[len(self.devices) :], links, hosts=self.hosts)

    def with_devices(self, devices: Sequence[Device]) -> "DeviceGraph":
        """Other devices in the same places."""
        return DeviceGraph(self.name, devices, self.vertices[len(self.devices) :], self.links, hosts=self.hosts)

    def take(self, count: int) -> "DeviceGraph":
        """The same cluster with its first ``count`` devices only; see ``only``."""
        if not 1 <= count <= len(self.devices):
            raise ConfigError(f"number of devices must be in 1 .. {len(self.devices)} of {self.name!r}, got {count}")
        return self.only(range(count))

    def only(self, device_indices: Sequence[int]) -> "DeviceGraph":
        """The same cluster with some of its devices, in the order given.

        Every switch stays, and every link that joins vertices that stay, so the routes that remain are
        the same; devices and the nodes that still hold some are counted anew from 0.

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
            hosts=self.hosts,
        )
