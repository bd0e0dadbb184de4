"""Plans made from requests: searched (``layerwise``, ``hybrid``), derived from a rule, or read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from hwprofiles.compute.compute_profile import UNDER_USED
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import compressed_of
from planner.cost.all_reduce import SyncChoice
from planner.cost.compressed_sync import gradient_sync_choices
from planner.cost.cost_model import CostModel
from planner.cost.under_used import under_used_layers
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import Strategy
from planner.plan.division_notes import mesh_notes, stage_notes
from planner.plan.lowered_plan import PlannedStrategy, cost_model_of, folds
from planner.plan.plan import Plan
from planner.plan.plan_request import PlanRequest
from planner.plan.plan_text import read_plan_text
from planner.plan.training_rates import TrainingRates, above_peak, training_rates
from planner.search.compression_choice import choose_compressed_layers
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.simulation.memory_over_time import replay_that_fits
from planner.simulation.program_replay import Replay
from planner.strategies.degrees import searched_words
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching, micro_batching_of
from planner.strategies.named_strategies import is_searched
from planner.strategies.recomputation import drops_most, recompute_of
from planner.strategies.strategy_file import OWN, OwnStrategy, own_strategy

if TYPE_CHECKING:
    from planner.plan.layerwise_choice import SimulatedStrategy
    from planner.search.layerwise import LayerwiseResult
    from planner.search.refinement import Refined


_NAMED = 6
"""Layers that a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlan:
    """A plan that was just made, with the replay that its time is from."""

    plan: Plan
    replayed: Replay
    rates: TrainingRates
    """Tokens a second, utilisation and device hours, by the expected time."""


def make_plan(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    request: PlanRequest | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Plan:
    """Make a plan; arguments and errors as for ``simulated_plan``.

    Returns:
        The plan, whose ``request`` names ``graph`` and ``cluster``, and the conditions that the cluster declares where
        none were given.
    """
    return simulated_plan(graph, cluster, request, progress=progress, **options).plan


def simulated_plan(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    request: PlanRequest | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> SimulatedPlan:
    """Make a plan: search it (``layerwise``, ``hybrid``), derive it from a rule, or read it from a file; simulate it.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        request: Strategy and options; its model, cluster, batch and data type are those of ``graph`` and ``cluster``.
        progress: Called as ``progress(label, done, total)``.
        options: Fields of ``PlanRequest``, in place of a request: ``make_plan(graph, cluster, strategy="owt")``.  Here
            ``strategy`` may also be a mapping from layers to configurations, or a function of layer and cluster that
            returns one; both as of ``planner.strategies.strategy_file.own_strategy``.

    Returns:
        The plan and its replay.

    Raises:
        ConfigError: A request and options are given, the request breaks a rule of ``PlanRequest``, or this batch and
            cluster cannot have what it says.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    if request and options:
        raise ConfigError(f"options must be left out beside a request, got {', '.join(options)}")
    named = options.get("strategy")
    own: OwnStrategy | None = named if callable(named) or isinstance(named, Mapping) else None
    if own is not None:
        options = options | {"strategy": OWN}
    request = request_for(graph, cluster, request, **options)
    if request.element_bytes != graph.element_bytes:
        rule = f"dtype must be of {graph.element_bytes} bytes, as the elements of the graph"
        raise ConfigError(f"{rule}, got {request.dtype!r}")
    request = request.resolved(cluster)
    model = cost_model_of(request, graph, cluster)
    planned = None if own is None else derived(model, request, own, progress=progress)
    chosen = choose(model, request, planned=planned, progress=progress)
    model, request, replayed = chosen.model or model, chosen.request or request, chosen.replayed
    rates = training_rates(model, replayed.program, replayed.expected_s)
    return SimulatedPlan(plan=_priced(model, request, chosen, rates), replayed=replayed, rates=rates)


def request_for(
    graph: ComputationGraph, cluster: DeviceGraph, request: PlanRequest | None = None, **options: Any
) -> PlanRequest:
    """Return a request for a network on a cluster, in the data type of the network where no other one is given.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        request: Strategy and options; or
        options: Fields of ``PlanRequest``.

    Raises:
        ConfigError: The request breaks a rule of ``PlanRequest``.
    """
    subject: dict[str, Any] = {"model": graph.name, "cluster": cluster.spec, "batch": graph.batch}
    request = replace(request, **subject) if request else PlanRequest(**(subject | options))
    if request.element_bytes == graph.element_bytes or "dtype" in (options | read_plan_text(request.text)[1]):
        return request
    own_type: dict[str, Any] = {"dtype": f"float{8 * graph.element_bytes}"}
    return replace(request, **own_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenStrategy:
    """The strategy that a search, a rule or a file gives, with its replay."""

    planned: PlannedStrategy
    replayed: Replay
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``Plan`` that describe the search."""
    model: CostModel | None = None
    """Prices where the strategy puts positions into another order; None: as they were."""
    request: PlanRequest | None = None
    """Request that names this strategy, and so the order; None: as it was."""


def choose(
    model: CostModel,
    request: PlanRequest,
    *,
    planned: PlannedStrategy | None = None,
    known: Sequence["SimulatedStrategy"] = (),
    progress: Progress | None = None,
) -> ChosenStrategy:
    """Return the strategy by the search, rule or file that a request names, simulated.

    Args:
        model: Prices of a network on a cluster, under the conditions of the request.
        request: What was asked for.
        planned: What ``derived`` returns for it, if that is known.
        known: Strategies that were simulated already under the same conditions, which a search need not replay.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The network and the cluster cannot have what the request says.
        InfeasiblePlanError: Nothing that was tried fits in memory.
    """
    if request.strategy == "layerwise":
        return _layerwise(model, request, known, progress)
    if is_searched(request.strategy):
        return _hybrid(model, request, progress)
    planned = planned or derived(model, request, progress=progress)
    return ChosenStrategy(
        planned=planned, replayed=replay_that_fits(planned.lowered(model, folded=folds(model.cluster)))
    )


def _layerwise(
    model: CostModel, request: PlanRequest, known: Sequence["SimulatedStrategy"], progress: Progress | None
) -> ChosenStrategy:
    """Return the layer-wise optimum, or one of the usual strategies where that is faster."""
    # Imported here: strategies that follow a rule, such as data, need none of the search's compiled kernels.
    from planner.plan.layerwise_choice import layerwise, refined

    if not request.refine:
        searched, fastest, notes = layerwise(model, mesh=request.mesh, progress=progress, known=known)
        return ChosenStrategy(
            planned=PlannedStrategy(strategy=fastest.strategy, notes=notes),
            replayed=fastest.replayed,
            statistics=_search_statistics(searched),
        )
    searched, best, notes = refined(model, request.refine, progress=progress)
    return ChosenStrategy(
        planned=PlannedStrategy(strategy=best.strategy, notes=notes),
        replayed=replay_that_fits(best.program),
        statistics=_search_statistics(searched) | _refinement_statistics(best),
    )


def _hybrid(model: CostModel, request: PlanRequest, progress: Progress | None) -> ChosenStrategy:
    """Return the fastest hybrid; the refinement of one knows no stages."""
    # Imported here: strategies that follow a rule need neither.
    from planner.search.hybrid_search import HybridRequest, in_order_of, search_hybrids
    from planner.search.refinement import refine

    wanted = HybridRequest(
        stages=not request.refine,
        mesh=request.mesh,
        words=searched_words(request.strategy),
        micro_batches=request.micro_batches or 0,
        schedule=request.schedule or "1f1b",
        recompute=request.recompute,
    )
    searched = search_hybrids(model, wanted, progress=progress)
    if not request.refine:
        hybrid, parts = searched.candidate.hybrid, searched.micro_batching.parts
        ordered = in_order_of(model, hybrid)
        planned = PlannedStrategy(
            strategy=searched.strategy,
            micro_batching=searched.micro_batching,
            recompute=recompute_of(model.graph, request.recompute, searched.micro_batching),
            notes=(
                *searched.notes,
                *mesh_notes(ordered, searched.strategy),
                *stage_notes(ordered, searched.strategy, searched.micro_batching),
            ),
        )
        named = replace(
            request,
            strategy=hybrid.text,
            text="",
            mesh=False,
            schedule=request.schedule if hybrid.pipeline > 1 else "",
            micro_batches=parts if parts > 1 else None,
        )
        return ChosenStrategy(
            planned=planned,
            replayed=replay_that_fits(planned.lowered(ordered, folded=folds(model.cluster))),
            model=ordered,
            request=named if hybrid.zigzag else None,
        )
    best = refine(model, {searched.candidate.text: searched.strategy}, plans=request.refine, progress=progress)
    return ChosenStrategy(
        planned=PlannedStrategy(strategy=best.strategy, notes=searched.notes),
        replayed=replay_that_fits(best.program),
        statistics=_refinement_statistics(best),
    )


def derived(
    model: CostModel, request: PlanRequest, own: OwnStrategy | None = None, *, progress: Progress | None = None
) -> PlannedStrategy:
    """Return a strategy that is not searched: by a rule, from a file or of a program.

    Args:
        model: Prices of a network on a cluster, under the conditions of the request.
        request: What was asked for.
        own: Strategy of a program, in place of the one that the request names.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The network and the cluster cannot have what the request says.
        InfeasiblePlanError: A stage of a pipeline does not fit in memory, wherever it begins.
    """
    graph = model.graph
    micro_batching = _micro_batching(graph, request)
    if own is not None:
        strategy = own_strategy(own, graph, model.cluster)
    else:
        strategy, micro_batching = strategy_and_micro_batching(
            model, request.strategy, micro_batching=micro_batching, pipeline=_pipeline(request)
        )
    compressed = compressed_of(
        graph,
        model.gradient_sync,
        model.types,
        gradients=request.compress_gradients,
        activations=request.compress_activations,
        gradient_layers=request.gradient_layers,
        activation_layers=request.activation_layers,
    )
    recompute, notes = recompute_of(graph, request.recompute, micro_batching), tuple[str, ...]()
    if request.compress_where == "pays":
        compressed, notes = choose_compressed_layers(
            model, strategy, micro_batching, compressed, recompute=recompute, progress=progress
        )
    divided = () if request.stage_at else stage_notes(model, strategy, micro_batching)
    return PlannedStrategy(
        strategy=strategy,
        micro_batching=micro_batching,
        compressed=compressed,
        recompute=recompute,
        gradient_sync_order=request.gradient_sync_order,
        notes=(*notes, *mesh_notes(model, strategy), *divided),
    )


def _micro_batching(graph: ComputationGraph, request: PlanRequest) -> MicroBatching:
    """Return the micro-batches of all layers, or of the last ones; those of a pipeline follow from its stages."""
    if request.micro_batches:
        if graph.batch % request.micro_batches:
            rule = f"micro_batches must be >= 1 and divide the batch of {graph.batch}"
            raise ConfigError(f"{rule}, got {request.micro_batches}")
        return MicroBatching(parts=request.micro_batches)
    if request.sub_batches == 1:
        return WHOLE_BATCH
    return micro_batching_of(
        graph,
        request.sub_batches,
        first=request.sub_batch_from,
        order=request.sub_batch_order,
        update_each=request.update_each,
    )


def _pipeline(request: PlanRequest) -> Pipeline | None:
    """Return the options of a pipeline, or None where all are left to the planner."""
    names = ("stages", "micro_batches", "schedule", "stage_at")
    given = {name: value for name in names if (value := getattr(request, name))}
    if drops_most(request.recompute):
        given["recomputes"] = True
    return Pipeline(**given) if given else None


def _search_statistics(searched: "LayerwiseResult") -> dict[str, Any]:
    """Return the fields of ``Plan`` that describe a layer-wise search."""
    return {name: getattr(searched, name) for name in ("tables_s", "search_s", "width")}


def _refinement_statistics(best: "Refined") -> dict[str, Any]:
    """Return the fields of ``Plan`` that describe a refinement."""
    return {name: getattr(best, name) for name in ("simulated_plans", "lower_bound_s", "origin")}


def _priced(model: CostModel, request: PlanRequest, chosen: ChosenStrategy, rates: TrainingRates) -> Plan:
    """Return the plan of a strategy, with its price by Eq. 1 and the hashes of its inputs."""
    planned = chosen.planned
    return Plan(
        request=request,
        configurations=dict(planned.strategy),
        micro_batching=planned.micro_batching,
        compressed=planned.compressed,
        recompute=planned.recompute,
        model_digest=model.graph.digest,
        cluster_digest=model.cluster.digest,
        costs_digest=model.compute_times.digest,
        additive_s=planned.additive_s(model, chosen.replayed.program),
        simulated_s=chosen.replayed.iteration_s,
        gradient_syncs=_sync_choices(model, chosen),
        notes=(*planned.notes, *_doubtful(model, planned.strategy), *model.compute_times.notes, *above_peak([rates])),
        **chosen.statistics,
    )


def _sync_choices(model: CostModel, chosen: ChosenStrategy) -> dict[str, SyncChoice]:
    """Return the algorithms that were chosen, by layer: for its own buffers, or for the bucket that it is in."""
    program = chosen.replayed.program
    if program.framework.is_synchronous:
        return {program.graph.layers[i].name: choice for i, choice in program.bucket_choices.items()}
    return gradient_sync_choices(model, chosen.planned.strategy, chosen.planned.compressed)


def _doubtful(model: CostModel, strategy: Strategy) -> tuple[str, ...]:
    """Return a note on layers whose price uses little of their devices, if there are any."""
    layers = under_used_layers(model, strategy)
    if not layers:
        return ()
    more = f" and {len(layers) - _NAMED} more" if len(layers) > _NAMED else ""
    return (
        f"priced under {UNDER_USED:.0%} of the peak and of the memory bandwidth: {', '.join(layers[:_NAMED])}{more};"
        " measure them (orrery probe)",
    )
