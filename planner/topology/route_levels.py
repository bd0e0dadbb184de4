"""Routes sorted by how they share links, so that traffic can be added up by device instead of by message.

Devices fall into nested blocks: a card, a socket, a machine.  A route that leaves a block of one level and stays in
the next larger one crosses the exits of its source and the entries of its target, whoever the other end is: the load
of those links follows from each device's bytes to and from outside its block.  Inside the smallest blocks, where
every pair may have a wire of its own, routes are kept pair by pair.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from hwprofiles import Floats, Ints

__all__ = ["RouteLevels", "levels_of"]


CLASS_BITS = 63


class RouteLevels(NamedTuple):
    """The routes of n devices by level, without links that another link of all their routes makes redundant.

    A named tuple, because compiled code reads those.

    Level 0 joins a device with itself, level 1 pairs inside the smallest blocks, and level k > 1 devices of
    different blocks of level k - 1 in one block of level k.
    """

    level: Ints
    """Shape (n * n,)."""
    top: int
    """Highest level, at least 1."""
    block: Ints
    """Shape (n,): the block of level ``top - 1``; all 0 where ``top`` is 1."""
    member_start: Ints
    members: Ints
    """Devices of each of those blocks."""
    route_start: Ints
    route_links: Ints
    """Routes of level 1, by row ``a * n + b``; no links for the others."""
    out_start: Ints
    out_links: Ints
    """Exits, by row ``level * n + device``."""
    in_start: Ints
    in_links: Ints
    """Entries, by row ``level * n + device``."""
    block_start: Ints
    block_links: Ints
    """For each block the links that messages from or to its devices can load."""
    latency_class: Ints
    """Shape (n * n,)."""
    out_classes: Ints
    in_classes: Ints
    """Shape (n,): bit ``c % 63`` is set where a route of the top level from or to the device has latency class c."""
    seconds_per_byte: Floats
    """Shape (L,)."""
    class_start: Ints
    class_size_bytes: Floats
    class_latency_s: Floats
    rising: bool
    """No latency falls with the size of the message."""


def levels_of(
    start: Ints, links: Ints, seconds_per_byte: Floats, latency_class: Ints, classes: tuple[Ints, Floats, Floats]
) -> RouteLevels:
    """Find the levels of the routes of n devices.

    Args:
        start, links: Links of the routes by row ``a * n + b``, shapes (n * n + 1,) and (sum of lengths,).
        seconds_per_byte: Inverse bandwidths, shape (L,).
        latency_class: Shape (n * n,).
        classes: Offsets, sizes in bytes and seconds of the latency classes.
    """
    count = round(len(latency_class) ** 0.5)
    chain = _partitions(np.diff(start).reshape(count, count))
    start, links = _binding(start, links, seconds_per_byte)
    most = int(np.diff(start).max(initial=1))
    levels, splits = [chain.pop()], []  # from all devices down
    while chain:
        exits, entries = np.full((2, count, most), -1)
        if not _split(start, links, chain[-1], levels[-1], exits, entries):
            break
        splits.append((exits, entries))
        levels.append(chain.pop())
    class_of = np.repeat(np.arange(len(classes[0]) - 1), np.diff(classes[0]))
    rising = bool(((np.diff(classes[2]) >= 0) | (np.diff(class_of) > 0)).all())
    timing = {
        "seconds_per_byte": seconds_per_byte,
        "class_start": classes[0],
        "class_size_bytes": classes[1],
        "class_latency_s": classes[2],
        "rising": rising,
    }
    return _assemble(start, links, latency_class, levels[::-1], splits[::-1], timing=timing)


def _partitions(hops: Ints) -> list[Ints]:
    """Blocks of devices joined by at most so many links, from single devices to all, as labels of shape (n,)."""
    hops = np.minimum(hops, hops.T)
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
    """Leave out links that never decide: all their routes cross another link that is as slow or slower."""
    keep = np.zeros(len(seconds_per_byte), dtype=np.bool_)
    beside = np.full((len(seconds_per_byte), int(np.diff(start).max(initial=1))), -1)
    _companions(start, links, beside)
    for link, others in enumerate(beside.tolist()):
        keep[link] = not any(
            other not in (-1, link)
            and (seconds_per_byte[link], -link * (link in beside[other]))
            <= (seconds_per_byte[other], -other * (link in beside[other]))
            for other in others
        )
    kept = keep[links]
    return np.concatenate(([0], np.cumsum(kept)))[start], links[kept]


@njit(cache=True)
def _companions(start: Any, links: Any, beside: Any) -> None:
    """Fill ``beside`` (L, longest route) with the links that are on every route of a link; -1 elsewhere."""
    seen = np.zeros(len(beside), dtype=np.bool_)
    for row in range(len(start) - 1):
        route = links[start[row] : start[row + 1]]
        for link in route:
            if not seen[link]:
                seen[link] = True
                beside[link, : len(route)] = route
                continue
            for i in range(beside.shape[1]):
                if not (route == beside[link, i]).any():
                    beside[link, i] = -1


@njit(cache=True)
def _split(start: Any, links: Any, fine: Any, coarse: Any, exits: Any, entries: Any) -> bool:
    """Try to cut the routes between blocks into exits of the source and entries of the target.

    A source's exits are what all its routes to other blocks have in common; what is left must be the same for
    all sources.  Fills ``exits`` and ``entries`` (n, longest), -1 elsewhere.
    """
    count = len(fine)
    for a in range(count):
        first = True
        for b in range(count):
            if coarse[a] == coarse[b] and fine[a] != fine[b]:
                route = links[start[a * count + b] : start[a * count + b + 1]]
                if first:
                    exits[a, : len(route)] = route
                    first = False
                for i in range(exits.shape[1]):
                    if not (route == exits[a, i]).any():
                        exits[a, i] = -1
    for b in range(count):
        length = -1
        for a in range(count):
            if coarse[a] == coarse[b] and fine[a] != fine[b]:
                found = 0
                for link in links[start[a * count + b] : start[a * count + b + 1]]:
                    if not (exits[a] == link).any():
                        if length < 0:
                            entries[b, found] = link
                        elif found >= length or entries[b, found] != link:
                            return False
                        found += 1
                if length >= 0 and found != length:
                    return False
                length = found
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
    """Pack blocks (from small to all devices) and the exits and entries between them."""
    count, top = len(blocks[0]), len(blocks)
    level = np.full((count, count), top)
    for index in range(top - 1, 0, -1):
        level[blocks[index - 1][:, None] == blocks[index - 1]] = index
    level[np.arange(count), np.arange(count)] = 0
    listed = np.repeat(level.ravel() == 1, np.diff(start))
    none = np.full((2 * count, 1), -1)  # levels 0 and 1
    block = np.unique(blocks[-2], return_inverse=True)[1] if top > 1 else np.zeros(count, dtype=np.int64)
    classes = np.where(level == top, 1 << (latency_class.reshape(count, count) % CLASS_BITS), 0)
    members = np.argsort(block, kind="stable")
    member_start = np.concatenate(([0], np.cumsum(np.bincount(block))))
    routes = np.concatenate(([0], np.cumsum(listed)))[start], links[listed]
    exits = _packed([none, *(exits for exits, _ in splits)])
    entries = _packed([none, *(entries for _, entries in splits)])
    loaded = []
    for inside in np.split(members, member_start[1:-1]):
        pairs, across = (inside[:, None] * count + inside).ravel(), np.add.outer(np.arange(top + 1) * count, inside)
        rows = ((*routes, pairs), (*exits, across.ravel()), (*entries, across.ravel()))
        loaded.append(np.unique(np.concatenate([_rows(*row) for row in rows])))
    both = np.bitwise_or.reduce(classes, axis=1), np.bitwise_or.reduce(classes, axis=0)
    block_links = np.cumsum([0, *map(len, loaded)]), np.concatenate(loaded)
    fixed = (level.ravel(), top, block, member_start, members, *routes, *exits, *entries, *block_links, latency_class)
    return RouteLevels(*fixed, *both, **timing)


def _packed(rows: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Rows of links padded with -1, one below the other, as offsets and links."""
    counts = np.concatenate([(row >= 0).sum(axis=1) for row in rows])
    return np.concatenate(([0], np.cumsum(counts))), np.concatenate([row[row >= 0] for row in rows])


def _rows(start: Ints, links: Ints, rows: Ints) -> Ints:
    """Links of some rows, one after the other."""
    counts = start[rows + 1] - start[rows]
    first = np.repeat(start[rows] - np.cumsum(counts) + counts, counts)
    return np.asarray(links[first + np.arange(counts.sum())])
