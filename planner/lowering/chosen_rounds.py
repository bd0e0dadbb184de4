"""What the rounds of a collective follow from: found once for equal collectives, and again where links change."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from groundwork.array_types import Ints
from planner.cost.all_reduce import choose_all_reduce, group_rounds
from planner.cost.library_rounds import collective_rounds
from planner.layouts.configurations import CHANNELS, ConfigSpace
from planner.topology.network_routes import ClusterRoutes
from simulator.collectives.rounds import Round
from simulator.collectives.schemes import ALL_REDUCES


@dataclass(frozen=True, slots=True)
class ChosenRounds:
    """A collective among groups of devices, before its algorithm is chosen."""

    collective: str
    """One of ``RING_COLLECTIVES``, or ``all-to-all``; of an all-reduce of a layer's replicas, its configuration says
    the groups."""
    groups: bytes
    """Devices, as bytes: arrays are no keys."""
    ranks: int
    """Devices of each group."""
    size_bytes: float
    """Bytes of the whole buffer: of a group, or of all shards of a layer's replicas."""
    space: ConfigSpace | None = None
    """Configuration whose replicas sum gradients, by the algorithm that prices name; None for other collectives."""
    split: tuple[str, ...] = CHANNELS
    """Dimensions of the layer's output that split the buffer."""

    @classmethod
    def of(
        cls,
        collective: str,
        groups: Ints,
        size_bytes: float,
        space: ConfigSpace | None = None,
        *,
        split: tuple[str, ...] = CHANNELS,
    ) -> "ChosenRounds":
        """Return a collective among groups, shape (groups, ranks)."""
        rows = np.ascontiguousarray(groups, dtype=np.int64)
        return cls(collective, rows.tobytes(), groups.shape[1], size_bytes, space, split)

    def rounds(self, network: ClusterRoutes, gradient_sync: str) -> list[tuple[Round, ...]]:
        """Return the rounds of every group.

        Args:
            network: Routes of the cluster.
            gradient_sync: All-reduce algorithm of gradients, one of ``GRADIENT_SYNCS``.
        """
        return _rounds(self, network, gradient_sync)


@lru_cache(maxsize=16384)
def _rounds(chosen: ChosenRounds, network: ClusterRoutes, gradient_sync: str) -> list[tuple[Round, ...]]:
    """Return the rounds of every group; layers with equal collectives share them."""
    groups = np.frombuffer(chosen.groups, dtype=np.int64).reshape(-1, chosen.ranks)
    if chosen.space is None:
        return collective_rounds(network, chosen.collective, groups, chosen.size_bytes)
    scheme = gradient_sync
    if scheme not in ALL_REDUCES:  # to be chosen, or unknown
        scheme = choose_all_reduce(network, scheme, chosen.space, chosen.size_bytes, split=chosen.split).scheme
    return group_rounds(network, scheme, groups)
