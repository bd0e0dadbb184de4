"""Compiled pricing of transfers between configurations, in bulk.

For one tensor: the time to move it from any configuration of its producer to the regions that any configuration of a
consumer needs.  All messages of one direction start together and share the links with nothing else; the price is the
time of the busiest link plus the longest latency of a message.

A message is the overlap of a producer's part and a consumer's region.  Two machines of two devices, a layer that is
split in two over machine A, and a consumer that is split in four and reads a halo of one row:

    device              A0        A1        B0        B1
    holds part          rows 0-3  rows 4-7  -         -
    needs region        rows 0-2  rows 1-4  rows 3-6  rows 5-7
    visited inside A    A0 -> A1: 3 rows
    enters its machine  0         0         4 rows    3 rows     its region, less what was visited
    leaves its machine  1 row     6 rows    0         0          its overlap with all regions, less what was visited

Only messages inside one block of devices are visited one by one.  What crosses between blocks is the rest, device by
device (``planner.topology.route_levels``), which is exact because elements are whole numbers.  For the longest latency
of what crosses a few messages suffice: the search stops at the longest possible.

Each phase works through a batch of pairs and reads the arrays out of the records first: a call, or a field of a named
tuple, counts references to arrays, which in the loops would cost more than the arithmetic.
"""

from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from simulator.compiled.jit import inner, kernel

_BATCH = 16
"""Pairs of configurations in one batch: their byte counts stay in the second-level cache."""


class TransferPairs(NamedTuple):
    """Pairs of configurations to price: K of them, of C_u configurations of a producer and C_v of a consumer."""

    producer: Ints
    """Shape (K,): configuration of the producer."""
    consumer: Ints
    """Shape (K,): configuration of the consumer."""
    sent_classes: Ints
    """Shape (C_u,): latency classes of the devices of each configuration of the producer, as bits
    (``RouteLevels.out_classes``)."""
    received_classes: Ints
    """Shape (C_v,): latency classes of the devices of each configuration of the consumer, as bits."""
    element_bytes: float
    """Bytes of one element."""


class _Batch(NamedTuple):
    """Up to ``_BATCH`` pairs at work; arrays over B pairs, n devices, L links."""

    producer: Ints
    """Shape (B,), as are the next five."""
    consumer: Ints
    busy: Floats
    """Time of the busiest link, seconds."""
    wait: Floats
    """Longest latency of a message that was visited, seconds."""
    ceiling: Floats
    """Seconds that no latency of a message between blocks exceeds."""
    crosses: Bools
    """True if anything moves between blocks."""
    block_count: Ints
    """Shape (B,): number of blocks in ``blocks``."""
    blocks: Ints
    """Shape (B, blocks): blocks of devices that hold parts or regions."""
    seen: Bools
    """Shape (B, n): whether a block is among them."""
    load: Floats
    """Shape (B, L): elements on each link."""
    largest: Floats
    """Shape (B, latency classes): bytes of the largest message visited in each class."""
    leaving: Floats
    """Shape (B, levels, n): elements that leave a device's block of that level."""
    entering: Floats
    """Shape (B, levels, n): elements that enter it."""


@kernel(lambda pairs, overlaps, routes, _: 4e-6 * len(pairs.producer) * len(routes.block) ** 2)
def price_pairs(pairs: Any, overlaps: Any, routes: Any, cost_s: Any) -> None:
    """Fill ``cost_s`` with the transfer time of every pair of configurations, in one direction.

    Args:
        pairs: K pairs, a ``TransferPairs``.
        overlaps: The tensor's ``Overlaps``.
        routes: ``RouteLevels`` of the direction in which bytes flow.
        cost_s: Shape (K,), seconds; written.
    """
    count, levels, links = len(routes.block), routes.top + 1, len(routes.seconds_per_byte)
    load, largest = np.zeros((_BATCH, links)), np.zeros((_BATCH, len(routes.class_start)))
    leaving, entering = np.zeros((_BATCH, levels, count)), np.zeros((_BATCH, levels, count))
    blocks, block_count = np.empty((_BATCH, len(routes.member_start)), np.int64), np.empty(_BATCH, np.int64)
    seen, crosses = np.zeros((_BATCH, count), np.bool_), np.empty(_BATCH, np.bool_)
    wait, ceiling = np.empty(_BATCH), np.empty(_BATCH)
    for first in range(0, len(pairs.producer), _BATCH):
        busy = cost_s[first : first + _BATCH]
        size = len(busy)
        batch = _Batch(
            pairs.producer[first : first + size],
            pairs.consumer[first : first + size],
            busy,
            wait[:size],
            ceiling[:size],
            crosses[:size],
            block_count[:size],
            blocks,
            seen,
            load,
            largest,
            leaving,
            entering,
        )
        largest[:], wait[:], busy[:], block_count[:], seen[:] = 0.0, 0.0, 0.0, 0, False
        _add_blocks(batch, batch.consumer, overlaps.region_start, overlaps.region_devices, routes.block)
        _add_blocks(batch, batch.producer, overlaps.part_start, overlaps.part_devices, routes.block)
        _visit_inside(batch, overlaps, routes, pairs.element_bytes)
        _sum_leaving(batch, overlaps, routes)
        _bound_waits(batch, overlaps, routes, pairs)
        _visit_crossing(batch, overlaps, routes, pairs)
        _load_exits(batch, routes)
        _find_busiest(batch, routes, pairs.element_bytes)
        busy += batch.wait


@inner
def _add_blocks(batch: Any, configurations: Any, starts: Any, devices: Any, block: Any) -> None:
    """Add the blocks that hold parts or regions to the blocks of every pair."""
    seen, blocks, block_count = batch.seen, batch.blocks, batch.block_count
    for k in range(len(configurations)):
        for at in range(starts[configurations[k]], starts[configurations[k] + 1]):
            b = block[devices[at]]
            if not seen[k, b]:
                seen[k, b] = True
                blocks[k, block_count[k]] = b
                block_count[k] += 1


@inner
def _visit_inside(batch: Any, overlaps: Any, routes: Any, element_bytes: float) -> None:  # noqa: C901 - a nest of loops
    """Visit the messages inside the blocks: load their links, and find their longest latency.

    ``entering`` of the top level gets what regions still miss, ``leaving`` minus what parts have sent already.
    """
    us, vs, blocks, block_count, wait = batch.producer, batch.consumer, batch.blocks, batch.block_count, batch.wait
    load, largest, leaving, entering = batch.load, batch.largest, batch.leaving, batch.entering
    part_on, region_on, volume = overlaps.part_on, overlaps.region_on, overlaps.volume
    table, rows, columns = overlaps.table, overlaps.rows, overlaps.columns
    member_start, members, level_of, latency_class = (
        routes.member_start,
        routes.members,
        routes.level,
        routes.latency_class,
    )
    route_start, route_links, top, rising = routes.route_start, routes.route_links, routes.top, routes.rising
    class_start, class_size, class_latency = routes.class_start, routes.class_size_bytes, routes.class_latency_s
    count = len(routes.block)
    for k in range(len(us)):
        u, v = us[k], vs[k]
        for i in range(block_count[k]):
            first, last = member_start[blocks[k, i]], member_start[blocks[k, i] + 1]
            for m in range(first, last):
                here = members[m]
                q = region_on[v, here]
                if q < 0:
                    continue
                rest = volume[q]
                for o in range(first, last):
                    there = members[o]
                    p = part_on[u, there]
                    if p < 0:
                        continue
                    # the overlap of a part and a region is the product of the overlaps along the dimensions
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


@inner
def _sum_leaving(batch: Any, overlaps: Any, routes: Any) -> None:
    """Add what parts send in all to ``leaving`` of the top level, and see whether anything crosses between blocks."""
    us, vs, blocks, block_count, crosses = (
        batch.producer,
        batch.consumer,
        batch.blocks,
        batch.block_count,
        batch.crosses,
    )
    leaving, entering, top = batch.leaving, batch.entering, routes.top
    member_start, members = routes.member_start, routes.members
    part_on, copies = overlaps.part_on, overlaps.copies
    sent, sent_rows, sent_columns = overlaps.sent, overlaps.sent_rows, overlaps.sent_columns
    for k in range(len(us)):
        u, v, total = us[k], vs[k], 0.0
        for i in range(block_count[k]):
            for m in range(member_start[blocks[k, i]], member_start[blocks[k, i] + 1]):
                at = members[m]
                p = part_on[u, at]
                if p >= 0:
                    size = copies[v]
                    for d in range(sent_rows.shape[1]):
                        size *= sent[sent_rows[p, d] + sent_columns[v, d]]
                    leaving[k, top, at] += size
                total += leaving[k, top, at] + entering[k, top, at]
        crosses[k] = total > 0.0


@inner
def _bound_waits(batch: Any, overlaps: Any, routes: Any, pairs: Any) -> None:
    """Bound the latency of messages between blocks: the largest overlap, on the latency classes that both ends have."""
    us, vs, ceiling, element_bytes = batch.producer, batch.consumer, batch.ceiling, pairs.element_bytes
    sent_classes, received_classes, rising = pairs.sent_classes, pairs.received_classes, routes.rising
    most, most_rows, most_columns = overlaps.most, overlaps.most_rows, overlaps.most_columns
    class_start, class_size, class_latency = routes.class_start, routes.class_size_bytes, routes.class_latency_s
    for k in range(len(us)):
        u, v = us[k], vs[k]
        size, longest, classes = element_bytes, 0.0, sent_classes[u] & received_classes[v]
        for d in range(most_rows.shape[1]):
            size *= most[most_rows[u, d] + most_columns[v, d]]
        for c in range(len(class_start) - 1):
            # Class c is bit c % 63 of the masks: where classes share a bit, one too many only loosens the bound.
            if classes >> (c % 63) & 1:
                if class_start[c + 1] - class_start[c] == 1:
                    longest = max(longest, class_latency[class_start[c]])
                else:
                    longest = max(longest, _latency(size, c, class_start, class_size, class_latency))
        ceiling[k] = longest if rising else np.inf


@inner
def _visit_crossing(batch: Any, overlaps: Any, routes: Any, pairs: Any) -> None:
    """Raise ``wait`` to the longest latency of messages between blocks; stop where it reaches ``ceiling``.

    The parts that a region overlaps are a range in every dimension; ``index`` runs through all of them, the last
    dimension fastest, like the digits of an odometer:

        degrees (2, 3), a region that overlaps rows 0-1 and columns 1-2 of the parts: first (0, 1), last (1, 2)
        index   (0, 1) (0, 2) (1, 1) (1, 2)
        part       1      2      4      5
    """
    us, vs, wait, ceiling, crosses = batch.producer, batch.consumer, batch.wait, batch.ceiling, batch.crosses
    largest, element_bytes = batch.largest, pairs.element_bytes
    degrees, sizes, part_start, devices = overlaps.degrees, overlaps.sizes, overlaps.part_start, overlaps.part_devices
    region_start, region_devices, low, high, volume = (
        overlaps.region_start,
        overlaps.region_devices,
        overlaps.low,
        overlaps.high,
        overlaps.volume,
    )
    table, rows, columns = overlaps.table, overlaps.rows, overlaps.columns
    block, latency_class, rising = routes.block, routes.latency_class, routes.rising
    class_start, class_size, class_latency = routes.class_start, routes.class_size_bytes, routes.class_latency_s
    dims, count = len(sizes), len(block)
    first, last, index = np.empty(dims, np.int64), np.empty(dims, np.int64), np.empty(dims, np.int64)
    for k in range(len(us)):
        u, v = us[k], vs[k]
        q = region_start[v + 1] if crosses[k] else 0
        while q > region_start[v] and wait[k] < ceiling[k]:
            q -= 1
            if volume[q] == 0.0:
                continue
            for d in range(dims):
                # the largest i with i * size // degree <= x, at both ends of the region
                first[d] = ((low[q, d] + 1) * degrees[u, d] - 1) // sizes[d]
                last[d] = (high[q, d] * degrees[u, d] - 1) // sizes[d]
                index[d] = first[d]
            here, step = region_devices[q], 0
            while step >= 0 and wait[k] < ceiling[k]:
                p = 0
                for d in range(dims):
                    p = p * degrees[u, d] + index[d]
                p += part_start[u]
                there = devices[p]
                if block[there] != block[here]:
                    size = element_bytes
                    for d in range(dims):
                        size *= table[rows[p, d] + columns[q, d]]
                    c = latency_class[there * count + here]
                    if size > 0.0 and (size > largest[k, c] or not rising):
                        largest[k, c] = size
                        wait[k] = max(wait[k], _latency(size, c, class_start, class_size, class_latency))
                step = dims - 1
                while step >= 0 and index[step] == last[step]:
                    index[step] = first[step]
                    step -= 1
                if step >= 0:
                    index[step] += 1


@inner
def _load_exits(batch: Any, routes: Any) -> None:
    """Load exits and entries with what leaves and enters at each level, and empty both for the next batch."""
    blocks, block_count, load = batch.blocks, batch.block_count, batch.load
    leaving, entering = batch.leaving, batch.entering
    member_start, members, top = routes.member_start, routes.members, routes.top
    out_start, out_links, in_start, in_links = routes.out_start, routes.out_links, routes.in_start, routes.in_links
    count = leaving.shape[2]
    for k in range(len(block_count)):
        for i in range(block_count[k]):
            for m in range(member_start[blocks[k, i]], member_start[blocks[k, i] + 1]):
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


@inner
def _find_busiest(batch: Any, routes: Any, element_bytes: float) -> None:
    """Write the time of the busiest link of each pair to ``busy``, and set the loads to 0 for the next batch."""
    blocks, block_count, load, busy = batch.blocks, batch.block_count, batch.load, batch.busy
    block_start, block_links, seconds_per_byte = routes.block_start, routes.block_links, routes.seconds_per_byte
    for k in range(len(block_count)):
        for i in range(block_count[k]):
            for r in range(block_start[blocks[k, i]], block_start[blocks[k, i] + 1]):
                link = block_links[r]
                time = load[k, link] * element_bytes * seconds_per_byte[link]
                busy[k] = time if time > busy[k] else busy[k]
                load[k, link] = 0.0


@inner
def _latency(size: float, c: int, class_start: Any, class_size: Any, class_latency: Any) -> Any:
    """Return the latency of class ``c`` for a message of ``size`` bytes: piecewise linear, constant at the ends."""
    first, last = class_start[c], class_start[c + 1]
    if size <= class_size[first]:
        return class_latency[first]
    for i in range(first + 1, last):
        if size <= class_size[i]:
            share = (size - class_size[i - 1]) / (class_size[i] - class_size[i - 1])
            return class_latency[i - 1] + share * (class_latency[i] - class_latency[i - 1])
    return class_latency[last - 1]
