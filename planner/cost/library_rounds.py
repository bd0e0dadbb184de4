"""Collectives as a communication library runs them: rings and trees by several protocols, or sums in switches."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from hwprofiles.devices.collective_library import CollectiveLibrary, LibraryProtocol
from planner.compression.settings import LIBRARY
from planner.topology.network_routes import ClusterRoutes
from planner.topology.node_rings import chain_order, joined_directly, ring_orders
from simulator.collectives.parallel_rings import RING_COLLECTIVES, chain_rounds, parallel_rings
from simulator.collectives.rounds import Round, Traffic, round_of

COLLECTIVES = (*RING_COLLECTIVES, "broadcast", "all-to-all")
"""Collectives whose time in a library is modelled."""
_LEAST_IN_SWITCH = 3
"""Devices from which a switch saves bytes."""
_CHUNK_BYTES = {"ll": 2**15, "ll128": 576_000, "simple": 2**19}
"""Data of a chunk of a broadcast in one channel: an eighth of NCCL's buffers, which are 512 KiB, 4.9 MB and 4 MiB."""
_SHORT_SEND_BYTES = 2**14
"""Longest send by the first protocol, whose steps are the shortest."""
_CHANNEL_BYTES_PER_S = 12.5e9
"""Share of the links' bandwidth that one channel serves: NCCL has two for each NVLink."""


def is_library_scheme(scheme: str) -> bool:
    """Return whether a scheme is one of ``library_schemes``."""
    return scheme.startswith(f"{LIBRARY}-")


def _library_of(network: ClusterRoutes) -> CollectiveLibrary:
    """Return the library of a cluster.

    Raises:
        ConfigError: It is not known.
    """
    if network.library is None:
        raise ConfigError(f"gradient_sync must not be {LIBRARY} for a cluster whose file has no section {LIBRARY}")
    return network.library


def library_schemes(network: ClusterRoutes, devices: Ints, collective: str = "all-reduce") -> list[str]:
    """Return the algorithms and protocols that the library of a cluster chooses from, such as ``library-ring-ll``.

    An all-to-all is made of sends: short ones inside a node by the first protocol, all others by the last, without
    flags beside the data.

    Args:
        network: Routes of the cluster.
        devices: The devices, shape (p,).
        collective: One of ``COLLECTIVES``.

    Source:
        NVIDIA's NCCL, environment variables NCCL_ALLOC_P2P_NET_LL_BUFFERS: sends over a network have no buffers for
        protocols with flags unless it is set; and NCCL_P2P_LL_THRESHOLD: longest send with flags, 16 KiB.

    Raises:
        ConfigError: The cluster's library is not known.
    """
    library, sums = _library_of(network), collective == "all-reduce"
    algorithms, between = ["ring"], len(np.unique(network.node[devices])) > 1
    if collective == "all-to-all":
        used = library.protocols[-1:] if between else library.protocols[:: max(len(library.protocols) - 1, 1)]
        return [f"{LIBRARY}-ring-{protocol.name}" for protocol in used]
    if sums and library.tree_share is not None and between:
        algorithms.append("tree")
    if sums and joined_directly(network, devices):
        algorithms.append("chain")
    protocols = [each for each in library.protocols if not (between and each.near_only)]
    schemes = [f"{LIBRARY}-{each}-{protocol.name}" for each in algorithms for protocol in protocols]
    if sums and library.in_network is not None and between:
        schemes.append(f"{LIBRARY}-network-sums")
    return [*schemes, f"{LIBRARY}-switch-sums"] if sums and library.in_switch is not None else schemes


def _possible(network: ClusterRoutes, scheme: str, devices: Ints) -> str:
    """Return a scheme, or the ring that stands for it among devices where it is not possible.

    Groups of one layer run by one scheme, and some may lie in a node and others not.
    """
    inside = len(np.unique(network.node[devices])) == 1
    if scheme.endswith("-network-sums") and not inside:
        return scheme
    if scheme.endswith("-sums"):
        in_switch = inside and len(devices) >= _LEAST_IN_SWITCH and _library_of(network).in_switch is not None
        scheme = f"{LIBRARY}-switch-sums"
        return scheme if in_switch else f"{LIBRARY}-ring-{_library_of(network).protocols[-1].name}"
    if "-tree-" in scheme and inside:
        return scheme.replace("-tree-", "-ring-")
    if "-chain-" in scheme and not (inside and chain_order(network, devices) is not None):
        return scheme.replace("-chain-", "-ring-")
    return scheme


def library_rounds(network: ClusterRoutes, scheme: str, groups: Ints) -> list[tuple[Round, ...]]:
    """Return the rounds of an all-reduce of every group, all with one pattern.

    The data goes round rings, also for trees and sums in switches, which differ in what links carry: see
    ``_carrying``; a switch that sums takes each byte once from every device, and gives each sum once.

    Args:
        network: Routes of the cluster.
        scheme: One of ``library_schemes``.
        groups: Shape (groups, p): devices.
    """
    if groups.shape[1] == 1:
        return [()] * len(groups)
    rows = [library_collective(network, scheme, "all-reduce", tuple(group.tolist())) for group in groups]
    if len({tuple(len(step.source) for step in row) for row in rows}) > 1:  # groups that run in step need one pattern
        one = parallel_rings(np.arange(groups.shape[1])[None])
        kinds = [_possible(network, scheme, group).replace("-chain-", "-ring-") for group in groups]
        rows = [(_carrying(network, kind, group, one, one.repeats),) for kind, group in zip(kinds, groups, strict=True)]
    return rows


@lru_cache(maxsize=4096)
def library_collective(
    network: ClusterRoutes, scheme: str, collective: str, devices: tuple[int, ...]
) -> tuple[Round, ...]:
    """Return the rounds between ranks that stand for a collective of a library: what links carry, and the latency.

    Args:
        network: Routes of the cluster.
        scheme: One of ``library_schemes``.
        collective: One of ``COLLECTIVES``.
        devices: The devices, at least two.
    """
    members, count = np.array(devices), len(devices)
    scheme = _possible(network, scheme, members)
    if collective == "all-to-all":
        source, target = np.divmod(np.arange(count * count), count)
        apart = source != target
        pairs = round_of(source[apart], target[apart])
        return (_sends(network, scheme, members, replace(pairs, chunks=count, low=target[apart])),)
    if "-chain-" in scheme:
        return _chain(network, scheme, members)
    if collective == "broadcast":  # chains, from rank 0 on, each with its part of the buffer in a pipeline
        orders = ring_orders(network, members)
        rings = parallel_rings(orders, "all-gather")
        whole = replace(rings, chunks=len(orders), low=np.repeat(np.arange(len(orders)), count), span=1, repeats=1)
        return (_carrying(network, scheme, members, whole, count - 1, own=False),)
    rings = _rings(network, collective, devices)
    return (_carrying(network, scheme, members, rings, rings.repeats),)


@lru_cache(maxsize=4096)
def _rings(network: ClusterRoutes, collective: str, devices: tuple[int, ...]) -> Round:
    """Return the rings of all algorithms and protocols of a library."""
    return parallel_rings(ring_orders(network, np.array(devices)), collective)


def library_collective_s(
    network: ClusterRoutes, collective: str, devices: tuple[int, ...], size_bytes: Floats, *, in_a_row: bool = False
) -> Floats:
    """Return the seconds of a collective as the cluster's library runs it, nothing else running.

    The last rank of a broadcast has its first chunk when those between have handed it on, one after the other.  Of
    calls in a row each rank waits for one chunk: it takes the next call when it has handed on the last.

    Args:
        network: Routes of the cluster.
        collective: One of ``COLLECTIVES``.
        devices: The devices, node by node.
        size_bytes: Bytes of the whole buffer: of what each rank holds before an all-reduce, a reduce-scatter or an
            all-to-all, or has after an all-gather or a broadcast; any shape.
        in_a_row: Whether many calls follow each other, as in benchmarks, which print the mean.  A broadcast goes down
            a chain, whose ranks take the next call before the last one has the data: only one step counts.

    Raises:
        ConfigError: The library of the cluster is not known.
    """
    size = np.asarray(size_bytes, dtype=np.float64)
    if len(devices) == 1:
        return np.zeros_like(size)
    seconds = [
        _scheme_s(network, scheme, collective, devices, size, in_a_row=in_a_row)
        for scheme in library_schemes(network, np.array(devices), collective)
    ]
    if collective == "all-to-all":
        short = size / len(devices) <= _SHORT_SEND_BYTES
        return np.asarray(np.where(short, np.minimum(seconds[0], seconds[-1]), seconds[-1]))
    return np.asarray(np.min(seconds, axis=0))


def collective_rounds(
    network: ClusterRoutes, collective: str, groups: Ints, size_bytes: float
) -> list[tuple[Round, ...]]:
    """Return the rounds of a collective of every group: as the cluster's library runs it, or round a ring.

    Args:
        network: Routes of the cluster.
        collective: One of ``RING_COLLECTIVES``.
        groups: Shape (groups, p): devices; all groups run by what is fastest for the first.
        size_bytes: Bytes of the whole buffer of a group.
    """
    if network.library is None:
        return [(_plain_ring(collective, groups.shape[1]),)] * len(groups)
    first, size = tuple(groups[0].tolist()), np.asarray(size_bytes)
    schemes = library_schemes(network, groups[0], collective)
    scheme = min(schemes, key=lambda each: float(_scheme_s(network, each, collective, first, size)))
    if collective == "all-reduce":
        return library_rounds(network, scheme, groups)
    return [library_collective(network, scheme, collective, tuple(group.tolist())) for group in groups]


@lru_cache(maxsize=256)
def _plain_ring(collective: str, count: int) -> Round:
    """Return a ring over ranks in their order; equal rings are one object."""
    return parallel_rings(np.arange(count)[None], collective)


def _scheme_s(
    network: ClusterRoutes,
    scheme: str,
    collective: str,
    devices: tuple[int, ...],
    size: Floats,
    *,
    in_a_row: bool = False,
) -> Floats:
    """Return the seconds of a collective by one of ``library_schemes``; arguments as for ``library_collective_s``."""
    members = np.array(devices)
    rounds = library_collective(network, scheme, collective, devices)
    steps = [step.traffic for step in rounds]
    fixed_s = sum(step.latency_s or 0.0 for step in steps)
    if in_a_row and collective == "broadcast":
        protocol = _protocol(network, scheme)
        fixed_s = protocol.call_s + (fixed_s - protocol.call_s) / (len(devices) - 1)
    per_byte = sum(_busiest_s_per_byte(network, step, members) + step.copied_s_per_byte for step in steps)
    filling = np.asarray(0.0)
    if collective == "broadcast":
        waits = min(len(devices) - 2, 1) if in_a_row else len(devices) - 2
        filling = waits * np.minimum(size, _chunks_bytes(network, scheme, rounds[0], members))
    return np.asarray(fixed_s + (size + filling) * per_byte)


def _sends(network: ClusterRoutes, scheme: str, devices: Ints, pairs: Round) -> Round:
    """Return the round of an all-to-all with what links carry."""
    library, protocol = _library_of(network), _protocol(network, scheme)
    step = _carrying(network, scheme, devices, pairs, 1)
    inside = len(np.unique(network.node[devices])) == 1
    if library.near_send_call_s is None or not inside or protocol != library.protocols[-1]:
        return step
    latency_s = (step.traffic.latency_s or 0.0) - protocol.call_s + library.near_send_call_s
    return replace(step, carried=replace(step.traffic, latency_s=latency_s))


def _chunks_bytes(network: ClusterRoutes, scheme: str, chain: Round, devices: Ints) -> float:
    """Return the bytes of one chunk in every channel of a chain.

    Source:
        NCCL, src/include/collectives.h: BROADCAST_CHUNKSTEPS 1 of NCCL_STEPS 8; src/graph/search.cc doubles channels.
    """
    bytes_per_s = 1 / _busiest_s_per_byte(network, replace(chain, carried=None).traffic, devices)
    channels = max(2.0, np.round(bytes_per_s / _CHANNEL_BYTES_PER_S))
    return float(channels * _CHUNK_BYTES.get(scheme.rpartition("-")[2], _CHUNK_BYTES["simple"]))


def _chain(network: ClusterRoutes, scheme: str, devices: Ints) -> tuple[Round, ...]:
    """Return an all-reduce along a chain of direct links, up and down, in a pipeline of chunks.

    All its links work at the same time: in each round up every link carries a share of the buffer, and so in each
    round down.  The threads of a channel serve both ways, one after the other: of a link's two directions one works at
    a time.

    Source:
        NCCL's tuner takes half of the bandwidth of the links for trees (src/graph/tuning.cc).
    """
    order = chain_order(network, devices)
    assert order is not None, "the scheme comes from library_schemes"
    protocol, rounds = _protocol(network, scheme), chain_rounds(order)
    links = len(order) - 1
    sent = np.full(links, protocol.wire_ratio / links)
    rows = []
    for way in (rounds[:links], rounds[links:]):
        carried = Traffic(
            source=np.concatenate([step.source for step in way]),
            target=np.concatenate([step.target for step in way]),
            sent=sent,
            taken=sent / _library_of(network).near_share,
            latency_s=protocol.call_s / len(rounds) + protocol.hop_s,
        )
        rows += [replace(step, carried=carried) for step in way]
    return tuple(rows)


def _carrying(
    network: ClusterRoutes, scheme: str, devices: Ints, rings: Round, steps: int, *, own: bool = True
) -> Round:
    """Return a round with what links carry for it by an algorithm and a protocol, and the latency of these.

    Args:
        network: Routes of the cluster.
        scheme: One of ``library_schemes``.
        devices: The devices.
        rings: Messages of the round.
        steps: Steps one after another.
        own: Whether a rank has a part of the buffer to copy that it does not send.
    """
    library, count, copied_s = _library_of(network), len(devices), 0.0
    node = network.node[devices]
    is_far = node[rings.source] != node[rings.target]
    near, far = _Link(1.0, library.near_share), _Link(1.0, 1.0)
    if scheme.endswith("-switch-sums"):
        sums = library.in_switch
        assert sums is not None, "the scheme comes from library_schemes"
        latency_s, near = sums.call_s, _Link((count + 1) / steps, sums.link_share * library.near_share)
    elif scheme.endswith("-network-sums"):
        assert library.in_network is not None, "the scheme comes from library_schemes"
        latency_s = library.in_network.call_s
        near, far = _network_sums(network, devices)
    elif "-tree-" in scheme:
        # A card carries the buffer once in each direction, but for one node in n; rings carry it twice, but for one
        # device in p.  Inside a node chains carry it as often as rings, but for no device.
        protocol, share = _protocol(network, scheme), library.tree_share or 1.0
        nodes, whole = len(np.unique(node)), protocol.wire_ratio * count / (count - 1)
        latency_s = _tree_latency_s(network, protocol, devices)
        near, far = _Link(whole, library.near_share * share), _Link((nodes - 1) / nodes * whole, share)
    else:
        protocol = _protocol(network, scheme)
        share = float(is_far.mean())
        latency_s = protocol.call_s + steps * ((1 - share) * protocol.hop_s + share * protocol.far_hop_s)
        copied_s = protocol.wire_ratio / count / library.copy_bytes_per_s if own else 0.0
        near, far = _Link(protocol.wire_ratio, library.near_share), _Link(protocol.far_wire_ratio, 1.0)
    sent = rings.share * rings.repeats * np.where(is_far, far.bytes, near.bytes)
    carried = Traffic(
        source=rings.source,
        target=rings.target,
        sent=sent,
        taken=sent / np.where(is_far, far.reached, near.reached),
        latency_s=latency_s,
        copied_s_per_byte=copied_s,
    )
    return replace(rings, carried=carried)


class _Link(NamedTuple):
    """How a library uses links inside nodes, or between them."""

    bytes: float
    """Bytes on them for each byte of a ring's messages."""
    reached: float
    """Share of their bandwidth that it reaches."""


def _network_sums(network: ClusterRoutes, devices: Ints) -> tuple[_Link, _Link]:
    """Return how sums in the network's switches use links, inside nodes and between them.

    A ring carries the buffer twice, but for one device in p.  A card carries it once each way.  Inside a node its
    switch sums first, for all devices, of which a ring has one that sends to the next node; or chains carry the buffer
    as often as rings do, but for no device.
    """
    library, count = _library_of(network), len(devices)
    whole, local = count / (count - 1), count / len(np.unique(network.node[devices]))
    assert library.in_network is not None, "the scheme comes from library_schemes"
    near, far = _Link(whole, library.near_share), _Link(whole / 2, library.in_network.link_share)
    if library.in_switch is not None and local >= _LEAST_IN_SWITCH:
        near = _Link(whole * (local + 1) / (local - 1) / 2, library.near_share * library.in_switch.link_share)
    return near, far


def _protocol(network: ClusterRoutes, scheme: str) -> LibraryProtocol:
    """Return the protocol of a scheme."""
    name = scheme.rpartition("-")[2]
    return next(each for each in _library_of(network).protocols if each.name == name)


def _busiest_s_per_byte(network: ClusterRoutes, traffic: Traffic, devices: Ints) -> float:
    """Return the time of the busiest link, by byte of the buffer; ``traffic`` is between ranks."""
    loads = network.link_loads(devices[traffic.source], devices[traffic.target], traffic.taken)
    return float((loads * network.seconds_per_byte).max())


def _tree_latency_s(network: ClusterRoutes, protocol: LibraryProtocol, devices: Ints) -> float:
    """Return the latency of a tree over nodes whose devices form chains, up and down."""
    nodes = len(np.unique(network.node[devices]))
    inside, levels = len(devices) / nodes - 1, np.ceil(np.log2(nodes))
    return float(protocol.call_s + 2 * (inside * protocol.tree_hop_s + levels * protocol.tree_far_hop_s))
