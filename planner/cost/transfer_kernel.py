"""Compiled pricing of transfers between configurations, in bulk.

For one tensor: what it costs to move it from any configuration of its producer to the boxes that any
configuration of a consumer needs.  All messages of one direction start together and meet nobody else; the
busiest link and the longest latency decide.

A message is the overlap of a producer's part and a box.  Only messages inside one block of devices are visited;
what crosses between blocks is the rest, device by device (``planner.topology.route_levels``), which is exact because
elements are whole numbers.  For its latency a few messages suffice: the search stops at the longest possible.

Each phase works through a batch of pairs: a call, or a field of a named tuple, counts references to arrays, which
in the loops would cost more than the arithmetic.
"""

from typing import Any

import numpy as np
from numba import njit

__all__ = ["price_pairs"]

_BATCH = 16
"""Pairs a batch: their byte counts stay in the second-level cache."""
SAMPLED_MESSAGES = 8
"""Messages between blocks that a bound looks at for their latency, for each sample."""


@njit(cache=True, nogil=True)
def _latency(size: float, c: int, class_start: Any, class_size: Any, class_latency: Any) -> Any:
    """Latency class ``c`` at a size: piecewise linear, constant outside its points."""
    first, last = class_start[c], class_start[c + 1]
    if size <= class_size[first]:
        return class_latency[first]
    for i in range(first + 1, last):
        if size <= class_size[i]:
            share = (size - class_size[i - 1]) / (class_size[i] - class_size[i - 1])
            return class_latency[i - 1] + share * (class_latency[i] - class_latency[i - 1])
    return class_latency[last - 1]


@njit(cache=True, nogil=True)
def _choose(
    pairs: Any, starts: Any, devices: Any, block: Any, samples: int, seen: Any, chosen: Any, blocks: Any
) -> None:
    """Add the blocks that hold parts, all or evenly picked ones, to what is ``chosen`` for every pair."""
    for k in range(len(pairs)):
        first = starts[pairs[k]]
        parts = starts[pairs[k] + 1] - first
        picks = min(parts, samples) if samples else parts
        for i in range(picks):
            at = i if picks == parts else parts * (2 * i + 1) // (2 * picks)
            b = block[devices[first + at]]
            if not seen[k, b]:
                seen[k, b] = True
                chosen[k, blocks[k]] = b
                blocks[k] += 1


@njit(cache=True, nogil=True)
def _inside(
    us: Any, vs: Any, chosen: Any, blocks: Any, top: int, element_bytes: float, count: int, rising: bool,
    member_start: Any, members: Any, part_on: Any, box_on: Any, volume: Any, table: Any, rows: Any, columns: Any,
    level_of: Any, latency_class: Any, class_start: Any, class_size: Any, class_latency: Any, largest: Any,
    route_start: Any, route_links: Any, load: Any, leaving: Any, entering: Any, wait: Any,
) -> None:  # fmt: skip
    """Visit the messages inside the chosen blocks, and their longest latency.

    ``entering`` of the top level gets what boxes miss, ``leaving`` minus what parts have given away.
    """
    for k in range(len(us)):
        u, v = us[k], vs[k]
        for i in range(blocks[k]):
            first, last = member_start[chosen[k, i]], member_start[chosen[k, i] + 1]
            for m in range(first, last):
                here = members[m]
                q = box_on[v, here]
                if q < 0:
                    continue
                rest = volume[q]
                for o in range(first, last):
                    there = members[o]
                    p = part_on[u, there]
                    if p < 0:
                        continue
                    shared = table[rows[p, 0] + columns[q, 0]]
                    for d in range(1, rows.shape[1]):
                        shared *= table[rows[p, d] + columns[q, d]]
                    if shared == 0.0:
                        continue
                    rest -= shared
                    leaving[k, top, there] -= shared
                    if there == here:
                        continue
                    row = there * count + here
                    level = level_of[row]
                    if level > 1:
                        leaving[k, level, there] += shared
                        entering[k, level, here] += shared
                    else:
                        for r in range(route_start[row], route_start[row + 1]):
                            load[k, route_links[r]] += shared
                    c, size = latency_class[row], shared * element_bytes
                    if size > largest[k, c] or not rising:
                        largest[k, c] = size
                        wait[k] = max(wait[k], _latency(size, c, class_start, class_size, class_latency))
                entering[k, top, here] += rest


@njit(cache=True, nogil=True)
def _crossing(
    us: Any, vs: Any, chosen: Any, blocks: Any, top: int, member_start: Any, members: Any, part_on: Any, copies: Any,
    sent: Any, sent_rows: Any, cuts: Any, leaving: Any, entering: Any, crosses: Any,
) -> None:  # fmt: skip
    """Add what parts send in all to ``leaving`` of the top level, and find whether anything crosses between blocks."""
    for k in range(len(us)):
        u, v, total = us[k], vs[k], 0.0
        for i in range(blocks[k]):
            for m in range(member_start[chosen[k, i]], member_start[chosen[k, i] + 1]):
                at = members[m]
                p = part_on[u, at]
                if p >= 0:
                    size = copies[v]
                    for d in range(sent_rows.shape[1]):
                        size *= sent[sent_rows[p, d] + cuts[v, d]]
                    leaving[k, top, at] += size
                total += leaving[k, top, at] + entering[k, top, at]
        crosses[k] = total > 0.0


@njit(cache=True, nogil=True)
def _ceilings(
    us: Any, vs: Any, sent_classes: Any, taken_classes: Any, element_bytes: float, rising: bool, most: Any,
    most_rows: Any, cuts: Any, class_start: Any, class_size: Any, class_latency: Any, ceiling: Any,
) -> None:  # fmt: skip
    """No message between blocks waits longer: the latency of the largest overlap on the classes both ends have."""
    for k in range(len(us)):
        u, v = us[k], vs[k]
        size, longest, classes = element_bytes, 0.0, sent_classes[u] & taken_classes[v]
        for d in range(most_rows.shape[1]):
            size *= most[most_rows[u, d] + cuts[v, d]]
        for c in range(len(class_start) - 1):
            if classes >> (c % 63) & 1:
                if class_start[c + 1] - class_start[c] == 1:
                    longest = max(longest, class_latency[class_start[c]])
                else:
                    longest = max(longest, _latency(size, c, class_start, class_size, class_latency))
        ceiling[k] = longest if rising else np.inf


@njit(cache=True, nogil=True)
def _crossing_waits(
    us: Any, vs: Any, crosses: Any, ceiling: Any, most_messages: int, element_bytes: float, rising: bool,
    degrees: Any, sizes: Any, start: Any, devices: Any, box_start: Any, box_devices: Any, low: Any, high: Any,
    volume: Any, table: Any, rows: Any, columns: Any, block: Any, latency_class: Any, class_start: Any,
    class_size: Any, class_latency: Any, largest: Any, wait: Any,
) -> None:  # fmt: skip
    """Raise ``wait`` to the longest latency of messages between blocks; stop where it reaches ``ceiling``."""
    dims, count = len(sizes), len(block)
    first, last, index = np.empty(dims, np.int64), np.empty(dims, np.int64), np.empty(dims, np.int64)
    for k in range(len(us)):
        u, v, budget = us[k], vs[k], most_messages
        q = box_start[v + 1] if crosses[k] else 0
        while q > box_start[v] and wait[k] < ceiling[k] and budget != 0:
            q -= 1
            if volume[q] == 0.0:
                continue
            for d in range(dims):
                # the largest i with i * size // degree <= x, at both ends of the box
                first[d] = ((low[q, d] + 1) * degrees[u, d] - 1) // sizes[d]
                last[d] = (high[q, d] * degrees[u, d] - 1) // sizes[d]
                index[d] = first[d]
            here, step = box_devices[q], 0
            while step >= 0 and wait[k] < ceiling[k] and budget != 0:
                p = 0
                for d in range(dims):
                    p = p * degrees[u, d] + index[d]
                p += start[u]
                there = devices[p]
                if block[there] != block[here]:
                    size = element_bytes
                    for d in range(dims):
                        size *= table[rows[p, d] + columns[q, d]]
                    c = latency_class[there * count + here]
                    if size > 0.0 and (size > largest[k, c] or not rising):
                        largest[k, c] = size
                        wait[k] = max(wait[k], _latency(size, c, class_start, class_size, class_latency))
                budget -= 1
                step = dims - 1
                while step >= 0 and index[step] == last[step]:
                    index[step] = first[step]
                    step -= 1
                if step >= 0:
                    index[step] += 1


@njit(cache=True, nogil=True)
def _spread(
    chosen: Any, blocks: Any, top: int, member_start: Any, members: Any, out_start: Any, out_links: Any,
    in_start: Any, in_links: Any, leaving: Any, entering: Any, load: Any,
) -> None:  # fmt: skip
    """Load exits and entries with what leaves and enters at each level, and empty both for the next batch."""
    count = leaving.shape[2]
    for k in range(len(blocks)):
        for i in range(blocks[k]):
            for m in range(member_start[chosen[k, i]], member_start[chosen[k, i] + 1]):
                at = members[m]
                for level in range(2, top + 1):
                    row = level * count + at
                    size = leaving[k, level, at]
                    if size > 0.0:
                        for r in range(out_start[row], out_start[row + 1]):
                            load[k, out_links[r]] += size
                        leaving[k, level, at] = 0.0
                    size = entering[k, level, at]
                    if size > 0.0:
                        for r in range(in_start[row], in_start[row + 1]):
                            load[k, in_links[r]] += size
                        entering[k, level, at] = 0.0


@njit(cache=True, nogil=True)
def _busiest(
    chosen: Any, blocks: Any, block_start: Any, block_links: Any, load: Any, element_bytes: float,
    seconds_per_byte: Any, busy: Any,
) -> None:  # fmt: skip
    """Time of the busiest link of each pair; the loads are set to 0."""
    for k in range(len(blocks)):
        for i in range(blocks[k]):
            for r in range(block_start[chosen[k, i]], block_start[chosen[k, i] + 1]):
                link = block_links[r]
                time = load[k, link] * element_bytes * seconds_per_byte[link]
                busy[k] = time if time > busy[k] else busy[k]
                load[k, link] = 0.0


@njit(cache=True, nogil=True)
def price_pairs(
    producer: Any, consumer: Any, cross: Any, routes: Any, sent_classes: Any, taken_classes: Any, element_bytes: float,
    samples: int, cost_s: Any,
) -> None:  # fmt: skip
    """Fill ``cost_s`` (K,) with the time of pair k: configurations ``producer[k]`` and ``consumer[k]``.

    ``cross`` are the tensor's ``Overlaps``, ``routes`` the ``RouteLevels`` of the direction in which bytes flow.
    ``sent_classes`` (C_u,) and ``taken_classes`` (C_v,) are the latency classes that the devices of the producer's
    and the consumer's configurations have, packed as in ``RouteLevels``.  With ``samples`` > 0 only so many boxes,
    so many parts, and what else is on their blocks of devices are looked at: a lower bound.
    """
    block, top, member_start, members = routes.block, routes.top, routes.member_start, routes.members
    level_of, latency_class, seconds_per_byte = routes.level, routes.latency_class, routes.seconds_per_byte
    route_start, route_links = routes.route_start, routes.route_links
    out_start, out_links, in_start, in_links = routes.out_start, routes.out_links, routes.in_start, routes.in_links
    class_start, class_size, class_latency = routes.class_start, routes.class_size_bytes, routes.class_latency_s
    degrees, sizes, start, devices, part_on = cross.degrees, cross.sizes, cross.start, cross.devices, cross.part_on
    box_start, box_devices, box_on, volume = cross.box_start, cross.box_devices, cross.box_on, cross.volume
    low, high, table, rows, columns = cross.low, cross.high, cross.table, cross.rows, cross.columns
    sent, sent_rows, cuts, copies = cross.sent, cross.sent_rows, cross.sent_columns, cross.copies
    most, most_rows = cross.most, cross.most_rows
    block_start, block_links = routes.block_start, routes.block_links
    count, rising = len(block), routes.rising
    load, largest = np.zeros((_BATCH, len(seconds_per_byte))), np.zeros((_BATCH, len(class_start)))
    leaving, entering = np.zeros((_BATCH, top + 1, count)), np.zeros((_BATCH, top + 1, count))
    chosen, seen = np.empty((_BATCH, len(member_start)), dtype=np.int64), np.zeros((_BATCH, count), dtype=np.bool_)
    every_wait, every_ceiling, every_blocks = np.empty(_BATCH), np.empty(_BATCH), np.empty(_BATCH, dtype=np.int64)
    crosses = np.empty(_BATCH, dtype=np.bool_)
    for first in range(0, len(producer), _BATCH):
        us, vs, busy = (
            producer[first : first + _BATCH],
            consumer[first : first + _BATCH],
            cost_s[first : first + _BATCH],
        )
        wait, ceiling, blocks = every_wait[: len(us)], every_ceiling[: len(us)], every_blocks[: len(us)]
        largest[:], wait[:], busy[:], blocks[:], seen[:] = 0.0, 0.0, 0.0, 0, False
        _choose(vs, box_start, box_devices, block, samples, seen, chosen, blocks)
        _choose(us, start, devices, block, samples, seen, chosen, blocks)
        _inside(
            us, vs, chosen, blocks, top, element_bytes, count, rising, member_start, members, part_on, box_on, volume,
            table, rows, columns, level_of, latency_class, class_start, class_size, class_latency, largest,
            route_start, route_links, load, leaving, entering, wait,
        )  # fmt: skip
        _crossing(
            us, vs, chosen, blocks, top, member_start, members, part_on, copies, sent, sent_rows, cuts, leaving,
            entering, crosses,
        )  # fmt: skip
        _ceilings(
            us, vs, sent_classes, taken_classes, element_bytes, rising, most, most_rows, cuts, class_start, class_size,
            class_latency, ceiling,
        )  # fmt: skip
        _crossing_waits(
            us, vs, crosses, ceiling, SAMPLED_MESSAGES * samples if samples else -1, element_bytes, rising, degrees,
            sizes, start, devices, box_start, box_devices, low, high, volume, table, rows, columns, block,
            latency_class, class_start, class_size, class_latency, largest, wait,
        )  # fmt: skip
        _spread(
            chosen, blocks, top, member_start, members, out_start, out_links, in_start, in_links, leaving, entering,
            load,
        )  # fmt: skip
        _busiest(chosen, blocks, block_start, block_links, load, element_bytes, seconds_per_byte, busy)
        busy += wait
