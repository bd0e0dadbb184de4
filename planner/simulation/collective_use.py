"""Uses of links and copy engines by collectives, relative to the sizes of their buffers."""

import numpy as np

from hwprofiles import Floats, Ints
from planner.lowering import Collective
from planner.topology import ClusterRoutes, CopyEngineUses

__all__ = ["CollectiveEngines", "CollectiveLinks"]


class CollectiveLinks:
    """Link loads of collectives, as shares of their buffers; computed once for equal rounds."""

    def __init__(self, network: ClusterRoutes) -> None:
        self._network = network
        self._known: dict[int, tuple[Ints, Floats, Ints]] = {}

    def of(self, collective: Collective) -> tuple[Ints, Floats, float]:
        """Return the links used, the share of the buffer on each, and the latency of all repeats."""
        messages, network = collective.round, self._network
        if id(messages) not in self._known:
            source, target = messages.source, messages.target
            loads = network.link_loads(source, target, np.full(len(source), messages.link_share))
            used = np.flatnonzero(loads)
            self._known[id(messages)] = used, loads[used], np.unique(network.latency_classes(source, target))
        used, share, classes = self._known[id(messages)]
        if messages.fixed_s is not None:
            return used, share, messages.fixed_s
        latencies_s = network.class_latencies(classes, np.full(len(classes), messages.share * collective.buffer_bytes))
        return used, share, messages.repeats * float(latencies_s.max())


class CollectiveEngines:
    """Busy times of copy engines by collectives, per byte of their buffers; computed once for equal rounds."""

    def __init__(self, engines: CopyEngineUses) -> None:
        self._engines = engines
        self._known: dict[int, tuple[Ints, Floats]] = {}

    def of(self, collective: Collective) -> tuple[Ints, Floats]:
        """Return the engines used, and the seconds per byte of the buffer on each."""
        messages = collective.round
        if id(messages) not in self._known:
            _, engine, busy = self._engines.of(messages.source, messages.target)
            loads = np.bincount(engine, busy * messages.link_share, minlength=len(self._engines.names))
            used = np.flatnonzero(loads)
            self._known[id(messages)] = used, loads[used].astype(np.float64)
        return self._known[id(messages)]
