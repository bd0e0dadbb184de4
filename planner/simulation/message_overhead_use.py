"""Time that messages take from the arithmetic of devices whose own processor moves them."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats, Ints
from hwprofiles.devices.device_graph import DeviceGraph
from planner.lowering.program import Collective

NO_DEVICES: tuple[Ints, Floats] = (np.empty(0, dtype=np.int64), np.empty(0))
"""No devices, and no seconds on them."""


class ArithmeticUses(NamedTuple):
    """Uses of devices' arithmetic by M messages, one message after another."""

    counts: Ints
    """Number of devices whose arithmetic each message uses, shape (M,)."""
    device: Ints
    """Device of each use, shape (uses,)."""
    busy_s_per_byte: Floats
    """Seconds that the device is busy for each byte of the message, shape (uses,)."""


class MessageOverheads:
    """Message overheads of a cluster's devices; see ``hwprofiles.devices.device``.

    Args:
        cluster: The device graph.
    """

    def __init__(self, cluster: DeviceGraph) -> None:
        devices = cluster.devices
        self.declared = any(device.message_overhead for device in devices.kinds)
        """True if any device has an overhead."""
        self._message_s = devices.of_each(lambda device: device.message_overhead.message_s)
        self._byte_s = devices.of_each(lambda device: device.message_overhead.byte_s)
        self._add_byte_s = devices.of_each(lambda device: device.message_overhead.add_byte_s)

    def of(self, source: Ints, target: Ints, size_bytes: Floats) -> ArithmeticUses:
        """Return the arithmetic that messages between pairs of different devices use.

        Args:
            source: Sending devices, shape (M,).
            target: Receiving devices, shape (M,).
            size_bytes: Sizes of the messages, shape (M,).
        """
        device = np.column_stack([source, target])
        busy = self._byte_s[device] + self._message_s[device] / size_bytes[:, None]
        used = busy > 0
        return ArithmeticUses(used.sum(axis=1), device[used], busy[used])

    def of_collective(self, collective: Collective) -> tuple[Ints, Floats]:
        """Return the devices whose arithmetic a collective uses, and the seconds per byte of its buffer on each."""
        if not self.declared:
            return NO_DEVICES
        step, loads = collective.round, np.zeros(len(self._byte_s))
        moved, messages = step.share * step.repeats, step.repeats / collective.buffer_bytes
        for end in (step.source, step.target):
            np.add.at(loads, end, self._byte_s[end] * moved + self._message_s[end] * messages)
        np.add.at(loads, step.target, self._add_byte_s[step.target] * step.share * step.adds)
        used = np.flatnonzero(loads)
        return used, loads[used]

    def priority(self, priority: Ints, is_compute: NDArray[np.bool_]) -> Ints:
        """Return priorities with messages above arithmetic if any device moves messages by its own processor.

        Operating systems schedule a thread that has waited for a message first; arithmetic gets the rest.

        Args:
            priority: Priorities of tasks, shape (T,).
            is_compute: True for compute tasks, shape (T,).
        """
        if not self.declared or not len(priority):
            return priority
        return np.where(is_compute, priority, priority + priority.max() - priority.min() + 1)


@lru_cache(maxsize=64)
def message_overheads_of(cluster: DeviceGraph) -> MessageOverheads:
    """Return the message overheads of a cluster's devices; computed once."""
    return MessageOverheads(cluster)
