"""Shortest routes between the devices of a graph whose devices forward nothing for others."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arc", "RouteTable", "Router", "unreachable_pair"]

Ints = NDArray[np.int64]

LINKS_BITS = 16
"""The search compares (cost, links) as one integer: the cost shifted by so many bits, plus the links."""


@dataclass(frozen=True, slots=True)
class Arc:
    """One direction in which a link can be crossed."""

    source: int
    target: int
    link: int
    cost: int
    """Whole picoseconds, so that sums are exact and ties do not depend on the order of addition."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Routes of all pairs of D devices, rows of one list of links."""

    start: Ints
    """Shape (D * D + 1,): pair (a, b) is row ``a * D + b``, ``links[start[row]:start[row + 1]]``."""
    links: NDArray[np.int32]


class Router:
    """Finds shortest routes by Dijkstra searches: for the table one a source, which it keeps, else one a route.

    Vertices 0 .. ``device_count`` - 1 are devices: they end routes and never lie inside one.  Of equally
    cheap routes the one of fewest links is taken, then the one whose last inner vertex is smallest, and
    so on backwards; then the smallest link.
    """

    def __init__(self, device_count: int, vertex_count: int, arcs: Sequence[Arc]) -> None:
        self._device_count = device_count
        self._inner: list[list[tuple[int, int, int]]] = [[] for _ in range(vertex_count)]
        self._last: list[list[tuple[int, int, int]]] = [[] for _ in range(vertex_count)]
        for arc in sorted(arcs, key=lambda arc: arc.link):
            ends = self._last if arc.target < device_count else self._inner
            ends[arc.source].append((arc.target, (arc.cost << LINKS_BITS) + 1, arc.link))
        self._trees: dict[int, tuple[Ints, Ints]] = {}
        self._beside: list[set[int]] = [set() for _ in range(vertex_count)]
        for arc in arcs:
            self._beside[arc.source].add(arc.target)
            self._beside[arc.target].add(arc.source)
        self._way_out = self._branches()

    def _branches(self) -> list[int]:
        """For every vertex in a branch that only devices hang on, the next one towards the rest; -1 elsewhere.

        A route enters such a branch only to a target in it, and leaves it only from a source in it.
        """
        beside = [{end for end in ends if end >= self._device_count} for ends in self._beside]
        way_out = [-1] * len(beside)
        bare = [vertex for vertex in range(self._device_count, len(beside)) if len(beside[vertex]) == 1]
        while bare:
            vertex = bare.pop()
            if beside[vertex]:
                way_out[vertex] = beside[vertex].pop()
                beside[way_out[vertex]].discard(vertex)
                if len(beside[way_out[vertex]]) == 1:
                    bare.append(way_out[vertex])
        return way_out

    def _on_the_way(self, *devices: int) -> set[int]:
        """Vertices of branches that a route between the devices may cross."""
        found = set(devices)
        for device in devices:
            for vertex in self._beside[device]:
                while vertex not in found and vertex >= self._device_count:
                    found.add(vertex)
                    vertex = self._way_out[vertex]
        return found

    def route(self, source: int, target: int) -> tuple[int, ...] | None:
        """Links from device ``source`` to device ``target``, in order; None where there is no route."""
        before, by = self._trees[source] if source in self._trees else self._search(source, target)
        links: list[int] = []
        while target != source:
            if by[target] < 0:
                return None
            links.append(int(by[target]))
            target = int(before[target])
        return tuple(reversed(links))

    def table(self) -> RouteTable:
        """Routes of all pairs; every device must reach every other."""
        rows = [self._rows(source) for source in range(self._device_count)]
        start = np.zeros(self._device_count**2 + 1, dtype=np.int64)
        if rows:
            np.cumsum(np.concatenate([lengths for lengths, _ in rows]), out=start[1:])
        links = np.concatenate([links for _, links in rows]) if rows else np.zeros(0, dtype=np.int32)
        return RouteTable(start, links)

    def _rows(self, source: int) -> tuple[Ints, NDArray[np.int32]]:
        """Lengths and links of the routes from one device to all, walked back from all targets at once."""
        before, by = self._tree(source)
        at = np.arange(self._device_count)
        walked: list[tuple[Ints, Ints]] = []
        lengths = np.zeros(self._device_count, dtype=np.int64)
        while len(going := np.flatnonzero(at != source)):
            assert (by[at[going]] >= 0).all(), "connectivity is checked when the graph is made"
            walked.append((going, by[at[going]]))
            at[going] = before[at[going]]
            lengths[going] += 1
        end = np.cumsum(lengths)
        links = np.empty(int(lengths.sum()), dtype=np.int32)
        for back, (targets, crossed) in enumerate(walked):
            links[end[targets] - 1 - back] = crossed
        return lengths, links

    def _tree(self, source: int) -> tuple[Ints, Ints]:
        if source not in self._trees:
            before, by = self._search(source)
            self._trees[source] = np.array(before, dtype=np.int64), np.array(by, dtype=np.int64)
        return self._trees[source]

    def _search(self, source: int, target: int = -1) -> tuple[list[int], list[int]]:
        """For every vertex, the vertex before it and the link between them; -1 where there is none.

        With a target, only what is on its route is sure to be right.
        """
        useful = self._on_the_way(source, target) if target >= 0 else set(range(len(self._inner)))
        best = [-1] * len(self._inner)
        before, by = best.copy(), best.copy()
        best[source] = 0
        heap = [(0, source)]
        while heap:
            key, vertex = heapq.heappop(heap)
            if key > best[vertex]:
                continue
            if target >= 0 and 0 <= best[target] <= key:  # every step costs at least 1: nothing better follows
                break
            for ends, inner in ((self._inner[vertex], True), (self._last[vertex], False)):
                for end, step, link in ends:
                    if end not in useful and (end < self._device_count or self._way_out[end] >= 0):
                        continue
                    found, known = key + step, best[end]
                    # Every step costs at least 1, so a tie is always met before its vertex is left.
                    if known < 0 or found < known or (found == known and vertex < before[end]):
                        best[end], before[end], by[end] = found, vertex, link
                        # Devices end routes, so only inner vertices are searched from.
                        if inner and found != known:
                            heapq.heappush(heap, (found, end))
        return before, by


def unreachable_pair(device_count: int, vertex_count: int, arcs: Sequence[Arc]) -> tuple[int, int] | None:
    """First pair of devices (a, b) such that no route leads from a to b; None where all are joined.

    Cheap where links lead both ways, as in every cluster file: then a device reaches what its groups of
    connected switches reach, and what it is linked to.  One-way links are searched in full.
    """
    pairs = {(arc.source, arc.target) for arc in arcs}
    if any((target, source) not in pairs for source, target in pairs):
        reach = _searched(device_count, vertex_count, arcs)
    else:
        reach = _grouped(device_count, vertex_count, pairs)
    if reach.all():
        return None
    first, second = np.unravel_index(int(reach.argmin()), reach.shape)
    return int(first), int(second)


def _searched(device_count: int, vertex_count: int, arcs: Sequence[Arc]) -> NDArray[np.bool_]:
    router = Router(device_count, vertex_count, arcs)
    devices = range(device_count)
    return np.array([[router.route(a, b) is not None for b in devices] for a in devices], dtype=bool).reshape(
        device_count, device_count
    )


def _grouped(device_count: int, vertex_count: int, pairs: set[tuple[int, int]]) -> NDArray[np.bool_]:
    group = list(range(vertex_count))

    def root(vertex: int) -> int:
        while group[vertex] != vertex:
            group[vertex] = group[group[vertex]]
            vertex = group[vertex]
        return vertex

    for a, b in pairs:
        if min(a, b) >= device_count:
            group[root(a)] = root(b)
    reach = np.eye(device_count, dtype=np.bool_)
    member = np.zeros((device_count, vertex_count), dtype=np.float32)
    for a, b in pairs:
        if a < device_count:
            if b < device_count:
                reach[a, b] = True
            else:
                member[a, root(b)] = 1
    member = member[:, member.any(axis=0)]
    if member.all(axis=0).any():  # one group joins all, as nearly always: a matrix of pairs would take seconds
        return np.broadcast_to(np.True_, reach.shape)
    return np.asarray(reach | (member @ member.T > 0))
