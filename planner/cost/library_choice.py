"""What a communication library chooses from, and what it takes for a buffer: algorithms by several protocols."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from groundwork.sparse_rows import distinct
from hwprofiles.devices.collective_library import CollectiveLibrary, LibraryProtocol
from planner.compression.settings import LIBRARY
from planner.cost.library_tuner import Spread, tuner_s
from planner.topology.network_routes import ClusterRoutes
from planner.topology.node_rings import joined_directly

SHORT, LONG = "short", "long"
"""Pieces of the time of one algorithm and protocol by size, see ``library_families``."""


def is_library_scheme(scheme: str) -> bool:
    """Return whether a scheme is one of ``library_families``."""
    return scheme.startswith(f"{LIBRARY}-")


def library_of(network: ClusterRoutes) -> CollectiveLibrary:
    """Return the library of a cluster.

    Raises:
        ConfigError: It is not known.
    """
    if network.library is None:
        raise ConfigError(f"gradient_sync must not be {LIBRARY} for a cluster whose file has no section {LIBRARY}")
    return network.library


def library_families(network: ClusterRoutes, devices: Ints, collective: str = "all-reduce") -> list[tuple[str, ...]]:
    """Return what the library of a cluster chooses from, each as the schemes that hold for some sizes.

    A scheme's time is that of its latency, and grows with size by one rate.  Trees between nodes have two: steps wait
    for all of a short buffer, and for whole chunks of a long one; the lesser time holds.  Rings whose messages keep
    their channel have three: short messages for a share of that time, long ones for all of it, the lesser time; and
    what the links take, where that is longer.

    An all-to-all is made of sends: short ones inside a node by the first protocol, all others by the last, without
    flags beside the data.  Networks may have another way for the shortest between nodes.

    Args:
        network: Routes of the cluster.
        devices: The devices, shape (p,).
        collective: One of ``planner.cost.library_rounds.COLLECTIVES``.

    Source:
        NVIDIA's NCCL, environment variables NCCL_ALLOC_P2P_NET_LL_BUFFERS: sends over a network have no buffers for
        protocols with flags unless it is set; and NCCL_P2P_LL_THRESHOLD: longest send with flags, 16 KiB.

    Raises:
        ConfigError: The cluster's library is not known.
    """
    library, sums = library_of(network), collective == "all-reduce"
    between = len(distinct(network.node[devices])) > 1
    if collective == "all-to-all":
        last = f"{LIBRARY}-ring-{library.protocols[-1].name}"
        first = f"{last}-{SHORT}" if between else f"{LIBRARY}-ring-{library.protocols[0].name}"
        alone = not library.inline_s if between else len(library.protocols) == 1
        return [(last,)] if alone else [(first,), (last,)]
    protocols = [each for each in library.protocols if not (between and each.near_only)]
    families = [_ring_family(protocol, between and collective != "broadcast") for protocol in protocols]
    if sums and library.tree_share is not None and between:
        names = [f"{LIBRARY}-tree-{protocol.name}" for protocol in protocols]
        families += [(f"{name}-{SHORT}", name) for name in names]
    if sums and joined_directly(network, devices):
        families += [(f"{LIBRARY}-chain-{protocol.name}",) for protocol in protocols]
    if sums and library.in_network is not None and between:
        families.append((f"{LIBRARY}-network-sums",))
    return [*families, (f"{LIBRARY}-switch-sums",)] if sums and library.in_switch is not None else families


def _ring_family(protocol: LibraryProtocol, between: bool) -> tuple[str, ...]:
    """Return the schemes of rings by one protocol."""
    name = f"{LIBRARY}-ring-{protocol.name}"
    return (f"{name}-{SHORT}", f"{name}-{LONG}", name) if between and protocol.message_s else (name,)


class LibraryChoice(NamedTuple):
    """What a library takes for each of some buffers."""

    scheme: Ints
    """Index into the schemes of all families, one after another."""
    seconds: Floats
    family: Ints
    """Index into the families."""
    family_s: Floats
    """Seconds of each family, shape (families, ...)."""


def library_choice(
    network: ClusterRoutes,
    families: Sequence[tuple[str, ...]],
    collective: str,
    spread: Spread,
    size_bytes: Floats,
    seconds: Sequence[Floats],
) -> LibraryChoice:
    """Choose what the library of a cluster takes: in one node the fastest, between nodes what its tuner expects to be.

    Args:
        network: Routes of the cluster.
        families: Those of ``library_families``.
        collective: The collective.
        spread: Where the ranks of each buffer are.
        size_bytes: Bytes of each buffer.
        seconds: Those of all schemes, one family after another, each of the shape of ``size_bytes``.
    """
    scheme, family_s, expected = list[Ints](), list[Floats](), list[Floats]()
    first = 0
    for family in families:
        at, own_s = fastest_of_family(seconds[first : first + len(family)])
        expected.append(np.where(spread.nodes > 1, tuned_s(network, family, collective, spread, size_bytes), own_s))
        if is_in_network(family):
            expected[-1] = own_s
        scheme.append(first + at)
        family_s.append(own_s)
        first += len(family)
    family_of = np.argmin(expected, axis=0)
    picked = family_of[None]
    return LibraryChoice(
        np.take_along_axis(np.array(scheme), picked, axis=0)[0],
        np.take_along_axis(np.array(family_s), picked, axis=0)[0],
        family_of,
        np.array(family_s),
    )


def fastest_of_family(seconds: Sequence[Floats]) -> tuple[Ints, Floats]:
    """Return which scheme of a family holds for each buffer, and its seconds, from those of all its schemes."""
    rows = np.array(seconds)
    at = np.argmin(rows[:2], axis=0)
    if len(rows) > 2:
        at = np.where(rows[2] > rows[:2].min(axis=0), 2, at)
    return at, np.take_along_axis(rows, at[None], axis=0)[0]


def is_in_network(family: Sequence[str]) -> bool:
    """Return whether the switches of the network sum, which the tuner takes where that is faster than it expects."""
    return family[-1].split("-")[1] == "network"


def tuned_s(
    network: ClusterRoutes, family: Sequence[str], collective: str, spread: Spread, size_bytes: Floats
) -> Floats:
    """Return the seconds that the tuner expects of a family between nodes; infinite for those of one node."""
    algorithm, protocol = family[-1].split("-")[1:3]
    if algorithm in ("ring", "tree"):
        return tuner_s(library_of(network), algorithm, protocol, collective, spread, size_bytes)
    return np.full(np.shape(size_bytes), np.inf)
