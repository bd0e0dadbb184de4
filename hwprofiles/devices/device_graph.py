"""The device graph: devices, switches, the links that their transfers share, and the routes over them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, takewhile
from types import MappingProxyType

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError, UnreachableError
from groundwork.notebook_tables import html_table
from groundwork.units import GIB
from hwprofiles.devices.collective_library import CollectiveLibrary
from hwprofiles.devices.columns import ClusterDevices, ClusterLinks
from hwprofiles.devices.device import Device
from hwprofiles.devices.link import Link
from hwprofiles.devices.route_search import Arcs, RouteSearch
from hwprofiles.devices.routes import RouteTable, unreachable_pair

_LEAVING = 10**16
"""Cost of leaving a node, in picoseconds: more than any way inside takes."""


def _beginning(paths: Iterable[str]) -> str:
    """Return the words that paths have in common at their beginning; empty where there are none."""
    words = zip(*(path.split("/") for path in paths), strict=False)
    return "/".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, words))


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
        hashed: Whether each pair of devices takes one of several equal routes by a hash of the two.

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
        hashed: bool = False,
    ) -> None:
        self.name = name
        self.spec = name
        """Specification from which ``load_cluster`` loads this graph."""
        self.devices = ClusterDevices.of(devices)
        self.vertices = (*self.devices.names, *switches)
        self.links = ClusterLinks.of(links)
        self.hosts = dict(hosts)  # no proxy: ranks get the graph pickled
        """Node of each switch that is a host's memory."""
        self.library = library
        """Library of collectives; None where it is not known."""
        self.hashed = hashed
        """Flag that each pair of devices takes one of several equal routes by a hash of the two."""
        self._check()
        self.node_count = 1 + int(self.devices.node.max())
        arcs, part = self._arcs()
        pair = unreachable_pair(len(self.devices), len(self.vertices), arcs.source, arcs.target)
        if pair is not None:
            self._raise_unreachable(*pair)
        self._search = RouteSearch(len(self.devices), part, arcs, hashed=hashed)
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
        devices = self.devices.changed_kinds(
            lambda device: replace(device, profile=profiles.get(device.profile, device.profile))
        )
        graph = self.with_devices(devices)
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
        source, target = self.links.source, self.links.target
        joins = (np.minimum(source, target) >= 0) & (np.maximum(source, target) < count) & (source != target)
        for link in np.flatnonzero(~joins)[:1].tolist():
            raise ConfigError(
                f"link {self.links.names[link]!r} must join two different vertices of 0 .. {count - 1}, "
                f"got {source[link]} and {target[link]}"
            )

    def _arcs(self) -> tuple[Arcs, Ints]:
        """Return the directions in which links can be crossed, with their costs, and the part of each vertex."""
        links, (node, part) = self.links, self._places()
        ways = 1 + links.of_each(lambda link: link.both_ways).astype(np.int64)
        link = np.repeat(np.arange(len(links)), ways)
        back = np.concatenate([[False], link[1:] == link[:-1]])[: len(link)]  # the second way of a link
        source = np.where(back, links.target[link], links.source[link])
        target = np.where(back, links.source[link], links.target[link])
        cost = links.of_each(lambda link: link.routing_cost).astype(np.int64)[link]
        leaves = (node[source] >= 0) & (node[target] < 0)
        return Arcs(source, target, link, cost + _LEAVING * leaves), part

    def _places(self) -> tuple[Ints, Ints]:
        """Return the node and the part of each vertex, shape (V,), which names show; -1 outside all.

        Nodes are named by the beginning that the names of their devices share, parts by the first word in which the
        names of devices differ: racks of nodes, or nodes where there are no racks.
        """
        above = [name.rpartition("/")[0] for name in self.vertices]
        rows: dict[int, dict[str, int]] = {}  # paths of the devices of each node, with how many have it
        for path, node in zip(above, self.devices.node.tolist(), strict=False):
            paths = rows.setdefault(node, {})
            paths[path] = paths.get(path, 0) + 1
        # Where one device alone is on a node, its own name is all that it shares.
        shared = [_beginning(paths) for paths in rows.values() if len(paths) > 1 or min(paths.values()) > 1]
        starts = {start: i for i, start in enumerate(shared) if start}
        whole = _beginning(dict.fromkeys(above[: len(self.devices)]))
        depth = whole.count("/") + 1 if whole else 0
        parts: dict[str, int] = {}
        places: dict[str, tuple[int, int]] = {}
        for path in dict.fromkeys(above):
            levels = list(accumulate(path.split("/"), "{}/{}".format))
            node = next((starts[level] for level in levels if level in starts), -1)
            part = parts.setdefault(levels[depth], len(parts)) if path and len(levels) > depth else -1
            places[path] = node, part
        table = np.array([places[path] for path in above], dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

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
            _, links = self._search.find(np.array([source]), np.array([target]))
            self._routes[source, target] = tuple(links.tolist())
        return self._routes[source, target]

    def routes(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the number of links of the route of each pair of devices, and all their links, route after route.

        Args:
            source: Devices, shape (pairs,).
            target: Devices, shape (pairs,).
        """
        return self._search.find(source, target)

    @cached_property
    def bandwidth(self) -> Floats:
        """Bandwidth of every link in bytes/s, shape (L,)."""
        return self.links.of_each(lambda link: link.bandwidth_bytes_per_s).astype(np.float64)

    def latency_s(self, source: int, target: int, size_bytes: float) -> float:
        """Return the sum of the latencies along a route, for a message of ``size_bytes``."""
        return float(sum(self.links[link].latency.at(size_bytes) for link in self.route(source, target)))

    @property
    def like_parts(self) -> tuple[Ints, Ints]:
        """Part of each device, shape (devices,), and kind of each part; see ``RouteSearch.kind``.

        No kinds where a hash picks routes: those of like parts then differ.
        """
        return self._search.part[: len(self.devices)], self._search.kind[: 0 if self.hashed else None]

    def route_table(self) -> RouteTable:
        """Return the routes of all pairs of devices as arrays, for compiled code; computed once."""
        return self._route_table

    @cached_property
    def _route_table(self) -> RouteTable:
        """Routes of all pairs of devices."""
        return self._search.table()

    @cached_property
    def digest(self) -> str:
        """Hash of the whole graph, but for the names of links."""
        parts = [self.name, *self.vertices, repr(sorted(self.hosts.items())), repr(self.library)]
        parts += ["hashed"] * self.hashed
        hashed = hashlib.sha256("\n".join(parts).encode())
        for rows in (self.devices, self.links):
            kinds, kind = rows.told_apart()
            hashed.update("\n".join(map(repr, kinds)).encode())
            hashed.update(kind.tobytes())
        for column in (self.devices.node, self.links.source, self.links.target):
            hashed.update(column.tobytes())
        return hashed.hexdigest()[:16]

    def with_links(self, links: Sequence[Link]) -> "DeviceGraph":
        """Return the same devices and switches joined by other links."""
        return self._remade(self.devices, links)

    def with_devices(self, devices: Sequence[Device]) -> "DeviceGraph":
        """Return the same links and switches with other devices at the same vertices."""
        return self._remade(devices, self.links)

    def _remade(self, devices: Sequence[Device], links: Sequence[Link]) -> "DeviceGraph":
        """Return the same vertices with other properties of devices and links."""
        return DeviceGraph(
            self.name,
            devices,
            self.vertices[len(devices) :],
            links,
            hosts=self.hosts,
            library=self.library,
            hashed=self.hashed,
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
            hashed=self.hashed,
        )
