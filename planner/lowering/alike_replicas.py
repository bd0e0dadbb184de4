"""Lowering of one of several replicas that do the same, where nothing on their ways tells them apart.

Replicas of a network with equal devices run in step if what each sends alone takes links of its own, all as fast and as
loaded as those of the first.  The program of the first replica then has the times of all: a task stands for one of
each, and a link of the first for one of each.  Of replicas with devices of several kinds, such as one with a straggler,
the first of each kind is lowered; where links differ, those in machines unlike the others are of kinds of their own.
That is checked on what was lowered: routes, latencies and loads of all replicas are
compared, link by link.  Where any differs, all replicas are lowered.

Source:
    Devices and links that are compared so are classes of an equitable partition, which max-min fair rates respect:
    Grohe, Kersting, Mladenov and Selman, "Dimension Reduction via Colour Refinement", ESA 2014.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from groundwork.array_types import Floats, Ints
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import ConfigSpace
from planner.layouts.replicas import Replicas, like_replicas, of_lowered
from planner.layouts.shared_regions import shared_gradient_regions, shared_regions
from planner.lowering.lower_strategy import lower
from planner.lowering.message_classes import lower_by_messages
from planner.lowering.program import Program
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute
from planner.topology.network_routes import routes_of_cluster
from simulator.collectives.rounds import Round, Traffic

_TOLERANCE = 1e-12
"""Relative difference of loads that rounding explains."""


def lower_alike(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    *,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
) -> Program | str:
    """Lower the first of each kind of several replicas of a network that do the same.

    Args:
        model: As for ``planner.lowering.lower_strategy.lower``, as are all others.
        spaces: See there.
        micro_batching: See there.
        compressed: See there.
        recompute: See there.

    Returns:
        The program of these replicas; where each is of a kind of its own, or something else may tell them apart, what
        that is.

    Raises:
        ConfigError: As ``lower``.
    """
    devices, conditions = model.cluster.devices, model.conditions
    if conditions.framework.has_servers or compressed or micro_batching.update_each:
        words = {"parameter servers": conditions.framework.has_servers, "compressed messages": bool(compressed)}
        named = next((word for word, given in words.items() if given), "updates after every micro-batch")
        return f"programs with {named} have tasks for each device"
    if conditions.interference and any(device.board_speed < 1 for device in devices.kinds):
        return "boards slow down by what all of their devices do"
    why = ""
    for kinds in _kinds(model.cluster):
        program = _lowered(model, spaces, kinds, micro_batching, recompute)
        if isinstance(program, Program):
            return program
        why = why or program
    program = lower_by_messages(model, spaces, micro_batching=micro_batching, recompute=recompute)
    return program if isinstance(program, Program) else f"{why}, and {program}"


def _kinds(cluster: DeviceGraph) -> Iterator[Ints]:
    """Yield kinds of devices by their properties; then with those apart whose machines or racks have other links."""
    kinds = cluster.devices.told_apart()[1]
    yield kinds
    part, part_kind = cluster.like_parts
    if len(part_kind):
        odd = part_kind[part] != np.bincount(part_kind).argmax()
        if odd.any():
            yield np.unique(np.where(odd, kinds.max() + 1 + np.arange(len(kinds)), kinds), return_inverse=True)[1]


def _lowered(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    kinds: Ints,
    micro_batching: MicroBatching,
    recompute: Recompute,
) -> Program | str:
    """Return the program of the first of each kind of replicas, given kinds of devices; as ``lower_alike``."""
    graph, replicas = model.graph, like_replicas(model.graph, spaces, kinds)
    if isinstance(replicas, str):
        return replicas
    small = model.for_batch(graph.batch // replicas.count * len(replicas.firsts))
    if small.graph.batch % (micro_batching.parts * len(replicas.firsts)):
        return f"parts of a micro-batch of {replicas.count} replicas are not equal"  # which lowering all refuses
    first = [of_lowered(layer, space, replicas) for layer, space in zip(small.graph.layers, spaces, strict=True)]
    if not _share_alike(model, spaces, first, replicas):
        return "layers borrow parameters from devices of other replicas"
    program = lower(small, first, micro_batching=micro_batching, recompute=recompute, classes=replicas)
    return with_like_links(program, model.cluster)


def lower_folded(model: CostModel, spaces: Sequence[ConfigSpace], **options: Any) -> Program:
    """Return ``lower_alike`` where replicas do the same, else the program of all devices; arguments as there."""
    program = lower_alike(model, spaces, **options)
    return lower(model, spaces, **options) if isinstance(program, str) else program


def _share_alike(
    model: CostModel, spaces: Sequence[ConfigSpace], first: Sequence[ConfigSpace], replicas: Replicas
) -> bool:
    """Return whether each replica gets the parameters that its layers borrow from its own devices."""
    count = len(model.cluster.devices)
    for way, shared in model.graph.shared.items():
        for regions_of in (shared_regions, shared_gradient_regions):
            ends = []
            for rows in (spaces, first):
                regions = regions_of(rows[way.producer], rows[way.consumer], shared, count)
                ends.append((rows[way.producer].devices[regions.part], regions.device))
            whole, one = (np.column_stack(pair) for pair in ends)
            every, images = (np.sort(pairs[:, 0] * count + pairs[:, 1]) for pairs in (whole, replicas.images(one)[0]))
            if not np.array_equal(every, images):
                return False
    return True


def with_like_links(program: Program, cluster: DeviceGraph) -> Program | str:
    """Return a program of one replica with what stands for each link, or what tells replicas apart.

    Args:
        program: Program of the first of each kind of replicas.
        cluster: Its cluster, whose links may have changed since the program was lowered.
    """
    assert isinstance(program.classes, Replicas), "only replicas are alike"
    links = _Links(program, cluster)
    if not links.run_alike():
        return links.why
    if (like := links.like()) is None:
        return "sums of gradients load links of one replica more than those of another"
    return replace(program, cluster=cluster, classes=replace(program.classes, link_like=like))


class _Links:
    """The links that each replica uses alone, compared with those of the first of its kind.

    Args:
        program: Program of the replicas that are lowered.
        cluster: Its cluster.
    """

    def __init__(self, program: Program, cluster: DeviceGraph) -> None:
        assert isinstance(program.classes, Replicas), "only replicas are alike"
        self._program, self._replicas, self._network = program, program.classes, routes_of_cluster(cluster)
        self._kind = cluster.links.told_apart()[1]
        self._like = np.full(len(cluster.links), -1, dtype=np.int64)
        self._user = np.full(len(cluster.links), -1, dtype=np.int64)
        """Replica that uses each link alone; -1 where none does."""
        self._replica, self._names = self._replicas.of, cluster.links.names
        self.why = "messages of replicas differ, or leave them"
        """What tells replicas apart, where something does."""

    def run_alike(self) -> bool:
        """Return whether what replicas send alone goes the same ways, on links that no other replica uses alone."""
        program, like = self._program, self._replicas.device_like
        sends = np.flatnonzero(program.peer >= 0)
        pairs = np.unique(np.column_stack([program.device[sends], program.peer[sends]]), axis=0)
        if len(pairs):
            if not np.array_equal(*self._replica[pairs].T):
                return False
            images, of = self._replicas.images(pairs)
            if not self._used(pairs[of].T, images.T):
                return False
        for first, others in self._rounds():
            ends = np.array([first.traffic.source, first.traffic.target])
            for other in [first, *others]:
                there = np.array([other.traffic.source, other.traffic.target])
                same = ends.shape == there.shape and np.array_equal(like[ends], like[there])
                if not (same and _equal(first, other) and self._used(ends, there)):
                    return False
        return True

    def _rounds(self) -> list[tuple[Round, tuple[Round, ...]]]:
        """Return the different rounds that stand for others, with these."""
        rows = {each.round: each.others for each in self._program.collectives.values() if each.others}
        return list(rows.items())

    def _used(self, ends: Ints, there: Ints) -> bool:
        """Note the links of messages.

        Args:
            ends: Senders and receivers in the first replica of the kind, shape (2, K).
            there: Those in the replica itself.

        Returns:
            False if the links are of another kind, or another replica uses one.
        """
        (counts, here), (others, links) = self._network.routes(*ends), self._network.routes(*there)
        if not (np.array_equal(counts, others) and np.array_equal(self._kind[here], self._kind[links])):
            self.why = "messages of replicas take links of different kinds"
            if len(here) == len(links):
                other = int(np.flatnonzero(self._kind[here] != self._kind[links])[0])
                self.why = f"link {self._names[links[other]]} is not as {self._names[here[other]]} of another replica"
            return False
        if not np.array_equal(self._network.latency_classes(*ends), self._network.latency_classes(*there)):
            return False
        user, known, replica = self._user[links], self._like[links], np.repeat(self._replica[there[0]], counts)
        alone = ((user < 0) | (user == replica)) & ((known < 0) | (known == here))
        if not alone.all():
            self.why = f"several replicas send over link {self._names[links[np.argmin(alone)]]}"
            return False
        self._like[links], self._user[links] = here, replica
        return bool(((self._like[links] == here) & (self._user[links] == replica)).all())

    def like(self) -> Ints | None:
        """Return the link that stands for each; None where what all replicas send together loads them unequally.

        Links that all replicas use together, and none alone, fall into classes of equal links with equal loads.
        """
        links, shared, kind = np.flatnonzero(self._like >= 0), np.flatnonzero(self._like < 0), self._kind.copy()
        for loads in self._joint_loads():
            used, loaded = np.flatnonzero(loads), loads > 0
            some = links[loaded[links] | loaded[self._like[links]]]
            if not np.allclose(loads[some], loads[self._like[some]], rtol=_TOLERANCE, atol=0.0):
                return None
            mantissa, exponent = np.frexp(loads[used])
            load = _numbered(np.ldexp(np.round(mantissa / _TOLERANCE), exponent))
            kind[used] = kind.max() + 1 + _numbered(kind[used] * (load.max(initial=0) + 1) + load)
        first = np.empty(kind.max() + 1, dtype=np.int64)
        first[kind[shared[::-1]]] = shared[::-1]  # the first of a class is written last
        like = self._like.copy()
        like[shared] = first[kind[shared]]
        return like

    def _joint_loads(self) -> list[Floats]:
        """Return what the different rounds between all replicas take of each link, by byte of their buffers."""
        rounds = dict.fromkeys(each.round for each in self._program.collectives.values() if not each.others)
        traffics = [each.traffic for each in rounds]
        return [self._network.link_loads(each.source, each.target, each.taken) for each in traffics]


def _numbered(values: Floats | Ints) -> Ints:
    """Return the rank of each value among the different ones, of which there are few."""
    return np.searchsorted(np.unique(values), values)


def _equal(first: Round, other: Round) -> bool:
    """Return whether two rounds take the same of links and of time."""
    one, two = first.traffic, other.traffic
    return (
        _scalars(one) == _scalars(two) and np.array_equal(one.taken, two.taken) and np.array_equal(one.sent, two.sent)
    )


def _scalars(traffic: Traffic) -> tuple[float | None, float]:
    return traffic.latency_s, traffic.copied_s_per_byte
