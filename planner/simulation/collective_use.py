"""Uses of links and copy engines by collectives, relative to the sizes of their buffers."""

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.layouts.device_classes import MessageClasses
from planner.lowering.program import Collective, Program
from planner.topology.copy_engine_use import CopyEngineUses
from planner.topology.network_routes import ClusterRoutes


def carried_bytes(program: Program, network: ClusterRoutes) -> Floats:
    """Return the bytes that every link carries in one iteration of a program, shape (links,)."""
    sends = np.flatnonzero(program.peer >= 0)
    carried = sent_loads(program, network, sends, program.size_bytes[sends])
    joint = np.zeros_like(carried)
    for task, copy in program.host_copies.items():
        carried[list(copy.links)] += program.size_bytes[task] * np.array(copy.shares)
    for collective in program.collectives.values():
        traffic = collective.round.traffic
        loads = network.link_loads(traffic.source, traffic.target, traffic.sent * collective.buffer_bytes)
        if isinstance(program.classes, MessageClasses):
            carried += _of_each_alike(program.classes, np.arange(len(loads)), loads * (1 + len(collective.others)))
        elif collective.others:
            carried += loads
        else:
            joint += loads
    # what devices that are not lowered send is on their links what it is on those of the first
    return joint + (carried if program.classes is None else carried[program.classes.link_like])


def sent_loads(program: Program, network: ClusterRoutes, sends: Ints, size_bytes: Floats) -> Floats:
    """Return the bytes that messages, with those for which they stand, put on every link, shape (links,).

    Of links that are used alike, the first carries what each of them does.

    Args:
        program: The program.
        network: Routes of its cluster.
        sends: Tasks, shape (M,).
        size_bytes: Bytes that each takes of its links, shape (M,).
    """
    source, target = program.device[sends], program.peer[sends]
    if not isinstance(program.classes, MessageClasses):
        return network.link_loads(source, target, size_bytes)
    counts, links = network.routes(source, target)
    return _of_each_alike(program.classes, links, np.repeat(size_bytes * program.stands_for[sends], counts))


def collective_loads(program: Program, task: int, used: Ints, taken: Floats) -> Floats:
    """Return what a collective takes of every link, with those for which it stands; as ``sent_loads``.

    Args:
        program: The program.
        task: The collective.
        used: Links that it uses itself.
        taken: What it takes of these.
    """
    if isinstance(program.classes, MessageClasses):
        return _of_each_alike(program.classes, used, taken * program.stands_for[task])
    loads = np.zeros(len(program.cluster.links))
    loads[used] = taken
    return loads


def _of_each_alike(classes: MessageClasses, links: Ints, taken: Floats) -> Floats:
    """Return by the first link of each class what each of its links has of what some of them have."""
    like, members = classes.link_like, np.bincount(classes.link_like, minlength=len(classes.link_like)).clip(min=1)
    return np.asarray(np.bincount(like[links], taken, minlength=len(like)) / members, dtype=np.float64)


class CollectiveLinks:
    """What collectives take of links, as shares of their buffers; computed once for equal rounds."""

    def __init__(self, network: ClusterRoutes) -> None:
        self._network = network
        self._known: dict[int, tuple[Ints, Floats, Ints]] = {}

    def of(self, collective: Collective) -> tuple[Ints, Floats, float]:
        """Return the links used, the bytes taken of each by byte of the buffer, and the latency of all repeats."""
        messages, network = collective.round, self._network
        if id(messages) not in self._known:
            source, target, traffic = messages.source, messages.target, messages.traffic
            loads = network.link_loads(traffic.source, traffic.target, traffic.taken)
            used = np.flatnonzero(loads)
            self._known[id(messages)] = used, loads[used], np.unique(network.latency_classes(source, target))
        used, share, classes = self._known[id(messages)]
        carried = messages.carried
        if carried is not None and carried.latency_s is not None:
            return used, share, carried.latency_s + carried.copied_s_per_byte * collective.buffer_bytes
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
            traffic = messages.traffic
            counts, engine, busy = self._engines.of(traffic.source, traffic.target)
            taken = busy * np.repeat(traffic.taken, counts)
            loads = np.bincount(engine, taken, minlength=len(self._engines.names))
            used = np.flatnonzero(loads)
            self._known[id(messages)] = used, loads[used].astype(np.float64)
        return self._known[id(messages)]
