"""The rule by which a communication library chooses among its algorithms between nodes: that of NCCL's tuner.

The tuner prices each algorithm and protocol with constants of its own and takes the least price.  These constants are
measured over InfiniBand; over another network the choice may be slow, and the library makes it all the same.  A
network's plug-in can declare a latency, which the tuner adds to each step between nodes.  Some constants depend on the
maker of the hosts' processors.

Source:
    NVIDIA's NCCL, src/graph/tuning.cc (2.21): ``ncclTopoTuneModel``, ``ncclTopoGetAlgoTime``, ``getNetOverhead``; and
    2.18.3, of releases before.
"""

from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats
from groundwork.units import GIGA, MICRO
from hwprofiles.devices.collective_library import CollectiveLibrary


class _Constants(NamedTuple):
    """The tuner's constants of one algorithm and protocol, in microseconds."""

    call: float
    near: float
    far: float


_CONSTANTS = {
    ("tree", "ll"): _Constants(6.8, 0.6, 5.0),
    ("tree", "ll128"): _Constants(14.0, 1.25, 8.5),
    ("tree", "simple"): _Constants(8.4, 4.0, 14.0),
    ("ring", "ll"): _Constants(6.6, 0.6, 2.7),
    ("ring", "ll128"): _Constants(14.0, 1.9, 4.0),
    ("ring", "simple"): _Constants(8.4, 3.4, 14.0),
}
_POSTED_US = {"ll": 1.0, "ll128": 1.0, "simple": 3.0}
"""Least time of a ring's step: what the network's thread needs to post a message, thrice by the last protocol."""
_AMD_POSTED = 2.0
"""Factor on this time where the hosts' processors are AMD's."""
_PLATEAU = 1.4
"""Factor on the latency of rings of the last protocol in all-reduces."""
_SHARES = {
    "ring": {"ll": 0.5, "ll128": 0.92, "simple": 1.0},
    "tree": {"ll": 0.92 / 3.8, "ll128": 0.92 * 120 / 128, "simple": 0.92},
}
"""Shares of the bandwidth that each reaches."""
_FORMER = ((2, 18), (2, 21))
"""Releases from the first to before the second have constants of their own; of those before nothing is known."""
_FORMER_LL_SHARE = 0.25
"""Share that they expect rings of the first protocol to reach: they take trees up to longer buffers."""
_LL_BUS_BYTES_PER_S = {False: (39.0 * GIGA, 20.4 * GIGA), True: (22.5 * GIGA, 19.0 * GIGA)}
"""Bandwidth to which the first protocol is bound: two nodes, and more; by whether the hosts' processors are AMD's."""
_TREE_SHARES = {
    "ll": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "ll128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "simple": (*[0.9] * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}
"""Factors on a tree's bandwidth by size: powers of two from 64 bytes on."""


class Spread(NamedTuple):
    """Ranks of a collective over nodes, and the bandwidth of its links: arrays of one shape, or numbers."""

    nodes: Floats
    ranks: Floats
    ring_bytes_per_s: Floats
    """Bytes of the buffer in a second by rings of the last protocol, without any latency."""
    tree_bytes_per_s: Floats
    """The same by trees."""


def tuner_s(
    library: CollectiveLibrary, algorithm: str, protocol: str, collective: str, spread: Spread, size_bytes: Floats
) -> Floats:
    """Return the seconds that the tuner expects of a collective between nodes.

    Args:
        library: The library, with its hosts and the latency of a step that the network's plug-in declares.
        algorithm: ``ring`` or ``tree``.
        protocol: ``ll``, ``ll128`` or ``simple``; others are taken for the last.
        collective: ``all-reduce``, ``all-gather``, ``reduce-scatter`` or ``broadcast``.
        spread: Where the ranks are.
        size_bytes: Bytes of the whole buffer.
    """
    name = protocol if protocol in _POSTED_US else "simple"
    former = library.release is not None and _FORMER[0] <= library.release < _FORMER[1]
    constants, both = _CONSTANTS[algorithm, name], 2 if collective == "all-reduce" else 1
    flushes = 2 if name == "simple" else 1  # the last protocol's data are flushed too
    declared_us = library.declared_s / MICRO * flushes
    far_us, local = constants.far + declared_us, spread.ranks / spread.nodes - 1
    if algorithm == "tree":
        waited_us = 2 * (local * constants.near + np.floor(np.log2(spread.nodes)) * far_us)
        place = np.floor(np.log2(np.maximum(size_bytes, 64) / 64)).astype(np.int64)
        rows = np.array(_TREE_SHARES[name])
        rate = spread.tree_bytes_per_s * np.where(place < len(rows), rows[np.minimum(place, len(rows) - 1)], 1.0)
    elif collective == "broadcast":  # all nodes have the same channels: one step of each fills them
        waited_us, rate = np.asarray(far_us), spread.ring_bytes_per_s
    else:
        far_steps = both * (spread.nodes if former and both == 2 else spread.nodes - 1)
        steps = both * (spread.ranks - 1) - far_steps
        posted_us = _POSTED_US[name] * (_AMD_POSTED if library.amd_hosts else 1.0)
        waited_us = steps * max(constants.near, posted_us) + far_steps * far_us
        rate = spread.ring_bytes_per_s
        if name == "simple" and both == 2:
            waited_us = waited_us * _PLATEAU
    share = _FORMER_LL_SHARE if former and (algorithm, name) == ("ring", "ll") else _SHARES[algorithm][name]
    if name == "ll":
        # the bound is on the bytes that links carry, which rings carry 2 (p - 1) / p times in an all-reduce
        carried = both * (1 - 1 / np.maximum(spread.ranks, 2))
        two, more = _LL_BUS_BYTES_PER_S[library.amd_hosts]
        bound = np.where(spread.nodes > 2, more, two) / carried
        return np.asarray((constants.call + waited_us) * MICRO + size_bytes / np.minimum(rate * share, bound))
    return np.asarray((constants.call + waited_us) * MICRO + size_bytes / (rate * share))
