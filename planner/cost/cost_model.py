"""The cost functions of Eq. 1 over configurations: compute, gradient synchronisation and transfers together.

Eq. 1 of a strategy is the sum over layers of t_c and t_s, compute and synchronisation of parameters, and over edges of
t_x, the transfer of the tensor: the time of an iteration in which nothing overlaps.

Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018,
Sec. 5.1: t_c, t_s and t_x.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from hwprofiles.compute.compute_profile import ComputeProfile
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.compute_time import ComputeTimes
from planner.cost.conditions import IDEAL_CONDITIONS, Conditions
from planner.cost.layout_time import completions_s, row_gathers_s
from planner.cost.sync_time import SyncTimes
from planner.cost.transfer_time import TransferTimes
from planner.graph.computation_graph import ComputationGraph
from planner.graph.type_roles import TYPE_BYTES, DataTypes, types_of
from planner.layouts.configurations import ConfigSpace, Strategy, all_configurations
from planner.operations.base import ELEMENT_BYTES
from planner.strategies.named_strategies import spaces_of
from planner.strategies.zigzag import in_zigzag
from planner.topology.network_routes import ClusterRoutes, routes_of_cluster


@dataclass(frozen=True, slots=True, eq=False)
class NodeCosts:
    """Costs of one layer under every configuration of a space, shape (C,) each, seconds."""

    phase_s: dict[str, Floats]
    """Time of the slowest part in each of ``LAYER_PHASES``."""
    compute_s: Floats
    """Forward pass and both gradients: t_c."""
    gradient_sync_s: Floats
    """All-reduces of gradients, and collectives of statistics of channels and rows: t_s without the update's
    arithmetic."""
    statistics_s: Floats
    """Collectives of statistics, a share of ``gradient_sync_s``."""
    completion_s: Floats
    """Collectives that complete the layer's partial sums, and gather their gradient: a share of t_x."""
    total_s: Floats
    """Sum of all these, and of the update."""

    def only(self, keep: Ints) -> "NodeCosts":
        """Return the costs under some of the configurations, given by their indices."""
        rest = (self.compute_s, self.gradient_sync_s, self.statistics_s, self.completion_s, self.total_s)
        return NodeCosts({phase: cost[keep] for phase, cost in self.phase_s.items()}, *(cost[keep] for cost in rest))


@dataclass
class CostModel:
    """Costs of one network on one cluster; what was priced once is kept, and shared by equal layers.

    Args:
        graph: The network with its batch; kept as the software of the conditions computes it.
        cluster: The device graph.
        gradient_sync: All-reduce algorithm, one of ``planner.cost.all_reduce.GRADIENT_SYNCS``.
        batch_norm: One of ``planner.cost.sync_time.BATCH_NORMS``.
        conditions: How programs are lowered and replayed; of these Eq. 1 knows the data types.

    Raises:
        ConfigError: ``batch_norm`` is none of ``BATCH_NORMS``, or a profile has times of an unknown data type.
    """

    graph: ComputationGraph
    cluster: DeviceGraph
    gradient_sync: str = "ring"
    batch_norm: str = "local"
    conditions: Conditions = IDEAL_CONDITIONS
    network: ClusterRoutes = field(init=False)
    compute_times: ComputeTimes = field(init=False)
    sync_times: SyncTimes = field(init=False)
    transfer_times: TransferTimes = field(init=False)
    _nodes: dict[tuple[object, ...], NodeCosts] = field(init=False, default_factory=dict)
    _by_batch: dict[int, "CostModel"] = field(init=False, default_factory=dict)
    _by_order: dict[int, "CostModel"] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = self.conditions.software.graph_of(self.graph)
        self.network = routes_of_cluster(self.cluster)
        self.sync_times = SyncTimes(
            self.graph, self.network, self.gradient_sync, self.batch_norm, gradient_bytes=self.message_bytes
        )
        self.compute_times = ComputeTimes(
            self.graph,
            self.cluster,
            self.types,
            software=self.conditions.software,
            optimizer=self.conditions.optimizer,
            casts=self.conditions.casts,
        )
        self.transfer_times = TransferTimes(self.graph, self.network)

    @property
    def types(self) -> DataTypes:
        """Data types by role."""
        return self.conditions.types or types_of(self.graph.element_bytes)

    @property
    def message_bytes(self) -> int:
        """Bytes of an element of gradients as they are summed over replicas."""
        return TYPE_BYTES[self.types.message]

    @property
    def profiles(self) -> tuple[ComputeProfile, ...]:
        """Different compute profiles of the cluster's devices."""
        return self.compute_times.profiles

    @property
    def profile_of(self) -> Ints:
        """Index into ``profiles`` for every device, shape (devices,)."""
        return self.compute_times.profile_of

    def for_batch(self, batch: int) -> "CostModel":
        """Return the costs of the same network with another batch."""
        if batch == self.graph.batch:
            return self
        if batch not in self._by_batch:
            graph = self.graph.with_batch(batch)
            self._by_batch[batch] = CostModel(graph, self.cluster, self.gradient_sync, self.batch_norm, self.conditions)
        return self._by_batch[batch]

    def in_zigzag(self, parts: int) -> "CostModel":
        """Return the costs of the same network with its positions in the zigzag order of so many parts."""
        if parts not in self._by_order:
            graph = in_zigzag(self.graph, parts)
            self._by_order[parts] = CostModel(graph, self.cluster, self.gradient_sync, self.batch_norm, self.conditions)
        return self._by_order[parts]

    def on(self, cluster: DeviceGraph, conditions: Conditions) -> "CostModel":
        """Return the costs of the same network on another cluster.

        Where its devices compute as those of this cluster do, as after a change of links, what was priced of their
        arithmetic is kept.

        Args:
            cluster: Device graph.
            conditions: As of the class.

        Raises:
            ConfigError: As of the class.
        """
        model = CostModel(self.graph, cluster, self.gradient_sync, self.batch_norm, conditions)
        kinds = [
            each.devices.of_each(lambda device: f"{device.profile} {device.speed!r}").tolist()
            for each in (self.cluster, cluster)
        ]
        priced = [(each.types, each.software, each.optimizer, each.casts) for each in (self.conditions, conditions)]
        if kinds[0] == kinds[1] and priced[0] == priced[1]:
            model.compute_times = self.compute_times
            model._by_batch = {batch: each.on(cluster, conditions) for batch, each in self._by_batch.items()}
        return model

    def all_configurations(self) -> list[ConfigSpace]:
        """Return the space of every layer: all configurations with equal parts, on up to all devices."""
        sizes = self.network.device_count, self.network.node_size
        return [all_configurations(layer.output, layer.parallel_dims, *sizes) for layer in self.graph.layers]

    def spaces_of(self, strategy: Strategy) -> list[ConfigSpace]:
        """Return, for every layer, the space that holds its one configuration.

        Raises:
            ConfigError: A layer has no configuration, or one that does not fit it.
        """
        return spaces_of(self.graph, strategy, len(self.cluster.devices))

    def node_costs(self, index: int, space: ConfigSpace) -> NodeCosts:
        """Return the costs of compute and gradient synchronisation of layer ``index``."""
        key = (self.compute_times.layer_key(index), space)
        if key not in self._nodes:
            phase_s = self.compute_times.slowest_part_s(index, space)
            sync_s, statistics_s = self.sync_times.seconds(index, space)
            rows_s = row_gathers_s(self.network, space, self.row_bytes(index))
            backward = self.graph.has_gradient(index)
            completion_s = completions_s(self.network, space, self.graph.element_bytes, backward=backward)
            compute_s = phase_s["forward"] + phase_s["activation_gradient"] + phase_s["weight_gradient"]
            total_s = compute_s + sync_s + phase_s["update"] + rows_s + completion_s
            self._nodes[key] = NodeCosts(
                phase_s, compute_s, sync_s + rows_s, statistics_s + rows_s, completion_s, total_s
            )
        return self._nodes[key]

    def restrict(self, spaces: Sequence[ConfigSpace], masks: Sequence[Bools]) -> list[ConfigSpace]:
        """Return the masked configurations of every layer's space; what is known of the costs of layers stays known.

        Those of one space are what any of its layers keeps: equal layers still share one.
        """
        joined: dict[ConfigSpace, Bools] = {}
        for space, mask in zip(spaces, masks, strict=True):
            joined[space] = joined.get(space, False) | mask
        keep = {space: np.flatnonzero(mask) for space, mask in joined.items()}
        only = {space: space if len(kept) == space.size else space.only(kept) for space, kept in keep.items()}
        for i, space in enumerate(spaces):
            if self.has_node_costs(i, space) and not self.has_node_costs(i, only[space]):
                layer = self.compute_times.layer_key(i)
                self._nodes[layer, only[space]] = self._nodes[layer, space].only(keep[space])
        return [only[space] for space in spaces]

    def has_node_costs(self, index: int, space: ConfigSpace) -> bool:
        """Return whether the costs of a layer over a space are known already."""
        return (self.compute_times.layer_key(index), space) in self._nodes

    def least_node_s(self, index: int, space: ConfigSpace) -> Floats:
        """Return lower bounds of ``node_costs(...).total_s`` that take no rounds of collectives, shape (C,).

        Where these are known already, they are returned.
        """
        if self.has_node_costs(index, space):
            return self.node_costs(index, space).total_s
        arithmetic_s = sum(self.compute_times.slowest_part_s(index, space).values())
        return np.asarray(arithmetic_s + self.sync_times.least_s(index, space))

    def row_bytes(self, index: int) -> float:
        """Return the bytes that parts of the channels of a layer gather of each row; 0 where they gather nothing."""
        count = self.graph.layers[index].operation.row_statistics
        return count * float(max(self.graph.element_bytes, ELEMENT_BYTES))
