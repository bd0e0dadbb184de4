"""Shortest routes between the devices of a graph whose devices forward nothing for others."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Ints

__all__ = ["Arc", "RouteTable", "Router", "unreachable_pair"]


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


class _Unset(dict[int, int]):
    """Numbers by vertex; -1 for vertices that have none."""

    def __missing__(self, vertex: int) -> int:
        return -1


_Step = tuple[int, int, int]
"""Vertex reached, cost and one link as one integer, link."""


class Router:
    """Finds shortest routes by Dijkstra searches: for the table one a source, which it keeps, else one a route.

    Vertices 0 .. ``device_count`` - 1 are devices: they end routes and never lie inside one.  Of equally
    cheap routes the one of fewest links is taken, then the one whose last inner vertex is smallest, and
    so on backwards; then the smallest link.
    """

    def __init__(self, device_count: int, vertex_count: int, arcs: Sequence[Arc]) -> None:
        self._device_count = device_count
        self._inner: list[list[_Step]] = [[] for _ in range(vertex_count)]
        self._last: list[list[_Step]] = [[] for _ in range(vertex_count)]
        for arc in sorted(arcs, key=lambda arc: arc.link):
            ends = self._last if arc.target < device_count else self._inner
            ends[arc.source].append((arc.target, (arc.cost << LINKS_BITS) + 1, arc.link))
        self._trees: dict[int, tuple[Ints, Ints]] = {}
        self._beside: list[set[int]] = [set() for _ in range(vertex_count)]
        for arc in arcs:
            self._beside[arc.source].add(arc.target)
            self._beside[arc.target].add(arc.source)

    @cached_property
    def _blocks(self) -> tuple[list[tuple[int, ...]], list[int]]:
        """For every switch outside the trunk, the block that joins it to the trunk, and where in it that block hangs.

        Blocks are pieces of the network of switches that one switch alone separates from the rest, such as a node's
        behind its rack's; the trunk is the largest.  A route, which meets no switch twice, enters a block only on the
        way to a target in or behind it.
        """
        import networkx  # takes 0.2 s: only where routes are searched one by one

        joined = networkx.Graph(
            (a, b) for a, ends in enumerate(self._beside) for b in ends if min(a, b) >= self._device_count
        )
        pieces: Any = networkx.biconnected_components(joined)  # sets of vertices, whatever the stubs say
        blocks = sorted((tuple(sorted(piece)) for piece in pieces), key=_largest_first)
        meeting: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            for vertex in block:
                meeting.setdefault(vertex, []).append(number)
        around: list[tuple[int, ...]] = [()] * len(self._beside)
        above, done = [-1] * len(self._beside), set[int]()
        for first in range(len(blocks)):  # of separate networks each has a trunk
            stack = [(first, -1)]
            while stack:
                number, hook = stack.pop()
                if number in done:
                    continue
                done.add(number)
                for vertex in blocks[number]:
                    if vertex != hook:
                        around[vertex], above[vertex] = (blocks[number], hook) if hook >= 0 else ((), -1)
                        stack += [(other, vertex) for other in meeting[vertex] if other not in done]
        return around, above

    def _on_the_way(self, *devices: int) -> set[int]:
        """Vertices outside the trunk that a route between the devices may cross."""
        (around, above), found = self._blocks, set(devices)
        for device in devices:
            for vertex in self._beside[device]:
                while vertex >= self._device_count and around[vertex]:
                    found.update(around[vertex])
                    vertex = above[vertex]
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

    def _search(self, source: int, target: int = -1) -> tuple[Sequence[int] | _Unset, Sequence[int] | _Unset]:
        """For every vertex, the vertex before it and the link between them; -1 where there is none.

        With a target, only what is on its route is sure to be right.
        """
        known: tuple[list[int] | _Unset, ...] = tuple(
            _Unset() if target >= 0 else [-1] * len(self._inner) for _ in range(3)
        )
        best, before, by = known
        useful = sorted(self._on_the_way(source, target)) if target >= 0 else []
        best[source] = 0
        heap = [(0, source)]
        while heap:
            key, vertex = heapq.heappop(heap)
            if key > best[vertex]:
                continue
            if target >= 0 and 0 <= best[target] <= key:  # every step costs at least 1: nothing better follows
                break
            if target >= 0:
                steps = chain(self._trunk[vertex], *(self._hanging.get((vertex, end), ()) for end in useful))
            else:
                steps = chain(self._inner[vertex], self._last[vertex])
            for end, step, link in steps:
                found, least = key + step, best[end]
                # Every step costs at least 1, so a tie is always met before its vertex is left.
                if least < 0 or found < least or (found == least and vertex < before[end]):
                    best[end], before[end], by[end] = found, vertex, link
                    # Devices end routes, so only inner vertices are searched from.
                    if end >= self._device_count and found != least:
                        heapq.heappush(heap, (found, end))
        return before, by

    @cached_property
    def _trunk(self) -> list[list[_Step]]:
        """Steps from every vertex to switches of the trunk."""
        _, above = self._blocks
        return [[step for step in steps if above[step[0]] < 0] for steps in self._inner]

    @cached_property
    def _hanging(self) -> dict[tuple[int, int], list[_Step]]:
        """The other steps, by the vertices that they join: few of a switch's thousand are of use to one route."""
        found: dict[tuple[int, int], list[_Step]] = {}
        _, above = self._blocks
        for vertex, steps in enumerate(zip(self._inner, self._last, strict=True)):
            for step in chain(*steps):
                if step[0] < self._device_count or above[step[0]] >= 0:
                    found.setdefault((vertex, step[0]), []).append(step)
        return found


def _largest_first(block: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return -len(block), block


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
    joined: set[tuple[int, int]] = set()
    for a, b in pairs:
        if a < device_count:
            if b < device_count:
                reach[a, b] = True
            else:
                joined.add((a, root(b)))
    column = {group: number for number, group in enumerate(dict.fromkeys(group for _, group in sorted(joined)))}
    member = np.zeros((device_count, len(column)), dtype=np.float32)
    for a, group_root in joined:
        member[a, column[group_root]] = 1
    if member.all(axis=0).any():  # one group joins all, as nearly always: a matrix of pairs would take seconds
        return np.broadcast_to(np.True_, reach.shape)
    return np.asarray(reach | (member @ member.T > 0))
