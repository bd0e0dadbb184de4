"""What messages use of the arithmetic of devices whose own processor moves them."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints
from hwprofiles.devices import DeviceGraph
from planner.lowering import Collective

__all__ = ["ArithmeticUses", "MessageOverheads", "message_overheads_of"]


class ArithmeticUses(NamedTuple):
    """What M messages use of the arithmetic of devices, message by message."""

    counts: Ints
    """Shape (M,): devices whose arithmetic each message uses."""
    device: Ints
    busy_s_per_byte: Floats


class MessageOverheads:
    """The overheads of a cluster's devices; see ``hwprofiles.devices.message_overhead``.

    Args:
        cluster: The device graph.
    """

    def __init__(self, cluster: DeviceGraph) -> None:
        rows = [device.message_overhead for device in cluster.devices]
        self.declared = any(rows)
        """Whether any device has one."""
        self._message_s = np.array([row.message_s for row in rows])
        self._byte_s = np.array([row.byte_s for row in rows])
        self._add_byte_s = np.array([row.add_byte_s for row in rows])

    def of(self, source: Ints, target: Ints, size_bytes: Floats) -> ArithmeticUses:
        """What messages between pairs of different devices use."""
        device = np.column_stack([source, target])
        busy = self._byte_s[device] + self._message_s[device] / size_bytes[:, None]
        used = busy > 0
        return ArithmeticUses(used.sum(axis=1), device[used], busy[used])

    def of_collective(self, collective: Collective) -> tuple[Ints, Floats]:
        """The devices whose arithmetic a collective uses, and the seconds per byte of its buffer on each."""
        step, loads = collective.round, np.zeros(len(self._byte_s))
        moved, messages = step.share * step.repeats, step.repeats / collective.buffer_bytes
        for end in (step.source, step.target):
            np.add.at(loads, end, self._byte_s[end] * moved + self._message_s[end] * messages)
        np.add.at(loads, step.target, self._add_byte_s[step.target] * step.share * step.adds)
        used = np.flatnonzero(loads)
        return used, loads[used]

    def priority(self, priority: Ints, is_compute: NDArray[np.bool_]) -> Ints:
        """Priorities of tasks, with those of messages above those of arithmetic where both share a device.

        The system's processor is given to what has waited for a message; arithmetic gets what is left.
        """
        if not self.declared or not len(priority):
            return priority
        return np.where(is_compute, priority, priority + priority.max() - priority.min() + 1)


@lru_cache(maxsize=64)
def message_overheads_of(cluster: DeviceGraph) -> MessageOverheads:
    """The overheads of a cluster's devices, looked up once."""
    return MessageOverheads(cluster)
