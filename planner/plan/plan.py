"""A plan: one strategy for one model, batch and cluster, with what it was priced at and how it was found."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hwprofiles import ConfigError, InfeasiblePlanError, Progress
from hwprofiles.devices import DeviceGraph
from planner.compression import UNCOMPRESSED, Compressed, compressed_of
from planner.cost import Choice, CostModel, applied, gradient_sync_choices
from planner.graph import ComputationGraph
from planner.lowering import Program, lower
from planner.memory import MOMENTUM, MemoryPolicy, check_plan_memory, nearest_change, peak_memory_bytes
from planner.parallel import (
    KEEP_ACTIVATIONS,
    NAMED,
    WHOLE_BATCH,
    Configuration,
    MicroBatching,
    Recompute,
    Strategy,
    named_strategy,
    recompute_of,
)
from planner.plan.checks import PlanChecks
from planner.search import (
    HYBRID,
    LayerwiseResult,
    Pipeline,
    Refined,
    choose_compressed_layers,
    near_best,
    order_gradient_syncs,
    refine,
    search_hybrids,
    search_layerwise,
    strategy_and_micro_batching,
)
from planner.simulation import additive_s, arithmetic_s, check_messages, replay_that_fits

__all__ = [
    "Plan",
    "layerwise",
    "lower_plan",
    "lowered",
    "make_plan",
    "refined",
]

_STARTS = 8
"""Strategies of least additive cost that a refinement starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A strategy for every layer of a model, priced on a cluster."""

    model: str
    """Name and parameters of the model."""
    cluster: str
    """Catalogue entry or path, with parameters."""
    batch: int
    strategy: str
    """``data``, ``layerwise``, ... or the file it came from."""
    gradient_sync: str
    """How gradients are exchanged."""
    gradient_sync_order: str = "end"
    """In which order, and when updates follow: one of ``planner.search.gradient_order.EXCHANGE_ORDERS``."""
    batch_norm: str = "local"
    """Whose statistics normalise: one of ``planner.cost.cost_model.BATCH_NORMS``."""
    element_bytes: int = 4
    """Size of a number: 4 or 8."""
    micro_batching: MicroBatching = WHOLE_BATCH
    """Which layers take the mini-batch in sub-batches."""
    compressed: Compressed = UNCOMPRESSED
    """Which tensors and gradients travel as codes."""
    recompute: Recompute = KEEP_ACTIVATIONS
    """Which activations are computed again before their layers go back."""
    optimizer: str = MOMENTUM.optimizer
    """Whose state must fit: one of ``planner.memory.memory_policy.OPTIMIZERS``."""
    configurations: Mapping[str, Configuration]
    model_digest: str
    cluster_digest: str
    costs_digest: str
    """Of the compute profiles that priced it."""
    additive_s: float
    """Eq. 1."""
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    tables_s: float = 0.0
    """Time that the search spent on cost tables."""
    search_s: float = 0.0
    """Time that it spent on elimination."""
    width: int = 0
    """Most layers that one layer was joined with when it was eliminated; 0 where nothing was searched."""
    simulated_plans: int = 0
    """Plans simulated in the refinement; 0 without it, and then the next two say nothing."""
    lower_bound_s: float = 0.0
    """No schedule of this plan's tasks is shorter."""
    origin: str = ""
    """The strategy that the refinement reached it from, and in how many moves."""
    gradient_syncs: Mapping[str, Choice] = field(default_factory=dict)
    """For the exchange ``auto``, how each layer exchanges its dearest buffer, and the cheapest other way."""
    notes: Sequence[str] = field(default=())

    @property
    def gap(self) -> float:
        """How much longer a refined plan takes than its lower bound, as a share of the bound."""
        return self.simulated_s / self.lower_bound_s - 1


def lowered(
    model: CostModel,
    strategy: Strategy,
    *,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: Compressed = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
    memory_policy: MemoryPolicy = MOMENTUM,
    collectives: str = "activity",
    gradient_sync_order: str = "end",
) -> Program:
    """The program of one iteration of a strategy that fits in memory; arguments as for ``lower``.

    Args:
        model, strategy, cut, compressed, recompute, collectives: As for ``lower``.
        keeping: What must fit beside the tensors of the network.
        gradient_sync_order: As for ``planner.search.gradient_order.ordered``.

    Raises:
        ConfigError: Parts of a sub-batch would not be equal, the exchange would have to sum codes, or it cannot go in
            that order.
        InfeasiblePlanError: It does not fit, or this machine has no memory for so many transfers.
    """
    if gradient_sync_order != "end" and collectives != "activity":
        raise ConfigError(
            f"gradient_sync_order must be end where messages are tasks of their own, got {gradient_sync_order!r}"
        )
    model, spaces, micro_batching = applied(model, strategy, micro_batching)
    check_messages(model, spaces)
    program = lower(
        model,
        spaces,
        micro_batching=micro_batching,
        compressed=compressed,
        recompute=recompute,
        collectives=collectives,
    )
    needed = peak_memory_bytes(program, memory_policy)
    check_plan_memory(
        program, needed, nearest=lambda: nearest_change(model, program, memory_policy, recompute=recompute)
    )
    return order_gradient_syncs(program, gradient_sync_order)


def lower_plan(plan: Plan, graph: ComputationGraph, cluster: DeviceGraph, *, collectives: str = "activity") -> Program:
    """The program of a plan on its model and cluster; ``collectives`` as for ``lower``.

    Raises:
        ConfigError: The plan was made for another model, or its layers or compression are not of this one.
        InfeasiblePlanError: It does not fit in memory.
    """
    if plan.model_digest != graph.digest:
        raise ConfigError(
            f"plan was made for another {plan.model} with batch {plan.batch}: "
            f"its model_digest is {plan.model_digest}, this model has {graph.digest}; make the plan again"
        )
    if unknown := [name for name in plan.configurations if name not in graph.index]:
        raise ConfigError(f"configurations must be of layers of {plan.model}, got {unknown[0]!r}")
    model = CostModel(graph, cluster, plan.gradient_sync, plan.batch_norm)
    compressed = compressed_of(graph, plan.gradient_sync, **asdict(plan.compressed))
    return lowered(
        model,
        plan.configurations,
        micro_batching=plan.micro_batching,
        compressed=compressed,
        recompute=plan.recompute,
        memory_policy=MemoryPolicy(optimizer=plan.optimizer),
        collectives=collectives,
        gradient_sync_order=plan.gradient_sync_order,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    name: str
    strategy: Strategy
    program: Program
    simulated_s: float


def _candidates(model: CostModel, progress: Progress | None) -> tuple[LayerwiseResult, dict[str, Strategy], list[str]]:
    """What the search found, the optimum and the usual strategies, and which of these cannot be had."""
    count, notes = len(model.cluster.devices), []
    candidates: dict[str, Strategy] = {}
    for name in NAMED:
        try:
            candidates[name] = named_strategy(name, model.graph, count)
        except ConfigError as error:
            notes.append(f"{name} is no candidate: {error}")
    if progress:
        progress("searching", 0, len(candidates) + 2)
    found = search_layerwise(model, known=list(candidates.values()))
    return found, {"layerwise": found.strategy, **candidates}, notes


def refined(
    model: CostModel, plans: int, *, progress: Progress | None = None
) -> tuple[LayerwiseResult, Refined, tuple[str, ...]]:
    """Search the layer-wise optimum of Eq. 1, and refine it, its runners-up and the usual strategies by simulation.

    Args:
        model: Prices of a model on a cluster.
        plans: Plans to simulate; see ``planner.search.refinement.refine``.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        What the search found, the best plan simulated, and notes: where it came from, and which starts were refused.

    Raises:
        ConfigError: ``plans`` < 1.
        InfeasiblePlanError: No start fits in memory.
    """
    found, candidates, notes = _candidates(model, progress)
    near = near_best(model, found.cost_s, min(_STARTS, plans))
    starts = {**candidates, **{f"additive plan {k}": strategy for k, strategy in enumerate(near[1:], 2)}}
    best = refine(model, starts, plans=plans, progress=progress)
    notes += [f"{name} is no candidate: {reason}" for name, reason in best.refused.items()]
    notes.append(
        f"refined from {best.origin}: {best.simulated_s:.4g} s, best start {best.start_s:.4g} s, "
        f"lower bound {best.lower_bound_s:.4g} s ({best.bound_reason}), {best.simulated_plans} plans simulated"
    )
    return found, best, tuple(notes)


def layerwise(
    model: CostModel, *, progress: Progress | None = None
) -> tuple[LayerwiseResult, _Candidate, tuple[str, ...]]:
    """Search the layer-wise optimum of Eq. 1, and choose by simulation among it and the usual strategies.

    Returns:
        What the search found, the best candidate, and notes: which candidate it is where it is not the
        additive optimum, and which this batch cannot have.

    Raises:
        InfeasiblePlanError: No candidate fits in memory.
    """
    found, candidates, notes = _candidates(model, progress)
    best: _Candidate | None = None
    optimum, refused = "does not fit in memory", {}
    for done, (name, strategy) in enumerate(candidates.items()):
        if progress:
            progress(f"simulating {name}", done + 1, len(candidates) + 1)
        if best is not None and arithmetic_s(model, strategy) > best.simulated_s:
            continue  # cannot win whatever overlaps
        try:
            program = lowered(model, strategy)
            simulated_s = replay_that_fits(program).iteration_s
        except InfeasiblePlanError as error:
            refused[name] = error
            continue
        if name == "layerwise":
            optimum = f"takes {simulated_s:.4g} s simulated"
        if best is None or simulated_s < best.simulated_s:
            best = _Candidate(name=name, strategy=strategy, program=program, simulated_s=simulated_s)
    if best is None:
        others = ", ".join(name for name in refused if name != "layerwise")
        raise InfeasiblePlanError(f"layerwise: {refused['layerwise']}; neither do the candidates {others} fit")
    if best.name != "layerwise":
        notes.append(
            f"layerwise is {best.name}: the optimum of Eq. 1, {found.cost_s:.4g} s additive, {optimum}; "
            f"{best.name} takes {best.simulated_s:.4g} s simulated"
        )
    return found, best, tuple(notes)


def make_plan(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    *,
    strategy: str = "layerwise",
    gradient_sync: str = "ring",
    gradient_sync_order: str = "end",
    batch_norm: str = "local",
    micro_batching: MicroBatching = WHOLE_BATCH,
    pipeline: Pipeline | None = None,
    compressed: Compressed = UNCOMPRESSED,
    where_it_pays: bool = False,
    recompute: str = "none",
    optimizer: str = MOMENTUM.optimizer,
    refine: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Make a plan: search it (``layerwise``, ``hybrid``), derive it from a rule, or read it from a file.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        strategy: A name of ``planner.parallel.strategies.strategy_names`` or a strategy file.
        exchange: One of ``planner.cost.all_reduce.EXCHANGES``.
        gradient_sync_order: One of ``planner.search.gradient_order.EXCHANGE_ORDERS``; ``end`` for the searches.
        batch_norm: One of ``planner.cost.cost_model.BATCH_NORMS``.
        cut: Which layers take the mini-batch in sub-batches (``planner.parallel.micro_batches.cut_of``); none for
            ``layerwise``, and for
            ``pipeline``, which makes its own.
        pipeline: What is asked of the strategy ``pipeline``.
        compressed: What travels as codes (``planner.compression.settings.compressed_of``); nothing for ``layerwise``.
        where_it_pays: Compress only what shortens the simulated iteration (``planner.search.compression_choice.choose_compressed_layers``).
        recompute: Which activations are computed again (``planner.parallel.recomputation.recompute_of``); none for
            ``layerwise``.
        optimizer: Whose state must fit: one of ``planner.memory.memory_policy.OPTIMIZERS``.
        refine: Plans to simulate in the refinement of ``layerwise``, or of the best hybrid without stages; 0 for none.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: An unknown name, a strategy that this batch and cluster cannot have, a cut or compression for
            ``layerwise``, a cut for ``pipeline``, an exchange that would have to sum codes, ``refine`` < 0 or for
            another strategy, or ``pipeline`` for another.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    asked = PlanChecks(
        strategy=strategy,
        gradient_sync_order=gradient_sync_order,
        micro_batching=micro_batching,
        pipeline=pipeline,
        compressed=compressed,
        where_it_pays=where_it_pays,
        recompute=recompute,
        memory_policy=MemoryPolicy(optimizer=optimizer),
        refine=refine,
    )
    model = CostModel(graph, cluster, gradient_sync, batch_norm)
    return _priced(model, asked, _chosen(model, asked, progress))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    strategy: Strategy
    micro_batching: MicroBatching = WHOLE_BATCH
    compressed: Compressed = UNCOMPRESSED
    recompute: Recompute = KEEP_ACTIVATIONS
    found: Mapping[str, Any]
    """The fields of ``Plan`` that say how it was found."""


def _chosen(model: CostModel, asked: PlanChecks, progress: Progress | None) -> _Chosen:
    """What a search, a rule or a file gives."""
    if asked.strategy == "layerwise":
        return _layerwise(model, asked, progress)
    if asked.strategy == HYBRID:
        return _hybrid(model, asked.refine, progress)
    return _derived(model, asked, progress)


def _priced(model: CostModel, asked: PlanChecks, chosen: _Chosen) -> Plan:
    return Plan(
        model=model.graph.name,
        cluster=model.cluster.spec,
        batch=model.graph.batch,
        strategy=asked.strategy,
        gradient_sync=model.gradient_sync,
        gradient_sync_order=asked.gradient_sync_order,
        batch_norm=model.batch_norm,
        element_bytes=model.graph.element_bytes,
        micro_batching=chosen.micro_batching,
        compressed=chosen.compressed,
        recompute=chosen.recompute,
        optimizer=asked.memory_policy.optimizer,
        configurations=dict(chosen.strategy),
        model_digest=model.graph.digest,
        cluster_digest=model.cluster.digest,
        costs_digest=model.digest,
        additive_s=additive_s(model, chosen.strategy, chosen.micro_batching, chosen.compressed, chosen.recompute),
        gradient_syncs=gradient_sync_choices(model, chosen.strategy, chosen.compressed),
        **chosen.found,
    )


def _derived(model: CostModel, asked: PlanChecks, progress: Progress | None) -> _Chosen:
    """A strategy by a rule or from a file, with what of it is compressed."""
    strategy, micro_batching = strategy_and_micro_batching(
        model, asked.strategy, micro_batching=asked.micro_batching, pipeline=asked.pipeline
    )
    again, memory_policy = recompute_of(model.graph, asked.recompute, micro_batching), asked.memory_policy
    compressed = asked.compressed
    notes: tuple[str, ...] = ()
    if asked.where_it_pays:
        compressed, notes = choose_compressed_layers(
            model, strategy, micro_batching, compressed, recompute=again, memory_policy=memory_policy, progress=progress
        )  # fmt: skip
    program = lowered(
        model,
        strategy,
        micro_batching=micro_batching,
        compressed=compressed,
        recompute=again,
        memory_policy=memory_policy,
        gradient_sync_order=asked.gradient_sync_order,
    )
    found = {"simulated_s": replay_that_fits(program, memory_policy).iteration_s, "notes": notes}
    return _Chosen(
        strategy=strategy, micro_batching=micro_batching, compressed=compressed, recompute=again, found=found
    )


def _layerwise(model: CostModel, asked: PlanChecks, progress: Progress | None) -> _Chosen:
    if not asked.refine:
        searched, candidate, notes = layerwise(model, progress=progress)
        found = _searched(searched, candidate.simulated_s, notes)
        return _Chosen(strategy=candidate.strategy, micro_batching=asked.micro_batching, found=found)
    searched, best, notes = refined(model, asked.refine, progress=progress)
    found = {**_searched(searched, best.simulated_s, notes), **_refinement(best)}
    return _Chosen(strategy=best.strategy, micro_batching=asked.micro_batching, found=found)


def _hybrid(model: CostModel, plans: int, progress: Progress | None) -> _Chosen:
    """A hybrid and its cut; the refinement knows no stages."""
    searched = search_hybrids(model, stages=not plans, progress=progress)
    if not plans:
        found = {"simulated_s": searched.simulated_s, "notes": searched.notes}
        return _Chosen(strategy=searched.strategy, micro_batching=searched.micro_batching, found=found)
    best = refine(model, {searched.candidate.text: searched.strategy}, plans=plans, progress=progress)
    found = {"simulated_s": best.simulated_s, "notes": searched.notes, **_refinement(best)}
    return _Chosen(strategy=best.strategy, found=found)


def _refinement(best: Refined) -> dict[str, Any]:
    return {name: getattr(best, name) for name in ("simulated_plans", "lower_bound_s", "origin")}


def _searched(found: LayerwiseResult, simulated_s: float, notes: tuple[str, ...]) -> dict[str, Any]:
    fields = {name: getattr(found, name) for name in ("tables_s", "search_s", "width")}
    return {**fields, "simulated_s": simulated_s, "notes": notes}
