"""Compare strategies for one model on one cluster: price, replay, bound, and validate the additive model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hwprofiles import ConfigError, InfeasiblePlanError, Progress, renamed_keywords
from hwprofiles.devices import DeviceGraph
from planner.cost import IDEAL_CONDITIONS, Conditions, CostModel, applied, declared_sync, layer_choice
from planner.graph import ComputationGraph
from planner.lowering import KINDS, Program, lower
from planner.memory import peak_memory_bytes
from planner.operations import ELEMENT_BYTES
from planner.parallel import WHOLE_BATCH, ConfigSpace, Configuration, MicroBatching, Strategy
from planner.plan.comparison import Comparison, LayerResult, StrategyResult
from planner.plan.data_parallel_note import data_parallel_note
from planner.plan.layerwise_choice import SimulatedStrategy, layerwise, refined
from planner.plan.lowered_plan import lowered
from planner.plan.pace import pace_of
from planner.search import HYBRID, search_hybrids, strategy_and_micro_batching
from planner.simulation import (
    Replay,
    additive_s,
    additive_terms,
    iteration_bound,
    ladder_s,
    program_sync_s,
    replay,
    replay_that_fits,
    upper_rungs_s,
)

__all__ = ["compare", "layer_results"]

_MIXTURES = 8
"""Random mixtures of the strategies that validate the additive model beside the strategies themselves."""
_MOST_TASKS = 60_000
"""Largest program of a mixture that is simulated, so that the validation takes seconds, and of which the replay of a
search is kept until the strategy is described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subjects:
    """Strategies to compare by name, with their micro-batches, those that cannot run, and notes of the searches."""

    strategies: dict[str, tuple[Strategy, MicroBatching]]
    refused: dict[str, str]
    """Reason why a strategy cannot run, by its name."""
    notes: tuple[str, ...]
    replays: dict[str, Replay]
    """Replays that the search has made already, by name of the strategy."""


@renamed_keywords(exchange="gradient_sync")
def compare(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    strategies: Sequence[str],
    *,
    gradient_sync: str | None = None,
    conditions: Conditions | None = None,
    refine: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare strategies by name or file.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        strategies: Names of ``planner.parallel.strategies.strategy_names``, or strategy files.
        gradient_sync: Algorithm of gradient synchronisation, one of ``planner.cost.all_reduce.GRADIENT_SYNCS``; None:
            ``library`` where the cluster describes one, else ``ring``.
        conditions: Rules of gradient synchronisation, and the rungs of the ladder above contention, of which the last
            is the simulated time; None: those that the cluster declares, and float16 for elements of two bytes.
        refine: Plans to simulate in the refinement of ``layerwise``; 0 for none.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        A result for every strategy that fits, with the reasons of the others.

    Raises:
        ConfigError: A name is unknown, this batch cannot have a strategy, or the cluster not what the conditions ask.
        InfeasiblePlanError: No strategy fits in memory.
    """
    arithmetic = "float16" if graph.element_bytes < ELEMENT_BYTES else ""
    conditions = conditions or Conditions.of(cluster, arithmetic=arithmetic)
    conditions.check(cluster)
    model = CostModel(graph, cluster, gradient_sync or declared_sync(cluster), conditions=conditions)
    subjects = _subjects(model, strategies, refine, progress)
    one_device_s = _one_device_s(model)
    results, refused = _results(model, subjects, one_device_s, progress)
    if progress:
        progress("validating the additive model", len(subjects.strategies), len(subjects.strategies) + 1)
    whole = {
        name: strategy
        for name, (strategy, micro_batching) in subjects.strategies.items()
        if name not in refused and micro_batching.parts == 1
    }
    tried = _tried(model, results, whole)
    return Comparison(
        model=graph.name,
        cluster=cluster.name,
        batch=graph.batch,
        devices=tuple(device.name for device in cluster.devices),
        device_memory_bytes=tuple(device.memory_bytes for device in cluster.devices),
        nodes=cluster.node_count,
        one_device_s=one_device_s,
        strategies=tuple(results),
        refused=refused,
        winner=min(results, key=lambda result: (result.simulated_s, result.name != "layerwise")).name,
        rank_correlation=float(tried["additive_s"].rank().corr(tried["simulated_s"].rank())),
        tried=tried,
        notes=(*subjects.notes, *filter(None, [data_parallel_note(model, results)])),
    )


def _results(
    model: CostModel, subjects: _Subjects, one_device_s: float, progress: Progress | None
) -> tuple[list[StrategyResult], dict[str, str]]:
    """Simulate every strategy; return those that fit, and the reasons of all others by name.

    Raises:
        InfeasiblePlanError: No strategy fits in memory.
    """
    results, refused = list[StrategyResult](), dict(subjects.refused)
    for done, (name, (strategy, micro_batching)) in enumerate(subjects.strategies.items()):
        if progress:
            progress(f"simulating {name}", done, len(subjects.strategies) + 1)
        try:
            known = subjects.replays.pop(name, None)
            results.append(_result(model, name, strategy, micro_batching, one_device_s, known))
        except InfeasiblePlanError as error:
            refused[name] = str(error)
    if not results:
        raise InfeasiblePlanError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    return results, refused


def _subjects(model: CostModel, names: Sequence[str], refine: int, progress: Progress | None) -> _Subjects:
    """Return the strategies that names stand for; ``layerwise`` is searched last and keeps its place in the order."""
    if not names:
        raise ConfigError("strategies must name at least one, got none")
    strategies: dict[str, tuple[Strategy, MicroBatching]] = {}
    refused: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    kept = list[SimulatedStrategy]()

    def keep(candidate: SimulatedStrategy) -> None:
        """Keep what a search has simulated, if it is small."""
        if candidate.program.size <= _MOST_TASKS:
            kept.append(candidate)

    for name in names:
        if name == "layerwise":
            continue
        try:
            if name == HYBRID:
                best = search_hybrids(model, progress=progress)
                strategies[name], notes = (best.strategy, best.micro_batching), (*notes, *best.notes)
            else:
                strategies[name] = strategy_and_micro_batching(model, name)
        except InfeasiblePlanError as error:
            refused[name] = str(error)
    if "layerwise" in names:
        if refine:
            _, refinement, more = refined(model, refine, progress=progress)
            strategies["layerwise"] = refinement.strategy, WHOLE_BATCH
        else:
            _, candidate, more = layerwise(model, progress=progress, simulated=keep)
            strategies["layerwise"] = candidate.strategy, WHOLE_BATCH
        notes = (*notes, *more)
    ordered = {name: strategies[name] for name in names if name in strategies}
    replays = {
        name: each.replayed
        for name, (strategy, micro_batching) in ordered.items()
        for each in kept
        if each.strategy == strategy and micro_batching.parts == 1
    }
    return _Subjects(strategies=ordered, refused=refused, notes=notes, replays=replays)


def _one_device_s(model: CostModel) -> float:
    """Return the time of the whole batch on the first device, as if its memory were unlimited."""
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in model.graph.layers}
    return additive_s(model, alone)


def _result(
    model: CostModel,
    name: str,
    strategy: Strategy,
    micro_batching: MicroBatching,
    one_device_s: float,
    known: Replay | None,
) -> StrategyResult:
    """Return a strategy priced, replayed and bounded; ``known`` is its replay, if there is one already."""
    full = known or replay_that_fits(lowered(model, strategy, micro_batching=micro_batching))
    program = full.program
    additive = additive_s(model, strategy, micro_batching, program=program)
    above = model.conditions.interference or model.conditions.spread
    plain = replay(program, interference=False, spread=False) if above else full
    shares, (bound_s, reason) = full.shares(), iteration_bound(program)
    return StrategyResult(
        name=name,
        ladder_s=_ladder(model, strategy, micro_batching, plain, additive)
        | upper_rungs_s(program, model.conditions, full),
        additive_s=additive,
        simulated_s=full.iteration_s,
        images_per_s=model.graph.batch / full.iteration_s,
        speedup=one_device_s / full.iteration_s,
        moved_bytes=program.moved_bytes,
        compute_s=shares.compute_s,
        exposed_communication_s=shares.exposed_communication_s,
        idle_s=shares.idle_s,
        peak_memory_bytes=tuple(peak_memory_bytes(program).tolist()),
        lower_bound_s=bound_s,
        bound_reason=reason,
        engine_s=full.engine_s,
        tasks=program.size,
        layers=layer_results(model, strategy, micro_batching, program),
        timeline=full.timeline(),
        link_use=full.link_use(),
        collective_devices=program.collective_devices,
        pace=pace_of(plain),
    )


def _ladder(
    model: CostModel, strategy: Strategy, micro_batching: MicroBatching, plain: Replay, price_s: float
) -> dict[str, float]:
    """Return the iteration time under each execution model; micro-batches come last, to show the gain of them alone."""
    if micro_batching.parts == 1:
        return ladder_s(plain.program, price_s, plain, IDEAL_CONDITIONS)
    prices, spaces, _ = applied(model, strategy)
    whole = lower(prices, spaces)  # the whole batch at once, whether or not it would fit
    rungs = ladder_s(whole, additive_s(model, strategy, program=whole), conditions=IDEAL_CONDITIONS)
    return {**rungs, "pipelining": plain.iteration_s}


def layer_results(
    model: CostModel, strategy: Strategy, micro_batching: MicroBatching, program: Program
) -> tuple[LayerResult, ...]:
    """Return the terms of Eq. 1 of every layer, and the bytes that it moves.

    Args:
        model: Prices of a network on a cluster.
        strategy: Configuration of every layer.
        micro_batching: Layers that compute in micro-batches.
        program: The strategy lowered, whose transfers count for the layer that receives them.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
    """
    terms, framework = additive_terms(model, strategy, micro_batching), program.framework
    if framework.is_synchronous:
        terms = terms._replace(gradient_sync_s=program_sync_s(program))
    model, spaces, _ = applied(model, strategy, micro_batching)
    owner = np.where(program.kind == KINDS.index("transfer"), program.consumer, program.layer)
    moved = program.by_layer(program.size_bytes, owner)
    rows = []
    for i, (layer, space) in enumerate(zip(model.graph.layers, spaces, strict=True)):
        configuration = strategy.get(layer.name) or space.configuration(0)
        rows.append(
            LayerResult(
                name=layer.name,
                kind=layer.operation.kind,
                output=" x ".join(str(size) for size in layer.output.sizes),
                degrees=dict(configuration.degrees),
                devices=configuration.devices,
                compute_s=float(terms.compute_s[i]),
                gradient_sync_s=float(terms.gradient_sync_s[i]),
                transfer_s=float(terms.transfer_s[i]),
                moved_bytes=float(moved[i]),
                gradient_sync=_sync_choice(model, program, i, space),
            )
        )
    return tuple(rows)


def _sync_choice(model: CostModel, program: Program, layer: int, space: ConfigSpace) -> str:
    """Return the algorithm that synchronises a layer's gradients, and why; empty where there are none."""
    graph = model.graph
    if program.framework.is_synchronous:
        choice = program.bucket_choices.get(layer)
    else:
        choice = layer_choice(model.network, model.gradient_sync, graph.layers[layer], space, graph.element_bytes)
    if choice is None:
        return ""
    price, other = f"{1e3 * choice.price_s:.3g} ms", f"{choice.runner_up} {1e3 * choice.runner_up_s:.3g} ms"
    why = f", {price}; {other}" if choice.runner_up else ""
    return choice.scheme + why


def _tried(model: CostModel, results: Sequence[StrategyResult], strategies: dict[str, Strategy]) -> pd.DataFrame:
    """Return additive and simulated times of every strategy, and of random mixtures of those on the whole batch."""
    rows = [(result.name, result.additive_s, result.simulated_s) for result in results]
    names, layers = list(strategies), [layer.name for layer in model.graph.layers]
    same = {name: next(first for first in names if strategies[first] == strategies[name]) for name in names}
    known: dict[tuple[str, ...], tuple[float, float] | None] = {
        (same[name],) * len(layers): (price_s, simulated_s) for name, price_s, simulated_s in rows if name in same
    }
    random = np.random.default_rng(0)
    for mixture in range(_MIXTURES if len(names) > 1 else 0):
        borders = np.sort(random.integers(0, len(layers), size=2))  # the first, middle and last layers of a mixture
        picks = [names[k] for k in random.integers(0, len(names), size=3)]
        pick_of = np.searchsorted(borders, np.arange(len(layers)), side="right")
        mixed = tuple(same[picks[k]] for k in pick_of.tolist())
        if mixed not in known:
            chosen = {layer: strategies[name][layer] for layer, name in zip(layers, mixed, strict=True)}
            known[mixed] = _priced_and_simulated_s(model, chosen)
        if (seconds := known[mixed]) is not None:
            rows.append((f"mixture {mixture + 1}", *seconds))
    return pd.DataFrame(rows, columns=["name", "additive_s", "simulated_s"])


def _priced_and_simulated_s(model: CostModel, strategy: Strategy) -> tuple[float, float] | None:
    """Return the additive and the simulated time of a strategy; None where it does not fit, or has very many tasks."""
    try:
        program = lowered(model, strategy)
    except InfeasiblePlanError:
        return None
    if program.size > _MOST_TASKS:
        return None
    return additive_s(model, strategy, program=program), replay(program).iteration_s
