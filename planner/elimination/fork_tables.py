"""The arithmetic of the fork rule: the cheapest way to share layouts, for all configurations at once or for one.

Two clients with three configurations each, of which two need a common layout, have these blocks::

    client 0    layouts  [7, 8, 9]      block {0}      ways: 7, 8, 9
    client 1    layouts  [8, 9, 5]      block {1}      ways: 8, 9, 5
                                        block {0, 1}   ways: 8, 9       one transfer for both

The cost is the least sum over the partitions {0} + {1} and {0, 1}, entry by entry of the tables.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools, Floats, Ints
from groundwork.sparse_rows import row_entries
from planner.elimination.minplus import product


class Client(NamedTuple):
    """The tables of one consumer; ``u`` is the producer and ``e`` the common end."""

    transfer: Floats
    """Time of the transfer, shape (Cu, Ci)."""
    layout: Ints
    """Layout that each configuration needs, shape (Ci,)."""
    own: Floats
    """Cost of the node, shape (Ci,)."""
    extra: Floats | None
    """Another table with the producer, shape (Cu, Ci)."""
    onward: Floats | None
    """Table with the end, shape (Ci, Ce)."""


class _Block(NamedTuple):
    """The n ways to serve a set of clients with one layout: a layout and a configuration of each client."""

    layout: Ints
    """Layout of each way, shape (n,)."""
    moved: Floats
    """Cost at ``u``: the transfer, once, and the clients' other tables with the producer, shape (Cu, n)."""
    penalty: Floats | None
    """Cost at ``u`` of a client that shares another's transfer: its ``extra``, and ``inf`` where the pair is
    forbidden, shape (Cu, n); None where it is zero."""
    rest: Floats
    """All other cost of the clients, shape (n, Ce), or (n, 1) where it does not depend on ``e``."""


def fork_table(fixed: Ints | None, clients: Sequence[Client], room: Callable[[int], None]) -> tuple[Floats, int]:
    """Return the cost R of the clients given the configurations of ``u`` and ``e``.

    Args:
        fixed: Layout that ``e`` itself needs, shape (Ce,); None where ``e`` is no consumer of the tensor.
        clients: The other consumers.
        room: Called with a number of table entries before they are allocated; raises where they are too many.

    Returns:
        R of shape (Cu, Ce) or (Cu, 1), and the number of sums to compare.
    """
    singles = [_single(client) for client in clients]
    value, candidates = {}, 0
    for mask, block in _blocks(singles, room):
        value[mask] = _through(block.moved, block.rest)
        candidates += block.moved.size * block.rest.shape[1]
    if fixed is not None:
        # A client may also use the layout of e, whose transfer e pays.
        for i, single in enumerate(singles):
            value[1 << i] = np.minimum(value[1 << i], _with_end(single, fixed))
    return _cheapest_partition(value, (1 << len(clients)) - 1), candidates


def _through(left: Floats, right: Floats) -> Floats:
    """Return the (min,+) product of two tables."""
    return product(left, np.zeros(len(right)), right)


def _single(client: Client) -> _Block:
    """Return the block of one client, with its interchangeable configurations merged."""
    rest = client.own[:, None] + (0.0 if client.onward is None else client.onward)
    forbidden = None if client.transfer.max() < np.inf else np.isinf(client.transfer)
    penalty = client.extra
    if forbidden is not None:
        penalty = np.where(forbidden, np.inf, 0.0 if penalty is None else penalty)
    first, rest = _merge(client, forbidden, rest)
    moved = client.transfer if client.extra is None else client.transfer + client.extra
    return _Block(client.layout[first], _columns(moved, first), _columns(penalty, first), rest)


def _merge(client: Client, forbidden: Bools | None, rest: Floats) -> tuple[Ints, Floats]:
    """Merge configurations that are equal at the producer.

    Returns:
        The first configuration of each class, and the least of its ``rest``.
    """
    if client.extra is not None:
        return np.arange(len(rest)), rest
    label: NDArray[Any] = client.layout
    if forbidden is not None:
        # Columns of flags as packed bits, then classes of equal (layout, pattern).
        patterns = np.unique(np.packbits(forbidden, axis=0), axis=1, return_inverse=True)[1].ravel()
        label = np.unique(np.stack([label, patterns]), axis=1, return_inverse=True)[1].ravel()
    # Labels [7, 8, 7] have the order [0, 2, 1], in which the classes start at 0 and 2.
    order = np.argsort(label, kind="stable")
    starts = np.flatnonzero(np.diff(label[order], prepend=label[order[0]] - 1))
    return order[starts], np.minimum.reduceat(rest[order], starts, axis=0)


def _columns(table: Floats | None, columns: Ints) -> Any:
    """Return some columns of a table, C-contiguous as the product needs them."""
    return None if table is None else np.take(table, columns, axis=1)


def _blocks(singles: Sequence[_Block], room: Callable[[int], None]) -> Iterator[tuple[int, _Block]]:
    """Yield every set of clients, as bits, that can share a layout, depth first, so that few blocks exist at a time."""

    def grow(mask: int, block: _Block, after: int) -> Iterator[tuple[int, _Block]]:
        """Yield a block and all larger ones that add clients from ``after`` on."""
        yield mask, block
        for i in range(after, len(singles)):
            larger = _join(block, singles[i], room)
            if len(larger.layout):
                yield from grow(mask | 1 << i, larger, i + 1)

    for i, single in enumerate(singles):
        yield from grow(1 << i, single, i + 1)


def _join(block: _Block, single: _Block, room: Callable[[int], None]) -> _Block:
    """Return the block with one more client that shares its transfer.

    Its ways are all pairs of a way of the block and one of the client with the same layout::

        block layouts     [7, 8, 9]      matches [0, 1, 2]      ways   [1, 2, 2]
        client layouts    [8, 9, 9]                             others [0, 1, 2]
    """
    order = np.argsort(single.layout, kind="stable")
    low, high = (np.searchsorted(single.layout[order], block.layout, side=side) for side in ("left", "right"))
    matches = high - low
    room(int(matches.sum()) * (len(block.moved) + max(block.rest.shape[1], single.rest.shape[1])))
    ways = np.repeat(np.arange(len(matches)), matches)
    others = order[row_entries(low, matches)]
    moved = _columns(block.moved, ways)
    if single.penalty is not None:
        moved += _columns(single.penalty, others)  # the transfer is paid once, the client's other tables still count
    return _Block(block.layout[ways], moved, None, block.rest[ways] + single.rest[others])


def _with_end(single: _Block, fixed: Ints) -> Floats:
    """Return the cost of a client that uses the layout that ``e`` needs and pays for, shape (Cu or 1, Ce)."""
    rest = np.where(single.layout[:, None] == fixed, single.rest, np.inf)
    return rest.min(axis=0)[None] if single.penalty is None else _through(single.penalty, rest)


def _cheapest_partition(value: dict[int, Floats], everyone: int) -> Floats:
    """Return the least sum of block values over the partitions of the clients, entry by entry.

    Args:
        value: Table of every block, by its clients as bits.
        everyone: All clients, as bits.
    """

    @cache
    def best(clients: int) -> Floats:
        """Return the least sum for some of the clients: a block with the first of them, and the best of the rest."""
        least: Floats | None = None
        for block in _blocks_with_first(clients):
            if block in value:
                total = value[block] if block == clients else value[block] + best(clients ^ block)
                least = total if least is None else np.minimum(least, total)
        assert least is not None, "a client alone is always a block"
        return least

    return best(everyone)


def _blocks_with_first(clients: int) -> Iterator[int]:
    """Yield the subsets of a set, as bits, that contain its lowest member."""
    first = clients & -clients  # the lowest bit alone: 0b0110 & -0b0110 is 0b0010
    others = rest = clients ^ first
    while True:
        yield first | rest
        if not rest:
            return
        rest = (rest - 1) & others  # the next smaller subset of the others: 0b101, 0b100, 0b001, 0


def fork_choice(clients: Sequence[Client], *, at_producer: int, at_end: int, free: int | None) -> list[int]:
    """Return the clients' best configurations at one configuration of ``u`` and of ``e``.

    Args:
        clients: As in ``fork_table``.
        at_producer: Configuration of ``u``.
        at_end: Configuration of ``e``; 0 without one.
        free: Layout that ``e`` needs and pays for; None where it needs none.

    Returns:
        Configuration of each client.
    """
    layouts = np.unique(np.concatenate([client.layout for client in clients]))
    offers = [_offers(client, layouts, at_producer, at_end) for client in clients]
    shares = layouts == free if free is not None else np.zeros(len(layouts), dtype=bool)
    # A layout has one price for all clients; inf marks clients that cannot use it.
    move = np.where(shares, 0.0, np.min([transfer for _, _, transfer in offers], axis=0))

    @cache
    def best(left: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Return the least cost of some of the clients, and pairs of a client and its configuration."""
        if not left:
            return 0.0, ()
        ways = []
        for block in _blocks_with_first(left):
            members = [i for i in range(len(clients)) if block >> i & 1]
            price = move + sum(offers[i][0] for i in members)
            layout = int(price.argmin())
            cost, picks = best(left ^ block)
            ways.append((float(price[layout]) + cost, (*((i, int(offers[i][1][layout])) for i in members), *picks)))
        return min(ways)

    return [pick for _, pick in sorted(best((1 << len(clients)) - 1)[1])]


def _offers(client: Client, layouts: Ints, at_producer: int, at_end: int) -> tuple[Floats, Ints, Floats]:
    """Return for each layout the least cost of a client without the transfer, its configuration, and the transfer."""
    transfer = client.transfer[at_producer]
    price = np.where(transfer < np.inf, client.own, np.inf)
    if client.extra is not None:
        price = price + client.extra[at_producer]
    if client.onward is not None:
        price = price + client.onward[:, at_end if client.onward.shape[1] > 1 else 0]
    # Written in descending order of cost, ties from the last to the first: the cheapest first configuration stays.
    order = np.argsort(price, kind="stable")[::-1]
    position = np.searchsorted(layouts, client.layout[order])
    least, pick, moved = np.full(len(layouts), np.inf), np.zeros(len(layouts), np.int64), np.full(len(layouts), np.inf)
    least[position], pick[position], moved[position] = price[order], order, transfer[order]
    return least, pick, moved
