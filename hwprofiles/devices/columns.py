"""The devices and the links of a cluster as columns: thousands of rows of a few kinds, made into objects on demand.

A cluster of four devices of two kinds, one a node::

    kinds  [a, b]      kind  [0, 0, 0, 1]      node  [0, 1, 2, 3]      names  ("node0/gpu0", ...)
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Ints
from groundwork.rows_on_demand import RowsOnDemand
from hwprofiles.devices.device import Device
from hwprofiles.devices.link import Link

_Row = TypeVar("_Row")


class _Columns(RowsOnDemand[_Row]):
    """Rows that are equal but for their names and places to one of a few kinds."""

    def __init__(self, kinds: Sequence[_Row], kind: Ints, names: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        """A row of each kind, without name and place."""
        self.kind = kind
        """Kind of each row, shape (rows,)."""
        self.names = names
        """Name of each row."""

    def __len__(self) -> int:
        return len(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(operator.eq, self, other))

    __hash__ = None  # type: ignore[assignment]  # as a list, it is compared by what it holds

    def __repr__(self) -> str:
        return repr(tuple(self))

    def of_each(self, value: Callable[[_Row], Any]) -> NDArray[Any]:
        """Return a value of each row that its kind decides, shape (rows,)."""
        return np.array([value(kind) for kind in self.kinds])[self.kind]

    def _changed_kinds(self, chosen: Bools, change: Callable[[_Row], _Row]) -> tuple[list[_Row], Ints]:
        """Return the kinds that are left of rows of which some were changed alike, and that of each row."""
        hit = np.unique(self.kind[chosen])
        kind, number = self.kind.copy(), np.zeros(len(self.kinds), dtype=np.int64)
        number[hit] = len(self.kinds) + np.arange(len(hit))
        kind[chosen] = number[kind[chosen]]
        kinds = [*self.kinds, *(change(self.kinds[i]) for i in hit.tolist())]
        # As from the rows themselves, kinds are in the order in which they first occur.
        left = kind[np.sort(np.unique(kind, return_index=True)[1])]
        number = np.zeros(len(kinds), dtype=np.int64)
        number[left] = np.arange(len(left))
        return [kinds[i] for i in left.tolist()], number[kind]

    def told_apart(self) -> tuple[list[tuple[Any, ...]], Ints]:
        """Return what the kinds hold, as they first occur and each once, and the index of each row's, shape (rows,)."""
        used, first = np.unique(self.kind, return_index=True)
        known: dict[tuple[Any, ...], int] = {}
        number = np.zeros(len(self.kinds), dtype=np.int64)
        for kind in used[np.argsort(first)].tolist():
            number[kind] = known.setdefault(astuple(self.kinds[kind]), len(known))
        return list(known), number[self.kind]


def _by_kind(rows: Sequence[_Row], place: Mapping[str, Any]) -> tuple[list[_Row], Ints]:
    """Return the kinds of rows, and that of each."""
    known: dict[object, int] = {}
    kinds, found = list[_Row](), []
    for row in rows:
        key = tuple(getattr(row, field.name) for field in fields(row) if field.name not in place)  # type: ignore[arg-type]
        if key not in known:
            known[key] = len(kinds)
            kinds.append(replace(row, **place))  # type: ignore[type-var]
        found.append(known[key])
    return kinds, np.array(found, dtype=np.int64)


class ClusterDevices(_Columns[Device]):
    """The devices of a cluster.

    Args:
        kinds: A device of each kind, without a name, in node 0.
        kind: Kind of each device, shape (devices,).
        names: Name of each device.
        node: Node of each device, shape (devices,).
    """

    def __init__(self, kinds: Sequence[Device], kind: Ints, names: Sequence[str], node: Ints) -> None:
        super().__init__(kinds, kind, names)
        self.node = node
        """Node of each device, shape (devices,)."""

    @classmethod
    def of(cls, devices: Sequence[Device]) -> "ClusterDevices":
        """Return devices as columns."""
        if isinstance(devices, ClusterDevices):
            return devices
        kinds, kind = _by_kind(devices, {"name": "", "node": 0})
        node = np.array([device.node for device in devices], dtype=np.int64)
        return cls(kinds, kind, tuple(device.name for device in devices), node)

    def _row(self, index: int) -> Device:
        kind: Device = self.kinds[self.kind[index]]
        return replace(kind, name=self.names[index], node=int(self.node[index]))

    def changed_kinds(self, change: Callable[[Device], Device]) -> "ClusterDevices":
        """Return the devices with each kind changed; their names and nodes stay."""
        return ClusterDevices([change(kind) for kind in self.kinds], self.kind, self.names, self.node)

    def changed(self, chosen: Bools, change: Callable[[Device], Device]) -> "ClusterDevices":
        """Return the devices with some changed alike; their names and nodes stay."""
        return ClusterDevices(*self._changed_kinds(chosen, change), self.names, self.node)


class LinkNames(RowsOnDemand[str]):
    """Names that say which vertices a link joins: ``node0/gpu0 -> node0/nic0``, or ``--`` for both ways.

    Args:
        vertices: Names of the vertices.
        source: Vertex of each link, shape (L,).
        target: Vertex of each link, shape (L,).
        both_ways: Flag of each link, shape (L,).
    """

    def __init__(self, vertices: Sequence[str], source: Ints, target: Ints, both_ways: Bools) -> None:
        self._vertices, self._source, self._target, self._both_ways = vertices, source, target, both_ways

    def __len__(self) -> int:
        return len(self._source)

    def _row(self, index: int) -> str:
        ends = self._vertices[self._source[index]], self._vertices[self._target[index]]
        return f"{ends[0]} {'--' if self._both_ways[index] else '->'} {ends[1]}"


class ClusterLinks(_Columns[Link]):
    """The links of a cluster.

    Args:
        kinds: A link of each kind, without a name, from vertex 0 to vertex 0.
        kind: Kind of each link, shape (L,).
        names: Name of each link.
        source: Vertex of each link, shape (L,).
        target: Vertex of each link, shape (L,).
    """

    def __init__(self, kinds: Sequence[Link], kind: Ints, names: Sequence[str], source: Ints, target: Ints) -> None:
        super().__init__(kinds, kind, names)
        self.source, self.target = source, target
        """Vertices that each link joins, shape (L,)."""

    @classmethod
    def of(cls, links: Sequence[Link]) -> "ClusterLinks":
        """Return links as columns."""
        if isinstance(links, ClusterLinks):
            return links
        kinds, kind = _by_kind(links, {"name": "", "source": 0, "target": 0})
        ends = np.array([(link.source, link.target) for link in links], dtype=np.int64).reshape(-1, 2)
        return cls(kinds, kind, tuple(link.name for link in links), ends[:, 0], ends[:, 1])

    def _row(self, index: int) -> Link:
        ends = int(self.source[index]), int(self.target[index])
        kind: Link = self.kinds[self.kind[index]]
        return replace(kind, name=self.names[index], source=ends[0], target=ends[1])

    @property
    def classes(self) -> NDArray[np.str_]:
        """Class of each link, shape (L,)."""
        return self.of_each(lambda link: link.link_class)

    def changed_kinds(self, change: Callable[[Link], Link]) -> "ClusterLinks":
        """Return the links with each kind changed; their names and ends stay."""
        return ClusterLinks([change(kind) for kind in self.kinds], self.kind, self.names, self.source, self.target)

    def changed(self, chosen: Bools, change: Callable[[Link], Link]) -> "ClusterLinks":
        """Return the links with some changed alike; their names and ends stay."""
        return ClusterLinks(*self._changed_kinds(chosen, change), self.names, self.source, self.target)

    def some(self, indices: Ints) -> "ClusterLinks":
        """Return some of the links, in the order given."""
        names = tuple(self.names[i] for i in indices.tolist())
        return ClusterLinks(self.kinds, self.kind[indices], names, self.source[indices], self.target[indices])
