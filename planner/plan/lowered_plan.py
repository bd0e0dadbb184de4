"""Programs of strategies and of plans: lowered, checked against memory, with their gradients in order."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import UNCOMPRESSED, CompressionSettings, compressed_of
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import Strategy
from planner.lowering.alike_replicas import lower_alike
from planner.lowering.changed_links import relinked
from planner.lowering.lower_strategy import lower
from planner.lowering.program import Program
from planner.memory.fit_advice import fitting_changes
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.plan.plan import Plan
from planner.plan.plan_request import PlanRequest
from planner.search.gradient_order import order_gradient_syncs
from planner.simulation.additive_cost import additive_s
from planner.simulation.transfer_pricing import check_messages
from planner.strategies.degrees import ordered_graph, storage_of
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute

_FEW_DEVICES = 64
"""Devices of a cluster that all have their own tasks, and rows in timelines."""


def folds(cluster: DeviceGraph) -> bool:
    """Return whether a cluster is so large that, of replicas that do the same, the first stands for all."""
    return len(cluster.devices) > _FEW_DEVICES


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStrategy:
    """A strategy with all else that its program follows from, prices apart."""

    strategy: Strategy
    micro_batching: MicroBatching = WHOLE_BATCH
    compressed: CompressionSettings = UNCOMPRESSED
    recompute: Recompute = KEEP_ACTIVATIONS
    gradient_sync_order: str = "end"
    notes: tuple[str, ...] = ()
    """What is to be said of how it was chosen."""

    @property
    def is_plain(self) -> bool:
        """True if it computes the whole batch at once, and only what the strategy says."""
        return self == PlannedStrategy(strategy=self.strategy, notes=self.notes)

    def lowered(
        self, model: CostModel, *, collectives: str = "activity", check_memory: bool = True, folded: bool = False
    ) -> Program:
        """Return the program of one iteration; arguments and errors as for ``planner.plan.lowered_plan.lowered``."""
        return lowered(
            model,
            self.strategy,
            micro_batching=self.micro_batching,
            compressed=self.compressed,
            recompute=self.recompute,
            collectives=collectives,
            gradient_sync_order=self.gradient_sync_order,
            check_memory=check_memory,
            folded=folded,
        )

    def additive_s(self, model: CostModel, program: Program | None = None) -> float:
        """Return the iteration time by Eq. 1, of the program where its messages are in no order of their own."""
        in_order = program if self.gradient_sync_order == "end" else None
        return additive_s(model, self.strategy, self.micro_batching, self.compressed, self.recompute, in_order)


def lowered(
    model: CostModel,
    strategy: Strategy,
    *,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
    collectives: str = "activity",
    gradient_sync_order: str = "end",
    check_memory: bool = True,
    folded: bool = False,
) -> Program:
    """Return the program of one iteration of a strategy that fits in memory.

    Args:
        model: Prices of a network on a cluster, and the conditions.
        strategy: Configuration of every layer.
        micro_batching: Layers that compute in micro-batches, and their schedule.
        compressed: Tensors and gradients that are compressed to be sent.
        recompute: Activations that are computed again in the backward pass.
        collectives: As for ``planner.lowering.lower_strategy.lower``.
        gradient_sync_order: One of ``planner.search.gradient_order.GRADIENT_SYNC_ORDERS``.
        check_memory: False: the program is returned whether or not it fits.
        folded: True: of replicas that do the same the first alone may be lowered, for replays and memory.

    Raises:
        ConfigError: Parts of a micro-batch would not be equal, the all-reduce would have to add compressed gradients,
            or it cannot go in that order.
        InfeasiblePlanError: The strategy does not fit, or this machine has no memory for so many tasks.
    """
    if gradient_sync_order != "end" and collectives != "activity":
        raise ConfigError(
            f"gradient_sync_order must be end where messages are tasks of their own, got {gradient_sync_order!r}"
        )
    spaces = model.spaces_of(strategy)
    options: dict[str, Any] = {"micro_batching": micro_batching, "compressed": compressed, "recompute": recompute}
    folds = folded and collectives == "activity" and gradient_sync_order == "end"
    program = lower_alike(model, spaces, **options) if folds else ""
    if isinstance(program, str):
        try:
            check_messages(model, spaces)
            program = lower(model, spaces, collectives=collectives, **options)
        except InfeasiblePlanError as error:
            why = f"; no replica stands for others: {program}" if program else ""
            raise InfeasiblePlanError(f"{error}{why}") from None
    if check_memory:
        needed = peak_memory_bytes(program)
        check_plan_memory(program, needed, fitting=lambda: fitting_changes(model, program, recompute=recompute))
    return order_gradient_syncs(program, gradient_sync_order)


class CostModels:
    """Prices of a network on a cluster under the conditions of several requests, which share what is the same.

    Args:
        graph: The network.
        cluster: Device graph.
        before: Those of the same network on a cluster that this one was made from, of which what is the same is kept.
    """

    def __init__(self, graph: ComputationGraph, cluster: DeviceGraph, before: "CostModels | None" = None) -> None:
        self._graph, self._cluster, self._before = graph, cluster, before
        self._known: dict[tuple[object, ...], CostModel] = {}

    def of(self, request: PlanRequest) -> CostModel:
        """Return the prices under the conditions of a request.

        Args:
            request: What was asked for; what it leaves out is as the cluster declares it.

        Raises:
            ConfigError: The cluster does not declare what the request takes into account.
        """
        resolved = request.resolved(self._cluster)
        conditions = Conditions.of(
            self._cluster,
            resolved.framework,
            software=resolved.software,
            interference=resolved.interference,
            spread=resolved.spread,
            types=resolved.types,
            optimizer=resolved.optimizer,
            storage=storage_of(resolved.strategy),
        )
        if resolved.input_images_per_s:
            conditions = replace(conditions, input_images_per_s=resolved.input_images_per_s)
        gradient_sync, batch_norm = resolved.gradient_sync or "", resolved.batch_norm
        graph = ordered_graph(self._graph.with_element_bytes(request.element_bytes), resolved.strategy)
        key = (gradient_sync, batch_norm, graph.element_bytes, graph.zigzag)
        if (*key, conditions) not in self._known:
            others = [self._before.of(request)] if self._before else self._known.values()
            if like := next((each for each in others if _key(each) == key), None):
                model = like.on(self._cluster, conditions)
            else:
                model = CostModel(graph, self._cluster, gradient_sync, batch_norm, conditions)
            self._known[*key, conditions] = model
        return self._known[*key, conditions]


def _key(model: CostModel) -> tuple[str, str, int, int]:
    """Return what prices under other conditions must have in common with those of a model, to share them."""
    return model.gradient_sync, model.batch_norm, model.graph.element_bytes, model.graph.zigzag


def cost_model_of(request: PlanRequest, graph: ComputationGraph, cluster: DeviceGraph) -> CostModel:
    """Return the prices of a network on a cluster under the conditions of one request; as ``CostModels`` has them."""
    return CostModels(graph, cluster).of(request)


def lower_plan(plan: Plan, graph: ComputationGraph, cluster: DeviceGraph, *, collectives: str = "activity") -> Program:
    """Return the program of one iteration of a plan; arguments and errors as for ``plan_lowering``."""
    return plan_lowering(plan, graph, cluster, collectives=collectives)(cluster)


def plan_lowering(
    plan: Plan, graph: ComputationGraph, cluster: DeviceGraph, *, collectives: str = "activity", folded: bool = False
) -> Callable[[DeviceGraph], Program]:
    """Return a function that lowers a plan on a cluster: on its own, or on that with faster or slower hardware.

    What is priced on the plan's cluster is priced once for all clusters on which it is the same.

    Args:
        plan: The plan.
        graph: The model that it was made for.
        cluster: Its cluster, whose links and devices may have changed since.
        collectives: As for ``planner.lowering.lower_strategy.lower``.
        folded: As for ``lowered``.

    Raises:
        ConfigError: The plan was made for another model, or its layers or compression are not of this one.
        InfeasiblePlanError: By the function: the plan does not fit in the memory of its cluster's devices.
    """
    if plan.model_digest != graph.digest:
        raise ConfigError(
            f"plan was made for another {plan.model} with batch {plan.batch}: "
            f"its model_digest is {plan.model_digest}, this model has {graph.digest}; make the plan again"
        )
    if unknown := [name for name in plan.configurations if name not in graph.index]:
        raise ConfigError(f"configurations must be of layers of {plan.model}, got {unknown[0]!r}")
    model = cost_model_of(plan.request, graph, cluster)

    planned = PlannedStrategy(
        strategy=plan.configurations,
        micro_batching=plan.micro_batching,
        compressed=compressed_of(graph, plan.gradient_sync, model.types, **asdict(plan.compressed)),
        recompute=plan.recompute,
        gradient_sync_order=plan.gradient_sync_order,
    )

    @cache
    def first() -> Program:
        """Lower the plan on its own cluster."""
        return planned.lowered(model, collectives=collectives, folded=folded)

    def lower_on(changed: DeviceGraph) -> Program:
        """Lower the plan on a cluster; other links may need no lowering, unless an order was found by simulation."""
        if changed is cluster:
            return first()
        now = model.on(changed, model.conditions)
        same = plan.gradient_sync_order == "end" and collectives == "activity"
        again = relinked(first(), model, now) if same else None
        return again or planned.lowered(now, collectives=collectives, check_memory=False, folded=folded)

    return lower_on
