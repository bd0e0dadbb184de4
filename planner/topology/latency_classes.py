"""Latency classes: routes that cross the same kinds of links have one latency function of the message size."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from hwprofiles.devices.columns import ClusterLinks
from hwprofiles.devices.latency import Latency


class LatencyFunctions(NamedTuple):
    """The latency functions of C classes, piecewise linear between points and constant beyond the outer ones."""

    start: Ints
    """First point of each class, shape (C + 1,)."""
    size_bytes: Floats
    """Message size at each point, rising within a class, shape (points,)."""
    latency_s: Floats
    """Latency at each point, shape (points,)."""


class LatencyClasses:
    """The latency classes of routes, numbered as they are first met.

    A class is given by the number of links of each kind (of one ``Latency``) that its routes cross; its function is
    the sum of theirs.  Routes over kinds ``x`` and ``y``::

        route          links         x  y     class
        0 -> 1         x, x          2  0     0
        0 -> 2         x, y, x       2  1     1
        2 -> 0         x, x, y       2  1     1
    """

    def __init__(self, links: ClusterLinks) -> None:
        kinds: dict[Latency, int] = {}
        self._link_kind = links.of_each(lambda link: kinds.setdefault(link.latency, len(kinds))).astype(np.int64)
        self._kinds = list(kinds)
        self._class_of: dict[bytes, int] = {}
        self._functions: list[tuple[Floats, Floats]] = []

    def classify(self, lengths: Ints, links: Ints) -> Ints:
        """Return the latency class of every route.

        Args:
            lengths: Number of links of each route, shape (routes,).
            links: Links of the routes, one route after the other.
        """
        count, kinds = len(lengths), len(self._kinds)
        # A table of routes by kinds, counted in one pass: the cell of a link is its route's row and its kind's column.
        cell = np.repeat(np.arange(count), lengths) * kinds + self._link_kind[links]
        crossed = np.bincount(cell, minlength=count * kinds).reshape(count, kinds)
        key, radix = np.zeros(count, dtype=np.int64), int(lengths.max(initial=0)) + 1
        for kind in range(kinds):  # renumbered after each kind, so that keys stay small
            key = np.unique(key * radix + crossed[:, kind], return_inverse=True)[1]
        # One route of each class stands for all others.
        _, example = np.unique(key, return_index=True)
        return np.array([self._class(crossed[row]) for row in example.tolist()], dtype=np.int64)[key]

    def _class(self, crossed: Ints) -> int:
        """Return the class of routes with these numbers of links of each kind, which is made where it is new."""
        key = crossed.tobytes()
        if key not in self._class_of:
            self._class_of[key] = len(self._functions)
            self._functions.append(_sum_of(self._kinds, np.repeat(np.arange(len(crossed)), crossed).tolist()))
        return self._class_of[key]

    def latencies_s(self, classes: Ints, size_bytes: Floats) -> Floats:
        """Return the latency of one message on a route of each class, arrays of one shape."""
        latencies = np.zeros(len(classes))
        for index in np.flatnonzero(np.bincount(classes)).tolist():
            mine = classes == index  # one interpolation for all routes of a class
            latencies[mine] = np.interp(size_bytes[mine], *self._functions[index])
        return latencies

    def least_s(self, index: int) -> float:
        """Return the least value of the function of a class."""
        return float(self._functions[index][1].min())

    def functions(self) -> LatencyFunctions:
        """Return the functions of all classes met so far as arrays."""
        return LatencyFunctions(
            start=np.cumsum([0] + [len(sizes) for sizes, _ in self._functions]).astype(np.int64),
            size_bytes=np.concatenate([sizes for sizes, _ in self._functions]),
            latency_s=np.concatenate([seconds for _, seconds in self._functions]),
        )


def _sum_of(latencies: Sequence[Latency], members: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the sum of piecewise-linear functions, which is exact on the union of their points."""
    sizes = np.unique(np.concatenate([[0.0], *(latencies[i].sizes_bytes for i in members)]))
    seconds = np.zeros_like(sizes)
    for i in members:
        seconds += np.interp(sizes, latencies[i].sizes_bytes, latencies[i].seconds)
    return sizes, seconds
