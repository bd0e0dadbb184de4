"""Plans made from requests: searched (``layerwise``, ``hybrid``), derived from a rule, or read from a file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from hwprofiles.compute.compute_profile import UNDER_USED
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import UNCOMPRESSED, CompressionSettings, compressed_of
from planner.cost.all_reduce import SyncChoice
from planner.cost.compressed_sync import gradient_sync_choices
from planner.cost.cost_model import CostModel
from planner.cost.under_used import under_used_layers
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import Strategy
from planner.memory.memory_policy import MemoryPolicy
from planner.parallel.micro_batches import WHOLE_BATCH, MicroBatching, micro_batching_of
from planner.parallel.recomputation import KEEP_ACTIVATIONS, Recompute, recompute_of
from planner.parallel.strategy_file import OWN, OwnStrategy, own_strategy
from planner.plan.lowered_plan import cost_model_of, lowered
from planner.plan.plan import Plan
from planner.plan.plan_request import PlanRequest
from planner.plan.plan_text import read_plan_text
from planner.plan.training_rates import TrainingRates, above_peak, training_rates
from planner.search.compression_choice import choose_compressed_layers
from planner.search.hybrid_search import HYBRID
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.simulation.additive_cost import additive_s
from planner.simulation.memory_over_time import replay_that_fits
from planner.simulation.program_replay import Replay

if TYPE_CHECKING:
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
            returns one; both as of ``planner.parallel.strategy_file.own_strategy``.

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
    chosen = _derived(model, request, progress, own) if own is not None else _chosen(model, request, progress)
    replayed = chosen.replayed
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
    return replace(request, dtype=f"float{8 * graph.element_bytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """The strategy that a search, a rule or a file gives."""

    strategy: Strategy
    micro_batching: MicroBatching = WHOLE_BATCH
    compressed: CompressionSettings = UNCOMPRESSED
    recompute: Recompute = KEEP_ACTIVATIONS
    replayed: Replay
    notes: tuple[str, ...] = ()
    statistics: Mapping[str, Any]
    """Fields of ``Plan`` that describe the search."""


def _chosen(model: CostModel, request: PlanRequest, progress: Progress | None) -> _Chosen:
    """Return the strategy by the search, rule or file that the request names."""
    if request.strategy == "layerwise":
        return _layerwise(model, request.refine, progress)
    if request.strategy == HYBRID:
        return _hybrid(model, request.refine, progress)
    return _derived(model, request, progress)


def _layerwise(model: CostModel, plans: int, progress: Progress | None) -> _Chosen:
    """Return the layer-wise optimum, or one of the usual strategies where that is faster."""
    from planner.plan.layerwise_choice import layerwise, refined  # here: rules do without the kernels of the search

    if not plans:
        searched, fastest, notes = layerwise(model, progress=progress)
        return _Chosen(
            strategy=fastest.strategy,
            replayed=fastest.replayed,
            notes=notes,
            statistics=_search_statistics(searched),
        )
    searched, best, notes = refined(model, plans, progress=progress)
    return _Chosen(
        strategy=best.strategy,
        replayed=replay_that_fits(best.program),
        notes=notes,
        statistics=_search_statistics(searched) | _refinement_statistics(best),
    )


def _hybrid(model: CostModel, plans: int, progress: Progress | None) -> _Chosen:
    """Return the fastest hybrid; the refinement of one knows no stages."""
    from planner.search.hybrid_search import search_hybrids  # here: rules do without them
    from planner.search.refinement import refine  # here: rules do without them

    searched = search_hybrids(model, stages=not plans, progress=progress)
    if not plans:
        return _Chosen(
            strategy=searched.strategy,
            micro_batching=searched.micro_batching,
            replayed=replay_that_fits(lowered(model, searched.strategy, micro_batching=searched.micro_batching)),
            notes=searched.notes,
            statistics={},
        )
    best = refine(model, {searched.candidate.text: searched.strategy}, plans=plans, progress=progress)
    return _Chosen(
        strategy=best.strategy,
        replayed=replay_that_fits(best.program),
        notes=searched.notes,
        statistics=_refinement_statistics(best),
    )


def _derived(
    model: CostModel, request: PlanRequest, progress: Progress | None, own: OwnStrategy | None = None
) -> _Chosen:
    """Return a strategy by a rule, from a file or of a program, with the parts of it that are compressed."""
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
        gradients=request.compress_gradients,
        activations=request.compress_activations,
        gradient_layers=request.gradient_layers,
        activation_layers=request.activation_layers,
    )
    recompute = recompute_of(graph, request.recompute, micro_batching)
    memory_policy, notes = MemoryPolicy(optimizer=request.optimizer), tuple[str, ...]()
    if request.compress_where == "pays":
        compressed, notes = choose_compressed_layers(
            model,
            strategy,
            micro_batching,
            compressed,
            recompute=recompute,
            memory_policy=memory_policy,
            progress=progress,
        )
    program = lowered(
        model,
        strategy,
        micro_batching=micro_batching,
        compressed=compressed,
        recompute=recompute,
        memory_policy=memory_policy,
        gradient_sync_order=request.gradient_sync_order,
    )
    return _Chosen(
        strategy=strategy,
        micro_batching=micro_batching,
        compressed=compressed,
        recompute=recompute,
        replayed=replay_that_fits(program, memory_policy),
        notes=notes,
        statistics={},
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
    return Pipeline(**given) if given else None


def _search_statistics(searched: "LayerwiseResult") -> dict[str, Any]:
    """Return the fields of ``Plan`` that describe a layer-wise search."""
    return {name: getattr(searched, name) for name in ("tables_s", "search_s", "width")}


def _refinement_statistics(best: "Refined") -> dict[str, Any]:
    """Return the fields of ``Plan`` that describe a refinement."""
    return {name: getattr(best, name) for name in ("simulated_plans", "lower_bound_s", "origin")}


def _priced(model: CostModel, request: PlanRequest, chosen: _Chosen, rates: TrainingRates) -> Plan:
    """Return the plan of a strategy, with its price by Eq. 1 and the hashes of its inputs."""
    return Plan(
        request=request,
        configurations=dict(chosen.strategy),
        micro_batching=chosen.micro_batching,
        compressed=chosen.compressed,
        recompute=chosen.recompute,
        model_digest=model.graph.digest,
        cluster_digest=model.cluster.digest,
        costs_digest=model.compute_times.digest,
        additive_s=additive_s(
            model,
            chosen.strategy,
            chosen.micro_batching,
            chosen.compressed,
            chosen.recompute,
            chosen.replayed.program if request.gradient_sync_order == "end" else None,
        ),
        simulated_s=chosen.replayed.iteration_s,
        gradient_syncs=_sync_choices(model, chosen),
        notes=(*chosen.notes, *_doubtful(model, chosen.strategy), *model.compute_times.notes, *above_peak([rates])),
        **chosen.statistics,
    )


def _sync_choices(model: CostModel, chosen: _Chosen) -> dict[str, SyncChoice]:
    """Return the algorithms that were chosen, by layer: for its own buffers, or for the bucket that it is in."""
    program = chosen.replayed.program
    if program.framework.is_synchronous:
        return {program.graph.layers[i].name: choice for i, choice in program.bucket_choices.items()}
    return gradient_sync_choices(model, chosen.strategy, chosen.compressed)


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
