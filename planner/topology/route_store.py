"""The routes searched so far between the devices of a cluster, and the transposition of complete tables."""

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.sparse_rows import distinct, row_entries
from hwprofiles.devices.device_graph import DeviceGraph
from planner.topology.latency_classes import LatencyClasses

_FEW_OF_ALL = 0.05
"""Share of the routes of all pairs: to search all of them takes as long as to search so many one by one."""


class RouteStore:
    """The routes that were needed so far, in the order in which they were, with their latency classes.

    Pair (a, b) of n devices has the row ``a * n + b``.  Routes are searched when they are first needed: a ring over
    thousands of devices needs as many routes, not their square.  Small clusters search all at once when they need more
    than a few.
    """

    def __init__(self, cluster: DeviceGraph, classes: LatencyClasses, *, all_at_once: bool) -> None:
        self._cluster, self._classes, self._all_at_once = cluster, classes, all_at_once
        self._count = len(cluster.devices)
        self._has_all = False
        self._clear()

    def _clear(self) -> None:
        """Forget all routes."""
        none = np.empty(0, dtype=np.int64)
        # sorted, so that ``find`` can use a binary search; behind them one that no pair has
        self._rows = np.array([np.iinfo(np.int64).max])
        self._place = np.array([-1])  # index of the route of each row
        self.start: Ints = np.zeros(1, dtype=np.int64)
        """First link of each route in ``links``, shape (routes + 1,)."""
        self.links: Ints = none
        """Links of the routes, one route after the other."""
        self.latency_class: Ints = none
        """Latency class of each route, shape (routes,)."""

    def find(self, source: Ints, target: Ints) -> Ints:
        """Return the index of the route of each pair, after a search for those that are missing."""
        rows = source * self._count + target
        if self._has_all:
            return rows
        at = np.searchsorted(self._rows, rows)
        known = self._rows[at] == rows
        if known.all():
            return self._place[at]
        missing = distinct(rows[~known])
        if self._all_at_once and len(self.latency_class) + len(missing) > _FEW_OF_ALL * self._count**2:
            self.add_all()
            return rows
        self._add(missing, *self._cluster.routes(*np.divmod(missing, self._count)))
        return self._place[np.searchsorted(self._rows, rows)]

    def add_all(self) -> None:
        """Search the routes of all pairs; the index of a pair is then its row."""
        if not self._has_all:
            table = self._cluster.route_table()
            self._clear()
            self._add(np.arange(self._count**2), np.diff(table.start), table.links.astype(np.int64))
            self._has_all = True

    def _add(self, rows: Ints, lengths: Ints, links: Ints) -> None:
        """Append routes, given by row in rising order."""
        at = np.searchsorted(self._rows, rows)
        self._place = np.insert(self._place, at, len(self.latency_class) + np.arange(len(rows)))
        self._rows = np.insert(self._rows, at, rows)
        self.latency_class = np.concatenate([self.latency_class, self._classes.classify(lengths, links)])
        self.start = np.concatenate([self.start, self.start[-1] + np.cumsum(lengths)])
        self.links = np.concatenate([self.links, links])


def transposed(values: Ints) -> Ints:
    """Return values of the rows ``a * n + b`` in the order of the rows ``b * n + a``, shape (n * n,).

    For two devices::

        pair   0 to 0   0 to 1   1 to 0   1 to 1            0 to 0   1 to 0   0 to 1   1 to 1
        value  p        q        r        s        becomes  p        r        q        s
    """
    count = round(len(values) ** 0.5)
    return np.ascontiguousarray(values.reshape(count, count).T).ravel()


def swapped_routes(start: Ints, links: Ints) -> tuple[Ints, Ints]:
    """Return the routes of all pairs in the order of target, then source, as offsets and links."""
    lengths = transposed(np.diff(start))
    swapped = np.concatenate(([0], np.cumsum(lengths)))
    return swapped, links[row_entries(transposed(start[:-1]), lengths)]


def mirrors(start: Ints, links: Ints, seconds_per_byte: Floats, latency_class: Ints) -> bool:
    """Return whether every route goes back over the opposite links, equally fast.

    Activation gradients, which flow from target to source, then cost what the activations cost.

    Args:
        start: Offsets of the routes of all n * n pairs, shape (n * n + 1,).
        links: Links of the routes.
        seconds_per_byte: Inverse bandwidth of every link, shape (L,).
        latency_class: Latency class of every route, shape (n * n,).
    """
    back_start, back = swapped_routes(start, links)
    if not (np.array_equal(start, back_start) and np.array_equal(latency_class, transposed(latency_class))):
        return False
    lengths = np.diff(start)
    # The k-th link of a route must be opposite to the k-th from the end of the route back, always the same one.
    # A route over links a, b goes back over b', a': a at position 0 meets the last entry, b at 1 the one before it.
    position = np.arange(len(links)) - np.repeat(start[:-1], lengths)
    last = np.repeat(start[1:] - 1, lengths)
    opposite = np.arange(len(seconds_per_byte))
    opposite[links] = back[last - position]
    # A link with two different opposites keeps the last one written, and is found out by reading all back.
    return np.array_equal(opposite[links], back[last - position]) and np.array_equal(
        seconds_per_byte[opposite], seconds_per_byte
    )
