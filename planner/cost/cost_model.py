"""The three cost functions of Eq. 1 as tables over configurations: compute, exchange, transfer.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018,
Sec. 5.1: t_c, t_s and t_x.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Floats, Ints
from hwprofiles.compute import ComputeProfile, Kernels, MeasuredParts, load_profile
from hwprofiles.devices import DeviceGraph
from planner.compression import check_codec_times
from planner.cost.all_reduce import all_reduce_s
from planner.cost.overlaps import Overlaps, overlaps_of
from planner.cost.transfer_kernel import price_pairs
from planner.elimination import SearchProblem, TensorCost
from planner.graph import LAYER_PHASES, ComputationGraph, Edge, Layer, Need, Shape
from planner.operations import ELEMENT_BYTES, undivided
from planner.parallel import ConfigSpace, all_configurations, held_regions, layout_keys, split_input_channels
from planner.topology import ClusterRoutes, RouteLevels, routes_of_cluster

__all__ = ["BATCH_NORMS", "CostModel", "NodeCosts", "kernel_s", "part_times"]

BATCH_NORMS = ("local", "reduced")
"""Batch normalisation by the statistics of each part, or of the whole batch."""
JOBS = 8
"""Pieces of a large table, handed out to the processor's cores as they get free."""
PAIRS_PER_JOB = 500
"""Pairs of configurations that are worth a thread: about 0.5 ms of work."""
TIE = 1e-6
"""Weight of the shape's distance beside that of the amount of work, both in logarithms."""
EdgeTable = Callable[[Edge, ConfigSpace, ConfigSpace], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class NodeCosts:
    """Costs of one layer under every configuration of a space, shape (C,) each, seconds."""

    phase_s: dict[str, Floats]
    """Time of the slowest part in each of ``LAYER_PHASES``."""
    compute_s: Floats
    """t_c: forward and both gradients."""
    gradient_sync_s: Floats
    """t_s without the update's arithmetic; with reduced statistics also their two all-reduces."""
    statistics_s: Floats
    """Of ``gradient_sync_s``, what statistics of normalisations take."""
    total_s: Floats
    """t_c + t_s, the update included."""


def kernel_s(
    profile: ComputeProfile, model: str, layer: Layer, phase: str, part: dict[str, Floats], element_bytes: int = 4
) -> Floats:
    """Time of parts of a layer in one phase.

    A part that the profile holds takes its measured time.  Others of a measured layer are scaled from the measured
    part of the same phase that is nearest, by the roofline's ratio between the two: the one closest in the logarithm
    of FLOP (of bytes, for kernels without arithmetic), among equals the one of the closest shape.  What was measured
    had 4-byte elements.  Larger ones add memory traffic; profiles know no peak for them, so arithmetic takes as long
    as with 4-byte ones.  Partial sums that were not measured themselves are scaled from the layer that sums over all
    its input channels.

    Args:
        profile: The device's compute profile.
        model: Name of the model with its parameters.
        layer: The layer.
        phase: One of ``LAYER_PHASES``.
        part: Sizes of the parts by dimension, shape (C,) each.
        element_bytes: Size of a number.

    Returns:
        Seconds, shape (C,).
    """
    winograd = layer.operation.winograd
    work = layer.kernels(phase, part)
    seconds = profile.time_s(_sized(work, element_bytes), phase=phase, winograd=winograd)
    like, parts = _measured(profile, model, layer, phase)
    if parts is None:
        return seconds
    dims, sizes = like.output.dims, np.array(parts.sizes, dtype=np.float64)
    known = like.kernels(phase, dict(zip(dims, sizes.T, strict=True)))
    distance = np.abs(np.subtract.outer(_log_amount(work), _log_amount(known)))
    for dim, row in zip(dims, sizes.T, strict=True):
        distance += TIE * np.abs(np.subtract.outer(np.log(part[dim]), np.log(row)))
    nearest = distance.argmin(axis=1)
    roofline = profile.time_s(known, phase=phase, winograd=winograd)[nearest]
    ratio = np.divide(seconds, roofline, out=np.ones_like(seconds), where=roofline > 0)
    return np.asarray(np.array(parts.time_s)[nearest] * ratio)


def _measured(profile: ComputeProfile, model: str, layer: Layer, phase: str) -> tuple[Layer, MeasuredParts | None]:
    """What a profile knows of a layer or, of partial sums, else of the undivided layer, and which of them that is."""
    parts = profile.measured_parts(model, layer.measured_name, phase, layer.output.sizes)
    whole = undivided(layer)
    if parts is not None or whole is None:
        return layer, parts
    return whole, profile.measured_parts(model, whole.name, phase, whole.output.sizes)


def _log_amount(work: Kernels) -> Floats:
    """Logarithm of the FLOP of kernels, or of their bytes where they have none."""
    return np.asarray(np.log(np.maximum(np.where(work.flop > 0, work.flop, work.memory_bytes), 1.0)))


def _sized(work: Kernels, element_bytes: int) -> Kernels:
    """Kernels with the memory traffic of numbers of that size."""
    if element_bytes == ELEMENT_BYTES:
        return work
    ratio = element_bytes / ELEMENT_BYTES
    return replace(work, memory_bytes=work.memory_bytes * ratio, streamed_bytes=work.streamed_bytes * ratio)


def part_times(model: "CostModel", index: int, space: ConfigSpace) -> dict[str, Floats]:
    """Time of every part of a layer on its own device, for a space of one configuration.

    Returns:
        For each of ``LAYER_PHASES`` that the layer has, seconds, shape (parts,).
    """
    graph, boxes = model.graph, held_regions(space)
    layer = graph.layers[index]
    sizes = (boxes.high - boxes.low).astype(np.float64)
    part = {dim: sizes[:, d] for d, dim in enumerate(layer.output.dims)}
    which = model.profile_of[space.devices]
    times = {}
    for phase in LAYER_PHASES:
        if graph.has_phase(index, phase):
            rows = [kernel_s(p, graph.name, layer, phase, part, graph.element_bytes) for p in model.profiles]
            times[phase] = np.column_stack(rows)[np.arange(len(which)), which]
    return times


def _priced(
    u: Ints, v: Ints, producer: ConfigSpace, consumer: ConfigSpace, cross: Overlaps, routes: RouteLevels,
    element_bytes: float, samples: int,
) -> Floats:  # fmt: skip
    """Seconds of pairs of configurations in one direction, shape (K,)."""
    cost = np.empty(len(u))
    sent = np.bitwise_or.reduceat(routes.out_classes[producer.devices], producer.device_start[:-1])
    taken = np.bitwise_or.reduceat(routes.in_classes[consumer.devices], consumer.device_start[:-1])
    cuts = [len(u) * i // JOBS for i in range(JOBS + 1)] if len(u) > JOBS * PAIRS_PER_JOB else [0, len(u)]
    spans = [slice(*pair) for pair in pairwise(cuts)]

    def price(span: slice) -> None:
        price_pairs(u[span], v[span], cross, routes, sent, taken, element_bytes, samples, cost[span])

    if len(spans) == 1:
        price(spans[0])
    else:
        list(_pool().map(price, spans))
    return cost


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="transfers")


@dataclass
class CostModel:
    """Prices of one model on one cluster; tables are kept and shared by equal layers.

    Args:
        graph: The model with its batch.
        cluster: The device graph.
        exchange: How gradients are exchanged: one of ``planner.cost.all_reduce.EXCHANGES``.
        batch_norm: One of ``BATCH_NORMS``; ``reduced`` sums the statistics over the replicas of each channel, as
            gradients are summed, forward and backward.

    Raises:
        ConfigError: ``batch_norm`` is none of ``BATCH_NORMS``, or a profile has times of an unknown data type.
    """

    graph: ComputationGraph
    cluster: DeviceGraph
    gradient_sync: str = "ring"
    batch_norm: str = "local"
    network: ClusterRoutes = field(init=False)
    profiles: tuple[ComputeProfile, ...] = field(init=False)
    """The cluster's different profiles; of devices of another speed, ones of their own."""
    profile_of: Ints = field(init=False)
    """Shape (n,): index into ``profiles`` for every device."""
    pairs_priced: int = field(init=False, default=0)
    """Pairs of configurations whose transfer was priced so far."""
    _nodes: dict[tuple[object, ...], NodeCosts] = field(init=False, default_factory=dict)
    _tables: dict[tuple[object, ...], Floats] = field(init=False, default_factory=dict)
    _batches: dict[int, "CostModel"] = field(init=False, default_factory=dict)
    _sliced: dict[tuple[tuple[str, int], ...], "CostModel"] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.batch_norm not in BATCH_NORMS:
            raise ConfigError(f"batch_norm must be {' or '.join(BATCH_NORMS)}, got {self.batch_norm!r}")
        self.network = routes_of_cluster(self.cluster)
        kinds = [(device.profile, device.speed) for device in self.cluster.devices]
        names = {kind: k for k, kind in enumerate(dict.fromkeys(kinds))}
        self.profiles = tuple(load_profile(name).faster(speed) for name, speed in names)
        self.profile_of = np.array([names[kind] for kind in kinds])
        for profile in self.profiles:
            check_codec_times(profile)

    @cached_property
    def digest(self) -> str:
        """Hash of what prices arithmetic: the profiles with all their measured rows, not the words about them."""
        priced = [replace(profile, description="", sources=()) for profile in self.profiles]
        # A profile prints no rows.  Where no parts are measured, hashes stay those of plans made before there were any.
        text = repr([(profile, sorted(profile.rows.items())) for profile in priced])
        parts = [sorted(profile.parts.items()) for profile in priced]
        text += repr(parts) if any(parts) else ""
        coding = [sorted(profile.coding.items()) for profile in priced]
        text += repr(coding) if any(coding) else ""
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def for_batch(self, batch: int) -> "CostModel":
        """Prices of the same model with another batch."""
        if batch == self.graph.batch:
            return self
        if batch not in self._batches:
            graph = self.graph.with_batch(batch)
            self._batches[batch] = CostModel(graph, self.cluster, self.gradient_sync, self.batch_norm)
        return self._batches[batch]

    def with_slices(self, slices: Mapping[str, int]) -> "CostModel":
        """Prices of the same model with layers as partial sums over so many slices of their input channels."""
        key = tuple(slices.items())
        if key not in self._sliced:
            graph = split_input_channels(self.graph.undivided, slices)
            self._sliced[key] = CostModel(graph, self.cluster, self.gradient_sync, self.batch_norm)
        return self._sliced[key]

    def offered(self) -> list[ConfigSpace]:
        """The space of every layer: all that divides, on up to all devices."""
        count = len(self.cluster.devices)
        return [all_configurations(layer.output, layer.parallel_dims, count) for layer in self.graph.layers]

    def summed(self, index: int) -> list[tuple[float, bool, int]]:
        """What the replicas of a layer sum in one iteration: parameters' gradients, then statistics if reduced.

        Returns:
            Bytes of all shards, whether a split of the channel dimension splits them, and how often.
        """
        parameters = self.graph.layers[index].parameters
        counts = [(sum(p.elements for p in parameters if p.split is split), split) for split in (True, False)]
        rows = [(float(count * self.graph.element_bytes), split, 1) for count, split in counts]
        statistics = self.statistics_bytes(index)
        return [*rows, (statistics, True, 2)] if statistics else rows

    def statistics_bytes(self, index: int) -> float:
        """Bytes that a layer sums over the batch forward, and again backward; 0 with ``local`` statistics."""
        layer = self.graph.layers[index]
        count = layer.operation.statistics * layer.output.size("channel") if self.batch_norm == "reduced" else 0
        return float(count * self.graph.element_bytes)

    def node_costs(self, index: int, space: ConfigSpace) -> NodeCosts:
        """Compute and exchange costs of layer ``index``."""
        layer = self.graph.layers[index]
        known = (_measured(p, self.graph.name, layer, phase)[1] for p in self.profiles for phase in LAYER_PHASES)
        measured = any(parts is not None for parts in known)
        inner = self.graph.has_phase(index, "activation_gradient")
        key = (layer.operation, layer.input_shapes, inner, space, layer.name if measured else "")
        if key not in self._nodes:
            self._nodes[key] = self._price_node(index, space)
        return self._nodes[key]

    def _price_node(self, index: int, space: ConfigSpace) -> NodeCosts:
        layer, part, graph = self.graph.layers[index], space.largest_part(), self.graph
        used = self._profiles_used(space)
        phase_s = {}
        for phase in LAYER_PHASES:
            if not graph.has_phase(index, phase):
                phase_s[phase] = np.zeros(space.size)
                continue
            times = [kernel_s(p, graph.name, layer, phase, part, graph.element_bytes) for p in self.profiles]
            phase_s[phase] = np.where(used, np.column_stack(times), 0.0).max(axis=1)
        gradient_sync, statistics = np.zeros(space.size), np.zeros(space.size)
        for size, split, count in self.summed(index):
            seconds = count * all_reduce_s(self.network, self.gradient_sync, space, size, split=split)
            gradient_sync = gradient_sync + seconds
            statistics = statistics + (seconds if count > 1 else 0.0)
        compute = phase_s["forward"] + phase_s["activation_gradient"] + phase_s["weight_gradient"]
        return NodeCosts(phase_s, compute, gradient_sync, statistics, compute + gradient_sync + phase_s["update"])

    def _profiles_used(self, space: ConfigSpace) -> NDArray[np.bool_]:
        """Shape (C, profiles): whether a device of that profile holds a part."""
        used = np.zeros((space.size, len(self.profiles)), dtype=bool)
        used[space.part_owners, self.profile_of[space.devices]] = True
        return used

    def transfer_s(
        self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace, u: Ints, v: Ints, *, samples: int = 0
    ) -> Floats:
        """t_x of pairs of configurations ``u[k]``, ``v[k]``: forward and back, shape (K,).

        With ``samples`` a lower bound, from so many boxes and parts only.
        """
        network = self.network
        cross = overlaps_of(producer, consumer, self._needs(edge), self._source(edge), network.device_count)
        size = float(self.graph.element_bytes)
        self.pairs_priced += 0 if samples else len(u)
        cost = _priced(u, v, producer, consumer, cross, network.forward, size, samples)
        if not self.graph.has_gradient(edge.producer):
            return cost
        if network.backward is network.forward:
            return 2 * cost
        return cost + _priced(u, v, producer, consumer, cross, network.backward, size, samples)

    def edge_key(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace) -> tuple[object, ...]:
        """Edges with equal keys have equal tables."""
        return (producer, consumer, self._needs(edge), self._source(edge), self.graph.has_gradient(edge.producer))

    def layouts(self, edge: Edge, consumer: ConfigSpace) -> Ints:
        """Layout that each configuration of the consumer asks for, shape (C_v,)."""
        return layout_keys(consumer, self._needs(edge), self._source(edge))

    def transfer_table(self, edge: Edge, producer: ConfigSpace, consumer: ConfigSpace, *, samples: int = 0) -> Floats:
        """t_x of all pairs, or with ``samples`` lower bounds, shape (C_u, C_v); the same object for equal edges."""
        key = (samples, *self.edge_key(edge, producer, consumer))
        if key not in self._tables:
            _, first, back = np.unique(self.layouts(edge, consumer), return_index=True, return_inverse=True)
            u, v = (grid.ravel() for grid in np.meshgrid(np.arange(producer.size), first, indexing="ij"))
            cost = self.transfer_s(edge, producer, consumer, u, v, samples=samples).reshape(producer.size, -1)
            self._tables[key] = np.ascontiguousarray(cost[:, back])
        return self._tables[key]

    def _needs(self, edge: Edge) -> tuple[Need, ...]:
        layer = self.graph.layers[edge.consumer]
        return layer.operation.needs(edge.slot, layer.input_shapes)

    def _source(self, edge: Edge) -> Shape:
        return self.graph.layers[edge.producer].output

    def problem(self, spaces: Sequence[ConfigSpace], table: EdgeTable) -> SearchProblem:
        """The search problem over the given spaces, with ``table`` giving the costs of each edge."""
        tensors = [
            TensorCost(
                producer=i,
                consumers=tuple(edge.consumer for edge in edges),
                cost_s=tuple(table(edge, spaces[i], spaces[edge.consumer]) for edge in edges),
                layout=tuple(self.layouts(edge, spaces[edge.consumer]) for edge in edges),
            )
            for i, edges in enumerate(self.graph.consumers)
            if edges
        ]
        nodes = tuple(self.node_costs(i, space).total_s for i, space in enumerate(spaces))
        return SearchProblem(node_cost_s=nodes, tensors=tuple(tensors))
