"""Routes between many pairs of devices: one search for all pairs that parts of one build, such as machines, make alike.

Two machines ``a`` and ``b`` of eight thousand that are wired alike, inside and to the switches outside, can change
places: what is the shortest route from ``a/gpu0`` to ``b/gpu3`` is, by other names, that between any two of them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Bools, Ints
from groundwork.sparse_rows import grouped_rows, numbered, row_entries
from hwprofiles.devices.routes import Arc, Router, RouteTable

_MOST_WAYS = 256
"""Equal routes between two devices that are told apart."""
_OUTSIDE = 2
"""Owner of links that both ends of a route may use, beside the parts of its source and of its target."""


class Arcs(NamedTuple):
    """The directions in which links can be crossed, in the order of links."""

    source: Ints
    """Vertex, shape (arcs,)."""
    target: Ints
    """Vertex, shape (arcs,)."""
    link: Ints
    """Link, shape (arcs,), rising."""
    cost: Ints
    """Time in picoseconds, shape (arcs,)."""

    def some(self, chosen: Bools, renumbered: Ints) -> list[Arc]:
        """Return some arcs one by one, between vertices of other numbers."""
        rows = (renumbered[self.source[chosen]], renumbered[self.target[chosen]], self.link[chosen], self.cost[chosen])
        return [Arc(*row) for row in zip(*(row.tolist() for row in rows), strict=True)]


class _Image(NamedTuple):
    """The equal routes between two devices as places in the parts of these, route by route."""

    counts: Ints
    """Number of links of each route."""
    owner: Ints
    """0 for a link of the source's part, 1 for one of the target's, ``_OUTSIDE`` for others."""
    place: Ints
    """Place of the link among those of its part; the link itself outside."""


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    """The network around two parts: what lies outside, and one third part of each kind."""

    ends: tuple[int, int]
    router: Router
    number: Ints
    """Number of each vertex of the whole network in it; -1 of others."""
    arcs: Ints


def _ways(router: Router, source: int, target: int, hashed: bool) -> list[tuple[int, ...]]:
    """Return the routes of which a pair of devices takes one."""
    if hashed and source != target:
        return router.equal_routes(source, target, _MOST_WAYS)
    return [router.route(source, target) or ()]


def _picked(source: Ints, target: Ints, ways: Ints) -> Ints:
    """Return which of its ways each pair of devices takes: a hash of the pair, even over all pairs.

    Source:
        The finalizer of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    bits = (source.astype(np.uint64) << np.uint64(32)) + target.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return ((bits ^ (bits >> np.uint64(31))) % np.maximum(ways, 1).astype(np.uint64)).astype(np.int64)


class RouteSearch:
    """The routes of a cluster, searched once for all pairs of devices that symmetries make alike.

    Parts are alike where their arcs, and the vertices outside that these lead to, are the same: any two of them can
    change places.  A third part is only crossed where it is the smallest of its kind, for another would do as well.
    So a route is searched in a network of the two parts, one other of each kind, and what lies outside; if it crosses
    no third part even where ties go to those, it is the route between all parts of the two kinds in that order.

    Args:
        device_count: Devices are the vertices 0 .. ``device_count`` - 1.
        part: Part of each vertex, shape (V,); -1 outside all.
        arcs: Directions in which links can be crossed.
        hashed: Whether a hash of the two devices picks one of several equal routes, in place of a rule for ties.
    """

    def __init__(self, device_count: int, part: Ints, arcs: Arcs, *, hashed: bool = False) -> None:
        self._device_count, self.part, self._arcs, self._hashed = device_count, part, arcs, hashed
        self._images: dict[int, _Image | None] = {}
        self._networks: dict[tuple[int, int, int], _Near] = {}

    @cached_property
    def router(self) -> Router:
        """Searches in the whole network."""
        every = np.ones(len(self._arcs.link), dtype=np.bool_)
        return Router(self._device_count, len(self.part), self._arcs.some(every, np.arange(len(self.part))))

    @cached_property
    def _members(self) -> tuple[Ints, Ints]:
        """Vertices of each part, in order: first of each, and the vertices, part by part; those outside come first."""
        return grouped_rows(self.part + 1, int(self.part.max(initial=-1)) + 2)

    @cached_property
    def _local(self) -> Ints:
        """Place of each vertex in its part, shape (V,)."""
        start, order = self._members
        local = np.empty(len(self.part), dtype=np.int64)
        local[order] = np.arange(len(order)) - np.repeat(start[:-1], np.diff(start))
        return local

    @cached_property
    def _owner(self) -> Ints:
        """Part of each arc, shape (arcs,); -1 outside."""
        return np.maximum(self.part[self._arcs.source], self.part[self._arcs.target])

    @cached_property
    def _rows(self) -> tuple[Ints, Ints]:
        """Arcs of each part: first of each, and the arcs, part by part; those outside come first."""
        return grouped_rows(self._owner + 1, int(self.part.max(initial=-1)) + 2)

    @cached_property
    def _links(self) -> tuple[Ints, int]:
        """Links inside parts, part by part, and behind them all links by number; and how many are inside parts."""
        first, arcs = self._rows
        inside = self._arcs.link[arcs[first[1] :]]
        return np.concatenate([inside, np.arange(self._arcs.link.max(initial=-1) + 1)]), len(inside)

    @cached_property
    def kind(self) -> Ints:
        """Kind of each part, shape (parts,): parts of one kind are alike.  No parts where no two may be."""
        part, ends = self.part, (self.part[self._arcs.source], self.part[self._arcs.target])
        behind = part[self._device_count :]
        ordered = np.where(behind < 0, len(part), behind)
        # Ties go to smaller vertices: the order of parts must be that of their switches, and what is outside the last.
        if (part[: self._device_count] < 0).any() or (np.diff(ordered) < 0).any():
            return np.empty(0, dtype=np.int64)
        start, arcs = self._rows
        vertices = (self._arcs.source, self._arcs.target)
        rows = [np.where(side < 0, -1 - end, self._local[end]) for side, end in zip(ends, vertices, strict=True)]
        table = np.column_stack([*rows, self._arcs.cost])[arcs]
        count = len(start) - 2
        sizes = [
            np.bincount(each[each >= 0], minlength=count).tolist() for each in (part[: self._device_count], behind)
        ]
        joined = (ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1])
        alone = np.zeros(count, dtype=np.bool_)  # parts that cables join to others cannot change places with any
        for side in ends:
            alone[side[joined]] = True
        known: dict[object, int] = {}
        kind = [
            known.setdefault(i if alone[i] else (*size, table[start[i + 1] : start[i + 2]].tobytes()), len(known))
            for i, size in enumerate(zip(*sizes, strict=True))
        ]
        return np.array(kind if 2 * len(known) <= count else [], dtype=np.int64)

    def find(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return the number of links of the route of each pair of devices, and all their links, in order.

        Args:
            source: Devices, shape (pairs,).
            target: Devices, shape (pairs,).
        """
        if not len(self.kind):
            return self._one_by_one(source, target)
        ends = self.part[source], self.part[target]
        count, size = int(self.kind.max()) + 1, int(self._local[: self._device_count].max()) + 1
        kinds, locals_ = [self.kind[end] for end in ends], [self._local[each] for each in (source, target)]
        order = np.sign(ends[1] - ends[0])
        key = ((kinds[0] * count + kinds[1]) * size + locals_[0]) * size + locals_[1]
        example, group = numbered(key * 3 + order + 1, 3 * (count * size) ** 2)
        found = [self._image(int(source[i]), int(target[i]), int(key[i] * 3 + order[i] + 1)) for i in example.tolist()]
        if any(image is None for image in found):
            return self._one_by_one(source, target)
        each, owner, place = (np.concatenate(rows) for rows in zip(*(image for image in found if image), strict=True))
        ways = np.array([len(image.counts) for image in found if image])
        group = (np.cumsum(ways) - ways)[group] + _picked(source, target, ways[group])
        start, counts = np.cumsum(each) - each, each[group]
        entries = row_entries(start[group], counts)
        # A link inside a part is at a place behind the first of the part; all others are behind those of no part.
        first, (links, inside) = self._rows[0], self._links
        shift = [first[end + 1] - first[1] for end in ends]
        behind = np.column_stack([*shift, np.full(len(source), inside)]).ravel()  # by owner
        at = np.repeat((_OUTSIDE + 1) * np.arange(len(source)), counts)
        at += owner[entries]
        rows = behind[at]
        rows += place[entries]
        return counts, links[rows]

    def table(self) -> RouteTable:
        """Return the routes of all pairs of devices."""
        if not (len(self.kind) or self._hashed):
            return self.router.table()
        counts, links = self.find(*np.divmod(np.arange(self._device_count**2), self._device_count))
        return RouteTable(np.concatenate([[0], np.cumsum(counts)]), links.astype(np.int32))

    def _one_by_one(self, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """Return routes, each by a search of its own; as ``find``."""
        ways = [_ways(self.router, a, b, self._hashed) for a, b in zip(source.tolist(), target.tolist(), strict=True)]
        picked = _picked(source, target, np.array([len(each) for each in ways], dtype=np.int64))
        routes = [each[i] for each, i in zip(ways, picked.tolist(), strict=True)]
        links = [link for route in routes for link in route]
        return np.array([len(route) for route in routes], dtype=np.int64), np.array(links, dtype=np.int64)

    def _image(self, source: int, target: int, key: int) -> _Image | None:
        """Return the equal routes of all pairs that are alike; None where one crosses a third part."""
        if key not in self._images:
            self._images[key] = self._searched(source, target)
        return self._images[key]

    def _searched(self, source: int, target: int) -> _Image | None:
        """Return the equal routes of all pairs that are like this one; None where one crosses a third part."""
        near = self._near(int(self.part[source]), int(self.part[target]))
        start, vertices = self._members
        one, other = (
            int(near.number[vertices[start[end + 1] + self._local[device]]])
            for device, end in zip((source, target), near.ends, strict=True)
        )
        routes = _ways(near.router, one, other, self._hashed)
        links = np.array([link for route in routes for link in route], dtype=np.int64)
        arc = near.arcs[np.searchsorted(self._arcs.link[near.arcs], links)]
        parts = self._owner[arc]
        if not ((parts == -1) | (parts == near.ends[0]) | (parts == near.ends[1])).all():
            return None
        first, arcs = self._rows
        owner, place = np.full(len(arc), _OUTSIDE), self._arcs.link[arc].copy()
        for number, end in reversed([*enumerate(near.ends)]):  # of a route inside one part all links are the source's
            inside = parts == end
            owner[inside] = number
            place[inside] = np.searchsorted(arcs[first[end + 1] : first[end + 2]], arc[inside])
        return _Image(np.array([len(route) for route in routes], dtype=np.int64), owner, place)

    def _near(self, first: int, second: int) -> _Near:
        """Return the network around two parts of the kinds of these, and in their order."""
        key = (int(self.kind[first]), int(self.kind[second]), int(np.sign(second - first)))
        if key not in self._networks:
            ends = (first, second)
            left = np.setdiff1d(np.arange(len(self.kind)), ends)
            third = left[np.unique(self.kind[left], return_index=True)[1]]
            # Third parts get the smallest numbers, so that ties go to them, and what is outside the largest.
            chosen = np.array([*sorted(third.tolist()), *sorted({*ends})], dtype=np.int64)
            place = np.full(len(self.kind) + 1, -1)  # the last entry is that of the part -1
            place[chosen], place[-1] = np.arange(len(chosen)), len(chosen)
            at = place[self.part]
            kept = np.flatnonzero(at >= 0)
            kept = kept[np.lexsort((kept, at[kept], kept >= self._device_count))]
            number = np.full(len(self.part), -1, dtype=np.int64)
            number[kept] = np.arange(len(kept))
            used = (number[self._arcs.source] >= 0) & (number[self._arcs.target] >= 0)
            router = Router(int(np.count_nonzero(kept < self._device_count)), len(kept), self._arcs.some(used, number))
            self._networks[key] = _Near(ends, router, number, np.flatnonzero(used))
        return self._networks[key]
