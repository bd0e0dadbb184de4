"""Classes of devices that do the same at the same time, of each of which the first is lowered for all."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.graph.computation_graph import Edge
from planner.layouts.regions import TransferRegions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceClasses:
    """What stands for what: devices that are lowered for others, and links that carry the same as others."""

    device_like: Ints
    """Device that is lowered in place of each device of the cluster, shape (devices,); itself where nothing is
    computed on it."""
    link_like: Ints
    """Link that carries what each link of the cluster carries, at the same time, shape (links,)."""

    @property
    def lowered(self) -> Bools:
        """True for devices that are lowered, shape (devices,)."""
        return np.asarray(self.device_like == np.arange(len(self.device_like)))

    @property
    def alike(self) -> Ints:
        """Number of devices that do the same as each device of the cluster, itself counted, shape (devices,)."""
        return np.bincount(self.device_like, minlength=len(self.device_like))[self.device_like]

    def in_all(self, lowered: int) -> int:
        """Return what all devices have of something that a program has so often, as samples."""
        return lowered

    def images(self, groups: Ints) -> tuple[Ints, Ints]:
        """Return groups of devices of a program together with those that do the same, those of the program first.

        Args:
            groups: Shape (groups, size).

        Returns:
            Devices, shape (all groups, size), and for each the group whose image it is.
        """
        return groups, np.arange(len(groups))

    def stand_for(self, device: Ints, peer: Ints) -> Floats:
        """Return the number of tasks that do the same as each, itself counted, shape (T,).

        Args:
            device: Device that computes or sends, shape (T,); -1 where there is none.
            peer: Device that receives, shape (T,); -1 for all but messages.
        """
        at = np.maximum(device, peer)
        return np.where(at >= 0, self.alike[at], 1).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MessageClasses(DeviceClasses):
    """Classes of single devices, and of the messages between them, each of which one task stands for.

    A link carries of a class as much as each other link of its own class does.
    """

    pairs: Ints
    """Pairs of devices that send to each other, ``source * devices + target``, in order, shape (pairs,)."""
    class_of_pair: Ints
    """Class of the messages of each of these, shape (pairs,)."""
    counts: Ints
    """Pairs of devices of each class of messages, shape (classes,)."""
    regions: Mapping[Edge, TransferRegions]
    """Regions that leave or reach a device that is lowered, by edge; those between the same
    devices are ordered by their place in the tensor."""

    def message_class(self, source: Ints, target: Ints) -> Ints:
        """Return the class of the messages between pairs of devices that send to each other, shape (K,)."""
        wanted = source * len(self.device_like) + target
        at = np.searchsorted(self.pairs, wanted)
        assert np.array_equal(self.pairs[at], wanted), "classes cover all messages"
        return self.class_of_pair[at]

    def stand_for(self, device: Ints, peer: Ints) -> Floats:
        """Return the number of tasks that do the same as each; see ``DeviceClasses.stand_for``."""
        tasks, sends = DeviceClasses.stand_for(self, device, peer), np.flatnonzero(peer >= 0)
        tasks[sends] = self.counts[self.message_class(device[sends], peer[sends])]
        return tasks
