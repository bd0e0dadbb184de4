"""Shortest routes between the devices of a graph whose devices forward nothing for others."""

import heapq
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Ints
from groundwork.sparse_rows import distinct

LINKS_BITS = 16
"""Bits of the number of links in the integer that the search compares: the cost, shifted by these, plus the links."""


@dataclass(frozen=True, slots=True)
class Arc:
    """One direction in which a link can be crossed."""

    source: int
    target: int
    link: int
    cost: int
    """Time in whole picoseconds, so that sums are exact and ties do not depend on the order of addition."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """The routes of all pairs of D devices, as compressed sparse rows of links."""

    start: Ints
    """Offsets, shape (D * D + 1,): pair (a, b) is row ``a * D + b``, ``links[start[row]:start[row + 1]]``."""
    links: NDArray[np.int32]
    """Links of the routes, row after row."""


class _Unset(dict[int, int]):
    """Integers by vertex; -1 for vertices that have none."""

    def __missing__(self, vertex: int) -> int:
        return -1


_Step = tuple[int, int, int]
"""A step over one link: the vertex reached, its cost plus 1 link as one integer, the link."""


class Router:
    """The shortest routes between devices, by Dijkstra searches.

    For the table there is one search for each source, which is kept; otherwise one for each route.  Vertices
    0 .. ``device_count`` - 1 are devices: they end routes and never lie inside one.  Of equally short routes the one
    of fewest links is taken, then the one whose last inner vertex is smallest, and so on backwards; then the smallest
    link.

    Source:
        Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1, 1959.
    """

    def __init__(self, device_count: int, vertex_count: int, arcs: Sequence[Arc]) -> None:
        self._device_count = device_count
        self._inner: list[list[_Step]] = [[] for _ in range(vertex_count)]
        self._last: list[list[_Step]] = [[] for _ in range(vertex_count)]
        # Cost and number of links add up as one integer, whose lower bits count the links: sums compare by cost first.
        for arc in sorted(arcs, key=lambda arc: arc.link):
            ends = self._last if arc.target < device_count else self._inner
            ends[arc.source].append((arc.target, (arc.cost << LINKS_BITS) + 1, arc.link))
        self._trees: dict[int, tuple[Ints, Ints]] = {}
        self._gates: dict[int, int | None] = {}
        self._legs: dict[tuple[int, int], tuple[int, ...] | None] = {}
        self._beside: list[set[int]] = [set() for _ in range(vertex_count)]
        for arc in arcs:
            self._beside[arc.source].add(arc.target)
            self._beside[arc.target].add(arc.source)

    @cached_property
    def _blocks(self) -> tuple[list[tuple[int, ...]], list[int]]:
        """Block that joins every switch outside the trunk to it, and the switch at which that block hangs.

        Blocks are the biconnected components of the network of switches: one switch alone separates such a part, for
        example a node's switches behind its rack's, from the rest; the trunk is the largest.  A route, which visits
        no switch twice, enters a block only on the way to a target in or behind it::

            trunk of spine and rack switches, with rack0 - switch of node3 - PCIe switch of node3 - gpu7

            above[switch of node3] = rack0
            above[PCIe switch of node3] = switch of node3
        """
        import networkx  # takes 0.2 s: only where routes are searched one by one

        joined = networkx.Graph(
            (a, b) for a, ends in enumerate(self._beside) for b in ends if min(a, b) >= self._device_count
        )
        components: Any = networkx.biconnected_components(
            joined
        )  # yields sets of vertices, where the stubs say otherwise
        blocks = sorted((tuple(sorted(component)) for component in components), key=lambda block: (-len(block), block))
        meeting: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            for vertex in block:
                meeting.setdefault(vertex, []).append(number)
        around: list[tuple[int, ...]] = [()] * len(self._beside)
        above, done = [-1] * len(self._beside), set[int]()
        for first in range(len(blocks)):  # each of several separate networks has a trunk
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
        """Return the vertices outside the trunk that a route between the devices may cross."""
        (around, above), useful = self._blocks, set(devices)
        for device in devices:
            for vertex in self._beside[device]:
                while vertex >= self._device_count and around[vertex]:
                    useful.update(around[vertex])
                    vertex = above[vertex]
        return useful

    def route(self, source: int, target: int) -> tuple[int, ...] | None:
        """Return the links from device ``source`` to device ``target``, in order; None where there is no route."""
        if source in self._trees:
            return _traced(*self._trees[source], source, target)
        gate, other = self._gate(source), self._gate(target)
        shared = self._beside[source] & self._beside[target]
        if gate is None or other is None:
            return self._searched(source, target)
        if gate == other:  # a way out and back would cross the gate twice
            return self._searched(source, target, {gate, *shared})
        if shared or target in self._beside[source]:
            return self._searched(source, target)
        legs = [self._leg(source, gate, {gate}), self._leg(gate, other), self._leg(other, target, {other})]
        return None if None in legs else tuple(link for leg in legs for link in leg or ())

    def _gate(self, device: int) -> int | None:
        """Return the switch of the trunk that a device's routes cross to those that share no switch with it.

        None where there are several.
        """
        if device not in self._gates:
            (around, above), ends = self._blocks, set[int]()
            for vertex in self._beside[device]:
                while vertex >= self._device_count and around[vertex]:
                    vertex = above[vertex]
                if vertex >= self._device_count and any(end >= self._device_count for end in self._beside[vertex]):
                    ends.add(vertex)  # other switches join devices alone
            self._gates[device] = ends.pop() if len(ends) == 1 else None
        return self._gates[device]

    def _leg(self, source: int, target: int, within: Set[int] | None = None) -> tuple[int, ...] | None:
        """Return the links between a device and its gate, or between two gates: many routes have them in common."""
        if (source, target) not in self._legs:
            self._legs[source, target] = self._searched(source, target, within)
        return self._legs[source, target]

    def _searched(self, source: int, target: int, within: Set[int] | None = None) -> tuple[int, ...] | None:
        """Return the links of a route by a search for it; ``within`` as for ``_search``."""
        before, by, _ = self._search(source, target, within)
        return _traced(before, by, source, target)

    def equal_routes(self, source: int, target: int, most: int) -> list[tuple[int, ...]]:
        """Return the routes between two devices that are equally short and of equally many links.

        Args:
            source: Device.
            target: Another device, which a route leads to.
            most: Number of routes that are returned where there are more: every so many of them.
        """
        best = self._search(source, target)[2]
        before: dict[int, list[tuple[int, int]]] = {}
        count, stack = {source: 1}, [target]
        while stack:  # a vertex is counted once all that may come before it are
            vertex = stack[-1]
            if vertex not in before:
                before[vertex] = [
                    (end, link)
                    for end, step, link in self._into[vertex]
                    if (end == source or end >= self._device_count) and 0 <= best[end] == best[vertex] - step
                ]
                stack += [end for end, _ in before[vertex] if end not in count]
            else:
                stack.pop()
                count.setdefault(vertex, sum(count[end] for end, _ in before[vertex]))
        total = count[target]
        numbers = range(total) if total <= most else [total * i // most for i in range(most)]
        return [self._numbered_route(before, count, target, number) for number in numbers]

    @staticmethod
    def _numbered_route(
        before: Mapping[int, Sequence[tuple[int, int]]], count: Mapping[int, int], vertex: int, number: int
    ) -> tuple[int, ...]:
        """Return one of the routes to a vertex: those over the first vertex before it come first, and so on."""
        links: list[int] = []
        while vertex in before:
            for end, link in before[vertex]:
                if number < count[end]:
                    vertex = end
                    links.append(link)
                    break
                number -= count[end]
        return tuple(reversed(links))

    @cached_property
    def _into(self) -> list[list[_Step]]:
        """Steps to every vertex: the vertex before it, the cost, the link."""
        into: list[list[_Step]] = [[] for _ in self._inner]
        for vertex, steps in enumerate(zip(self._inner, self._last, strict=True)):
            for end, step, link in chain(*steps):
                into[end].append((vertex, step, link))
        return into

    def table(self) -> RouteTable:
        """Return the routes of all pairs; every device must reach every other."""
        rows = [self._rows(source) for source in range(self._device_count)]
        start = np.zeros(self._device_count**2 + 1, dtype=np.int64)
        if rows:
            np.cumsum(np.concatenate([lengths for lengths, _ in rows]), out=start[1:])
        links = np.concatenate([links for _, links in rows]) if rows else np.zeros(0, dtype=np.int32)
        return RouteTable(start, links)

    def _rows(self, source: int) -> tuple[Ints, NDArray[np.int32]]:
        """Return the lengths and links of the routes from one device to all, traced back from all targets at once."""
        before, by = self._tree(source)
        at = np.arange(self._device_count)
        # Entry k has the targets whose routes have more than k links, and the k-th links from their ends.
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
        """Return the kept search from a device; see ``_search``."""
        if source not in self._trees:
            before, by, _ = self._search(source)
            self._trees[source] = np.array(before, dtype=np.int64), np.array(by, dtype=np.int64)
        return self._trees[source]

    def _search(self, source: int, target: int = -1, within: Set[int] | None = None) -> tuple[list[int] | _Unset, ...]:
        """Search from a device, or from a switch of the trunk.

        Args:
            source: Where routes begin.
            target: Where the only route ends that is wanted.
            within: Switches of the trunk, or beside devices alone, that this route may enter; any unless given.

        Returns:
            For every vertex the vertex before it on its route, the link between them, and the cost plus the number of
            links; -1 where there is none.  With a target, only the entries on routes to it are final.
        """
        known: tuple[list[int] | _Unset, ...] = tuple(
            _Unset() if target >= 0 else [-1] * len(self._inner) for _ in range(3)
        )
        best, before, by = known
        devices = [end for end in (source, target) if 0 <= end < self._device_count]
        useful = sorted(self._on_the_way(*devices)) if target >= 0 else []
        best[source] = 0
        heap = [(0, source)]
        while heap:
            key, vertex = heapq.heappop(heap)
            if key > best[vertex]:
                continue
            if target >= 0 and 0 <= best[target] <= key:  # every step costs at least 1: nothing better follows
                break
            if target >= 0:
                trunk = self._trunk[vertex]
                if within is not None:
                    trunk = [step for step in trunk if step[0] in within]
                steps = chain(trunk, *(self._hanging.get((vertex, end), ()) for end in useful))
            else:
                steps = chain(self._inner[vertex], self._last[vertex])
            for end, step, link in steps:
                cost, least = key + step, best[end]
                # Every step costs at least 1, so a tie is always seen before its vertex is left.
                if least < 0 or cost < least or (cost == least and vertex < before[end]):
                    best[end], before[end], by[end] = cost, vertex, link
                    # Devices end routes, so only inner vertices are searched from.
                    if end >= self._device_count and cost != least:
                        heapq.heappush(heap, (cost, end))
        return before, by, best

    @cached_property
    def _trunk(self) -> list[list[_Step]]:
        """Steps from every vertex to switches of the trunk."""
        _, above = self._blocks
        return [[step for step in steps if above[step[0]] < 0] for steps in self._inner]

    @cached_property
    def _hanging(self) -> dict[tuple[int, int], list[_Step]]:
        """Other steps, by the vertices that they join: few of the thousand steps of a switch matter to one route."""
        hanging: dict[tuple[int, int], list[_Step]] = {}
        _, above = self._blocks
        for vertex, steps in enumerate(zip(self._inner, self._last, strict=True)):
            for step in chain(*steps):
                if step[0] < self._device_count or above[step[0]] >= 0:
                    hanging.setdefault((vertex, step[0]), []).append(step)
        return hanging


def _traced(
    before: Sequence[int] | Ints | _Unset, by: Sequence[int] | Ints | _Unset, source: int, target: int
) -> tuple[int, ...] | None:
    """Return the links to a vertex, given the vertex and the link before each; None where nothing leads there."""
    links: list[int] = []
    while target != source:
        if by[target] < 0:
            return None
        links.append(int(by[target]))
        target = int(before[target])
    return tuple(reversed(links))


def unreachable_pair(device_count: int, vertex_count: int, source: Ints, target: Ints) -> tuple[int, int] | None:
    """Return the first pair of devices (a, b) such that no route leads from a to b; None where all are joined.

    It is fast where links lead both ways, as in every cluster file: then a device reaches what its groups of
    connected switches reach, and what it is linked to.  One-way links are searched in full.

    Args:
        device_count: Number D of devices.
        vertex_count: Number V of devices and switches.
        source: Vertices that links lead from, shape (arcs,).
        target: Vertices that they lead to, shape (arcs,).
    """
    if not np.array_equal(np.sort(source * vertex_count + target), np.sort(target * vertex_count + source)):
        reach = _reach_by_search(device_count, vertex_count, source, target)
    else:
        # Two devices reach each other where a group has both as members, or a link joins them.
        group = _connected(device_count, vertex_count, source, target)
        member = (source < device_count) & (target >= device_count)
        groups, devices = np.divmod(distinct(group[target[member]] * device_count + source[member]), device_count)
        if device_count == 1 or np.bincount(groups, minlength=1).max() == device_count:
            return None  # one group joins all, as nearly always: a matrix of pairs would take seconds
        between = np.maximum(source, target) < device_count
        own = np.isin(groups, groups[devices == 0])
        first = np.unique(np.concatenate([[0], target[between & (source == 0)], devices[own]]))
        if len(first) < device_count:  # found before a matrix of all pairs is made
            return 0, int(np.setdiff1d(np.arange(device_count), first)[0])
        column = np.unique(groups, return_inverse=True)[1]
        table = np.zeros((device_count, int(column.max(initial=-1)) + 1), dtype=np.float32)
        table[devices, column] = 1
        reach = (table @ table.T > 0) | np.eye(device_count, dtype=np.bool_)
        reach[source[between], target[between]] = True
    if reach.all():
        return None
    pair = np.unravel_index(int(reach.argmin()), reach.shape)
    return int(pair[0]), int(pair[1])


def _reach_by_search(device_count: int, vertex_count: int, source: Ints, target: Ints) -> Bools:
    """Return which device reaches which, shape (D, D), by a search for every pair; arguments as above."""
    arcs = [Arc(a, b, link, 0) for link, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True))]
    router, devices = Router(device_count, vertex_count, arcs), range(device_count)
    return np.array([[router.route(a, b) is not None for b in devices] for a in devices], dtype=bool).reshape(
        device_count, device_count
    )


def _connected(device_count: int, vertex_count: int, source: Ints, target: Ints) -> Ints:
    """Return the smallest switch that each switch is connected to over others, shape (V,); a device itself.

    Each switch takes the smallest of its neighbours, and what that has taken, until nothing changes.
    """
    group = np.arange(vertex_count)
    inner = np.minimum(source, target) >= device_count
    source, target = source[inner], target[inner]
    while True:
        least = group.copy()
        np.minimum.at(least, source, group[target])
        least = least[least]
        if np.array_equal(least, group):
            return group
        group = least
