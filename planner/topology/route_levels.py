"""Routes sorted by how they share links, so that traffic can be summed by device instead of by message.

Devices form nested blocks: a card, a socket, a machine.  A route that leaves a block of one level and stays in
the next larger one crosses the exits of its source and the entries of its target, whatever the other end is: the load
of those links follows from each device's bytes to and from outside its block.  Inside the smallest blocks, where
every pair may have a wire of its own, routes are kept pair by pair.

Two machines of two devices, with a wire inside each machine and a network card, ``up`` and ``down``, at each::

    0 --w01-- 1     2 --w23-- 3        level of the routes    0  1  2  3
     └─ nic A ─┘     └─ nic B ─┘       0                      0  1  2  2
         └── switch ────┘              1                      1  0  2  2
                                       2                      2  2  0  1
                                       3                      2  2  1  0

    level 1, pair by pair     0 -> 1: w01    1 -> 0: w10    2 -> 3: w23    3 -> 2: w32
    level 2, exits            0: up A    1: up A    2: up B    3: up B
    level 2, entries          0: down A  1: down A  2: down B  3: down B
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import row_entries, row_owners
from planner.topology.latency_classes import LatencyFunctions
from simulator.compiled.jit import inner, kernel

CLASS_BITS = 63
"""Bits of a set of latency classes in one integer; classes beyond share bits, modulo this number."""


class RouteLevels(NamedTuple):
    """The routes of n devices by level, without links that never decide the time of a transfer.

    It is a named tuple, which compiled code can read.

    Level 0 joins a device with itself, level 1 pairs inside the smallest blocks, and level k > 1 devices of
    different blocks of level k - 1 in one block of level k.
    """

    level: Ints
    """Level of the route of each pair, row ``a * n + b``, shape (n * n,)."""
    top: int
    """Highest level, at least 1."""
    block: Ints
    """Block of level ``top - 1`` of each device, shape (n,); all 0 where ``top`` is 1."""
    member_start: Ints
    """First device of each of those blocks in ``members``."""
    members: Ints
    """Devices of each of those blocks."""
    route_start: Ints
    """First link of each route in ``route_links``, row ``a * n + b``, shape (n * n + 1,)."""
    route_links: Ints
    """Links of the routes of level 1; the others have none here."""
    out_start: Ints
    """First exit of each device in ``out_links``, row ``level * n + device``."""
    out_links: Ints
    """Exits: links of all routes of a level from a device."""
    in_start: Ints
    """First entry of each device in ``in_links``, row ``level * n + device``."""
    in_links: Ints
    """Entries: links of all routes of a level to a device, except the exits of their sources."""
    block_start: Ints
    """First link of each block in ``block_links``."""
    block_links: Ints
    """Links that messages from or to the devices of each block can load."""
    latency_class: Ints
    """Latency class of the route of each pair, shape (n * n,)."""
    out_classes: Ints
    """Set of latency classes of the routes of the top level from each device, bits ``class % 63``, shape (n,)."""
    in_classes: Ints
    """Set of latency classes of the routes of the top level to each device, shape (n,)."""
    seconds_per_byte: Floats
    """Inverse bandwidth of every link, shape (L,)."""
    class_start: Ints
    """First point of each latency class; see ``LatencyFunctions``."""
    class_size_bytes: Floats
    """Message size at each point."""
    class_latency_s: Floats
    """Latency at each point."""
    rising: bool
    """Flag that no latency falls with the size of the message."""


def levels_of(
    start: Ints, links: Ints, seconds_per_byte: Floats, latency_class: Ints, functions: LatencyFunctions
) -> RouteLevels:
    """Sort the routes of n devices into levels.

    Args:
        start: First link of the route of each pair, row ``a * n + b``, shape (n * n + 1,).
        links: Links of the routes, shape (sum of lengths,).
        seconds_per_byte: Inverse bandwidth of every link, shape (L,).
        latency_class: Latency class of the route of each pair, shape (n * n,).
        functions: Latency functions of the classes.
    """
    count = round(len(latency_class) ** 0.5)
    chain = _partitions(np.diff(start).reshape(count, count))
    start, links = _binding(start, links, seconds_per_byte)
    longest = int(np.diff(start).max(initial=1))
    # From the block of all devices to smaller ones, as long as exits and entries describe the routes between them.
    blocks, splits = [chain.pop()], []
    while chain:
        exits, entries = np.full((2, count, longest), -1)
        if not _split(start, links, chain[-1], blocks[-1], exits, entries):
            break
        splits.append((exits, entries))
        blocks.append(chain.pop())
    within = np.diff(row_owners(functions.start)) == 0  # of two neighbouring points: both of one class
    timing = {
        "seconds_per_byte": seconds_per_byte,
        "class_start": functions.start,
        "class_size_bytes": functions.size_bytes,
        "class_latency_s": functions.latency_s,
        "rising": bool(((np.diff(functions.latency_s) >= 0) | ~within).all()),
    }
    return _assemble(start, links, latency_class, blocks[::-1], splits[::-1], timing=timing)


def _partitions(hops: Ints) -> list[Ints]:
    """Return ever larger blocks of devices, from single devices to all, as labels of shape (n,).

    A block of one partition is what routes of at most so many links join, directly or over other devices.

    Args:
        hops: Number of links of the route of each pair, shape (n, n).
    """
    hops = np.minimum(hops, hops.T)  # the shorter of both ways
    chain = [np.arange(len(hops))]
    for most in np.unique(hops).tolist():
        near, labels = hops <= most, chain[-1]
        while True:  # the smallest label spreads through each block
            spread = np.where(near, labels, len(hops)).min(axis=1)
            if np.array_equal(spread, labels):
                break
            labels = spread
        if not np.array_equal(labels, chain[-1]):
            chain.append(labels)
    if chain[-1].any():
        chain.append(np.zeros(len(hops), dtype=np.int64))
    return chain


def _binding(start: Ints, links: Ints, seconds_per_byte: Floats) -> tuple[Ints, Ints]:
    """Return the routes without links that never decide the time of a transfer, as offsets and links.

    A link never decides where the links directly before it on all its routes, or those directly behind it, are
    together no faster: it carries no more bytes than they do, so that one of them is at least as busy.  Cards of two
    machines at one leaf switch, which is joined with the spine as widely as with the cards::

        card 0A --+
                  +-- leaf 0 -- up -- spine       up carries what both cards send, of 50 GB/s each:
        card 1A --+                               with 100 GB/s it is never busier than both of them
    """
    size, bandwidth = len(seconds_per_byte), 1.0 / seconds_per_byte
    beside, capacity = np.zeros((size, size), dtype=np.bool_), np.zeros(size)
    step, unchanged = -1, 0
    while unchanged < 2:  # until neither side removes a link
        _neighbours(start, links, bandwidth, step, beside, capacity)
        keep = np.ones(size, dtype=np.bool_)
        # Rounding of the sums must not keep a link that is exactly as fast.
        for link in np.flatnonzero(capacity <= bandwidth * (1 + 1e-12))[::-1].tolist():
            keep[link] = not keep[beside[link]].all()
        unchanged = unchanged + 1 if keep.all() else 0
        # A route over links 4, 7, 9 of which 7 goes: ``kept`` is True, False, True, and the next route starts at 2.
        kept = keep[links]
        start, links = np.concatenate(([0], np.cumsum(kept)))[start], links[kept]
        step = -step
    return start, links


@kernel(lambda start, links, *_: 2e-6 * len(links))
def _neighbours(start: Any, links: Any, bandwidth: Any, step: int, beside: Any, capacity: Any) -> None:
    """Find the links directly before (step -1) or behind (step 1) each link on its routes, and their total bandwidth.

    Args:
        start: First link of the route of each pair, shape (n * n + 1,).
        links: Links of the routes.
        bandwidth: Bandwidth of every link, shape (L,).
        step: -1 or 1.
        beside: Result, shape (L, L): whether the second link is beside the first.
        capacity: Result, shape (L,); infinite for links that are the outermost of a route, or on none.
    """
    beside[:], capacity[:] = False, 0.0
    for row in range(len(start) - 1):
        for at in range(start[row], start[row + 1]):
            link, other = links[at], at + step
            if not start[row] <= other < start[row + 1]:
                capacity[link] = np.inf
            elif not beside[link, links[other]]:
                beside[link, links[other]] = True
                capacity[link] += bandwidth[links[other]]
    for link in range(len(capacity)):
        if capacity[link] == 0.0:
            capacity[link] = np.inf


@inner
def _copy(route: Any, row: Any) -> None:
    """Write a route to the beginning of a row; assigning to a slice takes seconds to compile, for its errors."""
    for i in range(len(route)):
        row[i] = route[i]


@inner
def _has(route: Any, link: Any) -> bool:
    """Return whether a link is among those of a route; comparing arrays takes ten times as long."""
    for other in route:  # noqa: SIM110 - numba knows no ``any`` of a generator
        if other == link:
            return True
    return False


@kernel(lambda start, links, fine, coarse, exits, _: 1e-6 * len(links) * exits.shape[1])
def _split(  # noqa: C901 - one compiled pass over all pairs
    start: Any, links: Any, fine: Any, coarse: Any, exits: Any, entries: Any
) -> bool:
    """Divide the routes between blocks into exits of the source and entries of the target, where that is possible.

    The exits of a source are the links that all its routes to other blocks have in common; the rest of each route,
    the entries of its target, must be the same for all sources::

        0 -> 2    up A  down B        exits of 0: up A      entries of 2: down B
        0 -> 3    up A  down B                              entries of 3: down B
        1 -> 2    up A  down B        exits of 1: up A      the same for 2: possible

    Args:
        start: First link of the route of each pair, shape (n * n + 1,).
        links: Links of the routes.
        fine: Block of each device, shape (n,).
        coarse: Larger block of each device, shape (n,); routes inside these, between the fine ones, are divided.
        exits: Result, shape (n, longest route), filled with -1 before; -1 where a device has no more exits.
        entries: Result, likewise.

    Returns:
        Whether it is possible.
    """
    count = len(fine)
    for a in range(count):
        first = True
        for b in range(count):
            if coarse[a] == coarse[b] and fine[a] != fine[b]:
                route = links[start[a * count + b] : start[a * count + b + 1]]
                if first:  # the first route; each further one removes the links that it does not cross
                    _copy(route, exits[a])
                    first = False
                for i in range(exits.shape[1]):
                    if exits[a, i] >= 0 and not _has(route, exits[a, i]):
                        exits[a, i] = -1
    for b in range(count):
        length = -1  # number of entries; known after the first source
        for a in range(count):
            if coarse[a] == coarse[b] and fine[a] != fine[b]:
                at = 0
                for link in links[start[a * count + b] : start[a * count + b + 1]]:
                    if not _has(exits[a], link):
                        if length < 0:
                            entries[b, at] = link
                        elif at >= length or entries[b, at] != link:
                            return False
                        at += 1
                if length >= 0 and at != length:
                    return False
                length = at
    return True


def _assemble(
    start: Ints,
    links: Ints,
    latency_class: Ints,
    blocks: Sequence[Ints],
    splits: Sequence[tuple[Ints, Ints]],
    *,
    timing: dict[str, Any],
) -> RouteLevels:
    """Pack the levels.

    Args:
        start: First link of the route of each pair, shape (n * n + 1,).
        links: Links of the routes.
        latency_class: Latency class of the route of each pair, shape (n * n,).
        blocks: Block of each device by level, from the smallest blocks to all devices, shapes (n,).
        splits: Exits and entries between the blocks of each level and the next.
        timing: Fields of ``RouteLevels`` about bandwidths and latencies.
    """
    count, top = len(blocks[0]), len(blocks)
    # From the largest blocks to the smallest, so that the lowest level that joins a pair is written last.
    level = np.full((count, count), top)
    for index in range(top - 1, 0, -1):
        level[blocks[index - 1][:, None] == blocks[index - 1]] = index
    level[np.arange(count), np.arange(count)] = 0
    # Only routes of level 1 are listed link by link; the offsets of all others shrink to nothing.
    listed = np.repeat(level.ravel() == 1, np.diff(start))
    route_start, route_links = np.concatenate(([0], np.cumsum(listed)))[start], links[listed]
    none = np.full((2 * count, 1), -1)  # levels 0 and 1 have neither exits nor entries
    out_start, out_links = _packed([none, *(exits for exits, _ in splits)])
    in_start, in_links = _packed([none, *(entries for _, entries in splits)])
    block = np.unique(blocks[-2], return_inverse=True)[1] if top > 1 else np.zeros(count, dtype=np.int64)
    members = np.argsort(block, kind="stable")
    member_start = np.concatenate(([0], np.cumsum(np.bincount(block))))
    inside = np.split(members, member_start[1:-1])
    loaded = [
        _loaded_links(each, count, top, (route_start, route_links), (out_start, out_links), (in_start, in_links))
        for each in inside
    ]
    # One bit for each latency class, joined over all targets of a source, and over all sources of a target.
    classes = np.where(level == top, 1 << (latency_class.reshape(count, count) % CLASS_BITS), 0)
    return RouteLevels(
        level=level.ravel(),
        top=top,
        block=block,
        member_start=member_start,
        members=members,
        route_start=route_start,
        route_links=route_links,
        out_start=out_start,
        out_links=out_links,
        in_start=in_start,
        in_links=in_links,
        block_start=np.cumsum([0, *map(len, loaded)]),
        block_links=np.concatenate(loaded),
        latency_class=latency_class,
        out_classes=np.bitwise_or.reduce(classes, axis=1),
        in_classes=np.bitwise_or.reduce(classes, axis=0),
        **timing,
    )


def _loaded_links(
    inside: Ints, count: int, top: int, routes: tuple[Ints, Ints], exits: tuple[Ints, Ints], entries: tuple[Ints, Ints]
) -> Ints:
    """Return the links that messages of a block can load: routes inside it, exits and entries of its devices.

    Args:
        inside: Devices of the block.
        count: Devices of the cluster.
        top: Highest level.
        routes: Offsets and links of the routes of level 1, by pairs of devices.
        exits: The same of exits, by levels and devices.
        entries: The same of entries.
    """
    pairs, across = (inside[:, None] * count + inside).ravel(), np.add.outer(np.arange(top + 1) * count, inside)
    rows = ((routes, pairs), (exits, across.ravel()), (entries, across.ravel()))
    return np.unique(np.concatenate([_links_of_rows(*table, chosen) for table, chosen in rows]))


def _packed(rows: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return rows of links that are padded with -1, one table below the other, as offsets and links."""
    counts = np.concatenate([(row >= 0).sum(axis=1) for row in rows])
    return np.concatenate(([0], np.cumsum(counts))), np.concatenate([row[row >= 0] for row in rows])


def _links_of_rows(start: Ints, links: Ints, rows: Ints) -> Ints:
    """Return the links of some rows, one row after the other."""
    return np.asarray(links[row_entries(start[rows], start[rows + 1] - start[rows])])
