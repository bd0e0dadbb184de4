"""Collectives as a communication library runs them: rings and trees by several protocols, or sums in switches."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.sparse_rows import distinct
from hwprofiles.devices.collective_library import LibraryProtocol
from planner.compression.settings import LIBRARY
from planner.cost.library_choice import LONG, SHORT, library_choice, library_families, library_of
from planner.cost.library_tuner import Spread
from planner.topology.network_routes import ClusterRoutes, first_alike
from planner.topology.node_rings import MOST_SEARCHED, chain_order, ring_orders
from simulator.collectives.parallel_rings import RING_COLLECTIVES, chain_rounds, parallel_rings
from simulator.collectives.rounds import ChunkPattern, Round, Traffic, round_of

COLLECTIVES = (*RING_COLLECTIVES, "broadcast", "all-to-all")
"""Collectives whose time in a library is modelled."""
_LEAST_IN_SWITCH = 3
"""Devices from which a switch saves bytes."""
_CHUNK_BYTES = {"ll": 2**15, "ll128": 576_000, "simple": 2**19}
"""Data of a chunk of a broadcast in one channel: an eighth of NCCL's buffers, which are 512 KiB, 4.9 MB and 4 MiB."""
_SHORT_SEND_BYTES = 2**14
"""Longest send by the first protocol, whose steps are the shortest."""
_HANDED_ON = {"ll": (2.0**16, 3.2e9, 0), "ll128": (2.0**17, 4e9, 0), "simple": (2.0**23, 3.5e11, 1)}
"""Steps of trees wait for what they hand on: bytes of the buffer from which on it is whole chunks, the rate at which a
step between nodes waits for shorter ones, and the share of that wait of a step inside a node.

Fitted to short sums on 2 to 16 machines of ABCI's V100 (ll, ll128) and on 2 and 8 of Polaris (simple, ll).
"""
_THREAD_BYTES = 512.0
"""Bytes for each rank up to which a broadcast of the first protocol has one channel of few threads."""
_THREAD_BYTES_PER_S = 0.75e9
"""Rate of that channel, fitted to broadcasts on 2 to 8 machines of ABCI's V100."""
_CHAIN_SHARE = 0.5
"""Share of the links between nodes that a broadcast over more than two reaches, whose nodes both take and give; fitted
to 8 machines of ABCI's V100."""
_CALLS_IN_A_ROW = 20
"""Calls that benchmarks make in a row, of which they print the mean: nccl-tests, option -n."""
_SLOTS = 8
"""Messages for which a rank of a ring has receives posted ahead: NCCL_STEPS (NCCL, src/include/device.h)."""
_BUSY = 0.1
"""Share of the links' time that they are busy while messages keep the channels of rings."""
_CHANNEL_BYTES_PER_S = 12.5e9
"""Share of the links' bandwidth that one channel serves: NCCL has two for each NVLink."""


def _possible(network: ClusterRoutes, scheme: str, devices: Ints) -> str:
    """Return a scheme, or the ring that stands for it among devices where it is not possible.

    Groups of one layer run by one scheme, and some may lie in a node and others not.
    """
    node = network.node[devices]
    inside = bool((node == node[0]).all())
    if scheme.endswith("-network-sums") and not inside:
        return scheme
    if inside:
        scheme = scheme.removesuffix(f"-{SHORT}").removesuffix(f"-{LONG}")
    if scheme.endswith("-sums"):
        in_switch = inside and len(devices) >= _LEAST_IN_SWITCH and library_of(network).in_switch is not None
        scheme = f"{LIBRARY}-switch-sums"
        return scheme if in_switch else f"{LIBRARY}-ring-{library_of(network).protocols[-1].name}"
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
        scheme: One of ``library_families``.
        groups: Shape (groups, p): devices.
    """
    if groups.shape[1] == 1:
        return [()] * len(groups)
    rows = _of_groups(network, scheme, "all-reduce", groups)
    if len({tuple(len(step.source) for step in row) for row in rows}) > 1:  # groups that run in step need one pattern
        one = _plain_ring("all-reduce", groups.shape[1])
        kinds = [_possible(network, scheme, group).replace("-chain-", "-ring-") for group in groups]
        rows = [(_carrying(network, kind, group, one, one.repeats),) for kind, group in zip(kinds, groups, strict=True)]
    return rows


def _of_groups(network: ClusterRoutes, scheme: str, collective: str, groups: Ints) -> list[tuple[Round, ...]]:
    """Return the rounds of a collective of every group, of like groups one object; see ``library_collective``."""
    firsts = first_alike(network, groups)
    rounds = {
        first: library_collective(network, scheme, collective, tuple(groups[first].tolist()))
        for first in dict.fromkeys(firsts)
    }
    return [rounds[first] for first in firsts]


@lru_cache(maxsize=4096)
def library_collective(
    network: ClusterRoutes, scheme: str, collective: str, devices: tuple[int, ...]
) -> tuple[Round, ...]:
    """Return the rounds between ranks that stand for a collective of a library: what links carry, and the latency.

    Args:
        network: Routes of the cluster.
        scheme: One of ``library_families``.
        collective: One of ``COLLECTIVES``.
        devices: The devices, at least two.
    """
    members, count = np.array(devices), len(devices)
    scheme = _possible(network, scheme, members)
    if collective == "all-to-all":
        return (_sends(network, scheme, members, _all_pairs(count)),)
    if "-chain-" in scheme:
        return _chain(network, scheme, members)
    if collective == "broadcast":  # chains, from rank 0 on, each with its part of the buffer in a pipeline
        return (_carrying(network, scheme, members, _rings(network.wiring, collective, devices), count - 1, own=False),)
    rings = _rings(network.wiring, collective, devices)
    return (_carrying(network, scheme, members, rings, rings.repeats),)


@lru_cache(maxsize=256)
def _all_pairs(count: int) -> Round:
    """Return an all-to-all: every rank sends each other one an equal part of its buffer."""
    source, target = np.divmod(np.arange(count * count), count)
    apart = source != target
    return round_of(source[apart], target[apart], ChunkPattern(chunks=count, low=source[apart]))


@lru_cache(maxsize=4096)
def _rings(network: ClusterRoutes, collective: str, devices: tuple[int, ...]) -> Round:
    """Return the rings of all algorithms and protocols of a library, or the chains of a broadcast."""
    orders = ring_orders(network, np.array(devices))
    if collective != "broadcast":
        return parallel_rings(orders, collective)
    part = np.repeat(np.arange(len(orders)), len(devices))
    return replace(parallel_rings(orders, "all-gather"), chunks=len(orders), low=part, span=1, repeats=1)


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
    families = library_families(network, np.array(devices), collective)
    seconds = [
        _scheme_s(network, scheme, collective, devices, size, in_a_row=in_a_row)
        for family in families
        for scheme in family
    ]
    if collective == "all-to-all":
        return np.asarray(np.choose(_sends_choice(network, families, seconds, size / len(devices)), seconds))
    return library_choice(network, families, collective, _spread(network, collective, devices), size, seconds).seconds


def _sends_choice(
    network: ClusterRoutes, families: Sequence[tuple[str, ...]], seconds: Sequence[Floats], send_bytes: Floats
) -> Ints:
    """Return the index of the scheme of an all-to-all: the first for short sends, else the last.

    Inside a node the first is taken where it is faster; networks take it however slow it is.
    """
    if families[0][0].endswith(SHORT):
        first = send_bytes <= library_of(network).inline_bytes
    else:
        first = (send_bytes <= _SHORT_SEND_BYTES) & (seconds[0] < seconds[-1])
    return np.where(first, 0, len(seconds) - 1)


@lru_cache(maxsize=4096)
def _spread(network: ClusterRoutes, collective: str, devices: tuple[int, ...]) -> Spread:
    """Return how the ranks of a collective are spread, with what links allow rings and trees of the last protocol."""
    members, last = np.array(devices), library_of(network).protocols[-1].name
    nodes = len(distinct(network.node[members]))
    rates = dict.fromkeys(("ring", "tree"), np.asarray(np.inf))
    for algorithm in ("ring", "tree") if collective == "all-reduce" and nodes > 1 else ("ring",):
        rounds = library_collective(network, f"{LIBRARY}-{algorithm}-{last}", collective, devices)
        rates[algorithm] = np.asarray(1 / sum(_busiest_s_per_byte(network, step.traffic, members) for step in rounds))
    rates["tree"] = rates["tree"] / (library_of(network).tree_share or 1.0)  # the tuner has a share of its own
    return Spread(np.asarray(float(nodes)), np.asarray(float(len(devices))), rates["ring"], rates["tree"])


def collective_rounds(
    network: ClusterRoutes, collective: str, groups: Ints, size_bytes: float
) -> list[tuple[Round, ...]]:
    """Return the rounds of a collective of every group: as the cluster's library runs it, or round a ring.

    Args:
        network: Routes of the cluster.
        collective: One of ``RING_COLLECTIVES``, or ``all-to-all``.
        groups: Shape (groups, p): devices; all groups run by what the library takes for the first.
        size_bytes: Bytes of the whole buffer of a group, or of that of each device of an all-to-all.
    """
    count = groups.shape[1]
    if network.library is None:
        return [(_all_pairs(count) if collective == "all-to-all" else _plain_ring(collective, count),)] * len(groups)
    first, size = tuple(groups[0].tolist()), np.asarray(size_bytes)
    families = library_families(network, groups[0], collective)
    schemes = [scheme for family in families for scheme in family]
    seconds = [_scheme_s(network, each, collective, first, size) for each in schemes]
    if collective == "all-to-all":
        scheme = schemes[int(_sends_choice(network, families, seconds, size / count))]
    else:
        spread = _spread(network, collective, first)
        scheme = schemes[int(library_choice(network, families, collective, spread, size, seconds).scheme)]
    _find_routes(network, groups)
    if collective == "all-reduce":
        return library_rounds(network, scheme, groups)
    return _of_groups(network, scheme, collective, groups)


def _find_routes(network: ClusterRoutes, groups: Ints) -> None:
    """Search the routes inside nodes that rings of small groups may follow: all at once takes less than in turn."""
    if groups.shape[1] <= MOST_SEARCHED:
        source, target = np.repeat(groups, groups.shape[1], axis=1).ravel(), np.tile(groups, groups.shape[1]).ravel()
        inside = (network.node[source] == network.node[target]) & (source != target)
        network.routes(source[inside], target[inside])


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
    """Return the seconds of a collective by one of ``library_families``; arguments as for ``library_collective_s``."""
    members = np.array(devices)
    rounds = library_collective(network, scheme, collective, devices)
    steps = [step.traffic for step in rounds]
    fixed_s = np.asarray(sum(step.latency_s or 0.0 for step in steps))
    if in_a_row and collective == "broadcast":
        protocol = _protocol(network, scheme)
        fixed_s = protocol.call_s + (fixed_s - protocol.call_s) / (len(devices) - 1)
    per_byte = sum(_busiest_s_per_byte(network, step, members) + step.copied_s_per_byte for step in steps)
    filling = np.asarray(0.0)
    if collective == "broadcast":
        others, between = len(devices) - 2, len(distinct(network.node[members])) > 1
        flagged = between and scheme.endswith("-ll")
        # in a row a rank waits for one chunk, and once for the chain before it, of which ranks have half in the mean
        waits = min(others, 1) + between * others / 2 / _CALLS_IN_A_ROW if in_a_row else others
        if flagged and in_a_row:  # the next call begins before this one has gone down the chain
            fixed_s = np.asarray(_protocol(network, scheme).call_s)
        if flagged:
            fixed_s = fixed_s + np.minimum(size, _THREAD_BYTES * len(devices)) / _THREAD_BYTES_PER_S
        if not (flagged and in_a_row):
            filling = waits * np.minimum(size, _chunks_bytes(network, scheme, rounds[0], members))
    return np.asarray(fixed_s + (size + filling) * per_byte)


def _sends(network: ClusterRoutes, scheme: str, devices: Ints, pairs: Round) -> Round:
    """Return the round of an all-to-all with what links carry."""
    library, protocol = library_of(network), _protocol(network, scheme)
    step = _carrying(network, scheme.removesuffix(f"-{SHORT}"), devices, pairs, 1)
    latency_s, node = step.traffic.latency_s or 0.0, network.node[devices]
    nodes = distinct(node)
    if library.send_call_s is not None and protocol == library.protocols[-1]:
        latency_s += library.send_call_s - protocol.call_s
    if len(nodes) > 1:  # one thread posts the sends of a rank to other nodes, one after another
        far = max(int((node != own).sum()) for own in nodes)
        latency_s += (far - 1) * library.post_s + far * library.inline_s * scheme.endswith(SHORT)
    is_far = node[pairs.source] != node[pairs.target]
    taken = step.traffic.taken / np.where(is_far, library.send_share, 1.0)
    return replace(step, carried=replace(step.traffic, taken=taken, latency_s=latency_s))


def _chunks_bytes(network: ClusterRoutes, scheme: str, chain: Round, devices: Ints) -> float:
    """Return the bytes of one chunk in every channel of a chain.

    Source:
        NCCL, src/include/collectives.h: BROADCAST_CHUNKSTEPS 1 of NCCL_STEPS 8; src/graph/search.cc doubles channels.
    """
    bytes_per_s = 1 / _busiest_s_per_byte(network, replace(chain, carried=None).traffic, devices)
    channels = max(2.0, np.round(bytes_per_s / _CHANNEL_BYTES_PER_S))
    return float(channels * _CHUNK_BYTES.get(_protocol(network, scheme).name, _CHUNK_BYTES["simple"]))


def _chain(network: ClusterRoutes, scheme: str, devices: Ints) -> tuple[Round, ...]:
    """Return an all-reduce along a chain of direct links, up and down, in a pipeline of chunks.

    All its links work at the same time: in each round up every link carries a share of the buffer, and so in each
    round down.  The threads of a channel serve both ways, one after the other: of a link's two directions one works at
    a time.

    Source:
        NCCL's tuner takes half of the bandwidth of the links for trees (src/graph/tuning.cc).
    """
    order = chain_order(network, devices)
    assert order is not None, "the scheme comes from library_families"
    protocol, rounds = _protocol(network, scheme), chain_rounds(order)
    links = len(order) - 1
    sent = np.full(links, protocol.wire_ratio / links)
    rows = []
    for way in (rounds[:links], rounds[links:]):
        carried = Traffic(
            source=np.concatenate([step.source for step in way]),
            target=np.concatenate([step.target for step in way]),
            sent=sent,
            taken=sent / library_of(network).near_share,
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
        scheme: One of ``library_families``.
        devices: The devices.
        rings: Messages of the round.
        steps: Steps one after another.
        own: Whether a rank has a part of the buffer to copy that it does not send.
    """
    library, count, copied_s = library_of(network), len(devices), 0.0
    is_far, nodes, share = _crossing(network, rings, devices.tobytes())
    near, far = _Link(1.0, library.near_share), _Link(1.0, 1.0)
    if scheme.endswith("-switch-sums"):
        sums = library.in_switch
        assert sums is not None, "the scheme comes from library_families"
        latency_s, near = sums.call_s, _Link((count + 1) / steps, sums.link_share * library.near_share)
    elif scheme.endswith("-network-sums"):
        assert library.in_network is not None, "the scheme comes from library_families"
        latency_s = library.in_network.call_s
        near, far = _network_sums(network, devices)
    elif "-tree-" in scheme:
        # Cards carry the buffer twice in each direction, but for one node in n; rings as well, but for one device in p.
        # Inner nodes of trees carry all of it twice; of two nodes none is one, and each card has one direction of each
        # tree.  Inside a node chains carry it as often as rings, but for no device.
        protocol, reached = _protocol(network, scheme), library.tree_share or 1.0
        whole = protocol.wire_ratio * count / (count - 1)
        latency_s, copied_s = _tree_latency(network, scheme, count, nodes)
        crossed = (nodes - 1) / nodes
        near = _Link(whole, library.near_share * reached)
        far = _Link(crossed * whole, reached if library.split_trees and nodes == 2 else reached * crossed)
    else:
        protocol = _protocol(network, scheme)
        relayed = not own and nodes > 2
        latency_s = _ring_latency(protocol, steps, share, waits=own)
        copied_s = protocol.wire_ratio / count / library.copy_bytes_per_s if own else 0.0
        near, far = (
            _Link(protocol.wire_ratio, library.near_share),
            _Link(protocol.far_wire_ratio, _CHAIN_SHARE if relayed else 1.0),
        )
    sent_near, sent_far = (rings.share * rings.repeats * link.bytes for link in (near, far))
    sent = np.where(is_far, sent_far, sent_near)
    taken = np.where(is_far, sent_far / far.reached, sent_near / near.reached)
    if library.rank_bytes_per_s is not None and is_far.any():
        thread_s = float(np.bincount(rings.source[is_far], sent[is_far]).max()) / library.rank_bytes_per_s
        links = Traffic(source=rings.source, target=rings.target, sent=sent, taken=taken)
        copied_s += max(thread_s - _busiest_s_per_byte(network, links, devices), 0.0)
    if "-ring-" in scheme and scheme.endswith((SHORT, LONG)):
        protocol, late = _protocol(network, scheme), max(steps - _SLOTS, 0)
        kept_s = (1 - _BUSY) * ((steps - late) * protocol.message_s + late * protocol.later_message_s)
        if scheme.endswith(LONG):
            latency_s += kept_s
            copied_s *= _BUSY
        else:
            channels = 2 * len(rings.source) // count  # NCCL runs two channels on each ring
            copied_s = _BUSY * copied_s + kept_s / (_protocol(network, scheme).message_bytes * count * channels)
        taken = _BUSY * taken
    carried = Traffic(
        source=rings.source,
        target=rings.target,
        sent=sent,
        taken=taken,
        latency_s=latency_s,
        copied_s_per_byte=copied_s,
    )
    return replace(rings, carried=carried)


@lru_cache(maxsize=512)
def _crossing(network: ClusterRoutes, rings: Round, devices: bytes) -> tuple[Bools, int, float]:
    """Return whether each message goes to another node, how many nodes there are, and the share of such messages.

    Args:
        network: Routes of the cluster.
        rings: The messages.
        devices: The devices, as bytes: arrays are no keys.
    """
    node = network.node[np.frombuffer(devices, dtype=np.int64)]
    is_far = node[rings.source] != node[rings.target]
    return is_far, len(distinct(node)), float(is_far.mean())


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
    library, count = library_of(network), len(devices)
    whole, local = count / (count - 1), count / len(distinct(network.node[devices]))
    assert library.in_network is not None, "the scheme comes from library_families"
    near, far = _Link(whole, library.near_share), _Link(whole / 2, library.in_network.link_share)
    if library.in_switch is not None and local >= _LEAST_IN_SWITCH:
        near = _Link(whole * (local + 1) / (local - 1) / 2, library.near_share * library.in_switch.link_share)
    return near, far


def _protocol(network: ClusterRoutes, scheme: str) -> LibraryProtocol:
    """Return the protocol of a scheme."""
    name = scheme.split("-")[2]
    return next(each for each in library_of(network).protocols if each.name == name)


def _busiest_s_per_byte(network: ClusterRoutes, traffic: Traffic, devices: Ints) -> float:
    """Return the time of the busiest link, by byte of the buffer; ``traffic`` is between ranks."""
    loads = network.link_loads(devices[traffic.source], devices[traffic.target], traffic.taken)
    return float((loads * network.seconds_per_byte).max())


def least_all_reduce_s(
    network: ClusterRoutes, ranks: Ints, fewest_nodes: Ints, size_bytes: Floats, near_s: Floats, far_s: Floats
) -> Floats:
    """Return lower bounds of the times of all-reduces of the library of a cluster, whatever it chooses.

    Args:
        network: Routes of the cluster.
        ranks: Ranks of each all-reduce, >= 2, shape (K,).
        fewest_nodes: Nodes that they are on at least, shape (K,).
        size_bytes: Bytes of each buffer, shape (K,).
        near_s: Least time of links, however messages are framed, shape (K,).
        far_s: Least time of links between nodes, likewise; 0 where all ranks may be on one.

    Returns:
        Seconds, shape (K,).
    """
    library, between, steps = library_of(network), fewest_nodes > 1, 2 * (ranks - 1)
    least_s = np.full(len(ranks), np.inf)
    for protocol in library.protocols:
        links_s = np.maximum(near_s * protocol.wire_ratio, far_s * min(protocol.far_wire_ratio, protocol.wire_ratio))
        ring_s = np.maximum(near_s * protocol.wire_ratio, far_s * protocol.far_wire_ratio)
        # rings cross as many times between nodes as there are nodes: a latency linear in these is least at one end
        for nodes in (np.where(between, fewest_nodes, 0), ranks):
            least_s = np.minimum(least_s, _ring_latency(protocol, steps, nodes / ranks, waits=False) + ring_s)
        if library.tree_share is not None:
            hops = protocol.tree_hop_s * np.log(2) / max(protocol.tree_far_hop_s, 1e-12)
            nodes = np.clip(ranks * hops, np.maximum(fewest_nodes, 2), ranks)
            tree_s = protocol.call_s + _tree_hops_s(protocol, ranks, nodes, np.log2(nodes))
            most_bytes, waited_s = _tree_waits(protocol, 0.0, 2 * np.log2(np.maximum(fewest_nodes, 2)))
            least_s = np.minimum(least_s, tree_s + waited_s * np.minimum(size_bytes, most_bytes) + links_s)
        least_s = np.where(between, least_s, np.minimum(least_s, protocol.call_s + links_s))  # chains, of one node
    if library.in_switch is not None:
        least_s = np.where(between, least_s, np.minimum(least_s, library.in_switch.call_s + near_s))
    if library.in_network is not None:
        least_s = np.minimum(least_s, library.in_network.call_s + np.maximum(near_s, far_s))
    return least_s


def _ring_latency(protocol: LibraryProtocol, steps: Any, share: Any, *, waits: bool) -> Any:
    """Return the latency of so many steps of rings, of whose messages a share goes between nodes.

    Args:
        protocol: The protocol.
        steps: Steps one after another.
        share: Share of the messages.
        waits: Whether steps inside nodes keep pace with those between them.
    """
    near_s = max(protocol.hop_s, protocol.step_s) if waits and share > 0 else protocol.hop_s
    late = max(steps - _SLOTS, 0) if waits else 0
    far_s = (steps - late) * protocol.far_hop_s + late * protocol.later_hop_s
    return protocol.call_s + steps * (1 - share) * near_s + share * far_s


def _tree_hops_s(protocol: LibraryProtocol, count: Any, nodes: Any, levels: Any) -> Any:
    """Return the latency of the hops of a tree of so many levels over nodes whose devices form chains, up and down."""
    return 2 * (count / nodes - 1) * protocol.tree_hop_s + 2 * levels * protocol.tree_far_hop_s


def _tree_latency(network: ClusterRoutes, scheme: str, count: int, nodes: int) -> tuple[float, float]:
    """Return the latency of a tree over nodes whose devices form chains, up and down, and what it adds by byte.

    A step waits for all of a short buffer, and for a chunk of a long one.
    """
    protocol, levels = _protocol(network, scheme), float(np.ceil(np.log2(nodes)))
    near, far = 2 * (count / nodes - 1), 2 * levels
    latency_s = protocol.call_s + _tree_hops_s(protocol, count, nodes, levels)
    most_bytes, waited_s = _tree_waits(protocol, near, far)
    if protocol == library_of(network).protocols[-1]:  # the chunks of the last protocol are long messages
        waited_s += far * protocol.message_s / most_bytes
    return (latency_s, waited_s) if scheme.endswith(SHORT) else (latency_s + waited_s * most_bytes, 0.0)


def _tree_waits(protocol: LibraryProtocol, near: Any, far: Any) -> tuple[float, Any]:
    """Return the bytes of a buffer of whole chunks, and what so many steps of a tree wait for each byte up to these."""
    most_bytes, bytes_per_s, near_share = _HANDED_ON.get(protocol.name, _HANDED_ON["simple"])
    return most_bytes, (far + near_share * near) / bytes_per_s
