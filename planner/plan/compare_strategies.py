"""Compare strategies for one model on one cluster: price, replay, bound, and validate the additive model."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hwprofiles import ConfigError, InfeasiblePlanError, Progress, renamed_keywords
from hwprofiles.devices import DeviceGraph
from planner.cost import CostModel, applied, layer_choice
from planner.graph import ComputationGraph
from planner.lowering import KINDS, Program, lower
from planner.memory import peak_memory_bytes
from planner.parallel import WHOLE_BATCH, ConfigSpace, Configuration, MicroBatching, Strategy
from planner.plan.comparison import Comparison, LayerResult, StrategyResult
from planner.plan.layerwise_choice import layerwise, refined
from planner.plan.lowered_plan import lowered
from planner.search import HYBRID, search_hybrids, strategy_and_micro_batching
from planner.simulation import Replay, additive_s, additive_terms, iteration_bound, replay, replay_that_fits

__all__ = ["compare", "layer_results"]

_MIXTURES = 8
_MOST_TASKS = 60_000
"""Mixtures with more tasks are left out of the validation, which is to take seconds."""


@renamed_keywords(exchange="gradient_sync")
def compare(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    strategies: Sequence[str],
    *,
    gradient_sync: str = "ring",
    refine: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare strategies by name or file.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        strategies: Names of ``planner.parallel.strategies.strategy_names``, or strategy files.
        gradient_sync: Algorithm of gradient synchronisation, one of ``planner.cost.all_reduce.GRADIENT_SYNCS``.
        refine: Plans to simulate in the refinement of ``layerwise``; 0 for none.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: An unknown name, or a strategy that this batch cannot have.
        InfeasiblePlanError: No strategy fits in memory.
    """
    model = CostModel(graph, cluster, gradient_sync)
    found, refused, notes = _strategies(model, strategies, refine, progress)
    one_device_s = _one_device_s(model)
    results: list[StrategyResult] = []
    for done, (name, (strategy, micro_batching)) in enumerate(found.items()):
        if progress:
            progress(f"simulating {name}", done, len(found) + 1)
        try:
            results.append(_result(model, name, strategy, micro_batching, one_device_s))
        except InfeasiblePlanError as error:
            refused[name] = str(error)
    if not results:
        raise InfeasiblePlanError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    if progress:
        progress("validating the additive model", len(found), len(found) + 1)
    whole = {
        name: strategy
        for name, (strategy, micro_batching) in found.items()
        if name not in refused and micro_batching.parts == 1
    }
    tried = _tried(model, results, whole)
    return Comparison(
        model=graph.name,
        cluster=cluster.name,
        batch=graph.batch,
        devices=tuple(device.name for device in cluster.devices),
        device_memory_bytes=tuple(device.memory_bytes for device in cluster.devices),
        one_device_s=one_device_s,
        strategies=tuple(results),
        refused=refused,
        winner=min(results, key=lambda result: (result.simulated_s, result.name != "layerwise")).name,
        rank_correlation=float(tried["additive_s"].rank().corr(tried["simulated_s"].rank())),
        tried=tried,
        notes=notes,
    )


def _strategies(
    model: CostModel, names: Sequence[str], refine: int, progress: Progress | None
) -> tuple[dict[str, tuple[Strategy, MicroBatching]], dict[str, str], tuple[str, ...]]:
    """What the names stand for, which cannot run and why, and notes."""
    if not names:
        raise ConfigError("strategies must name at least one, got none")
    found: dict[str, tuple[Strategy, MicroBatching]] = {}
    refused: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    for name in names:
        if name == "layerwise":
            continue
        try:
            if name == HYBRID:
                best = search_hybrids(model, progress=progress)
                found[name], notes = (best.strategy, best.micro_batching), (*notes, *best.notes)
            else:
                found[name] = strategy_and_micro_batching(model, name)
        except InfeasiblePlanError as error:
            refused[name] = str(error)
    if "layerwise" in names:
        if refine:
            _, refinement, more = refined(model, refine, progress=progress)
            found["layerwise"] = refinement.strategy, WHOLE_BATCH
        else:
            _, candidate, more = layerwise(model, progress=progress)
            found["layerwise"] = candidate.strategy, WHOLE_BATCH
        notes = (*notes, *more)
    return {name: found[name] for name in names if name in found}, refused, notes


def _one_device_s(model: CostModel) -> float:
    """The whole batch on the first device, memory aside."""
    alone = {layer.name: Configuration(dict.fromkeys(layer.parallel_dims, 1), (0,)) for layer in model.graph.layers}
    return additive_s(model, alone)


def _result(
    model: CostModel, name: str, strategy: Strategy, micro_batching: MicroBatching, one_device_s: float
) -> StrategyResult:
    program = lowered(model, strategy, micro_batching=micro_batching)
    additive = additive_s(model, strategy, micro_batching)
    full = replay_that_fits(program)
    shares, (bound_s, reason) = full.shares(), iteration_bound(program)
    return StrategyResult(
        name=name,
        ladder_s=_ladder(model, strategy, micro_batching, program, full),
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
    )


def _ladder(
    model: CostModel, strategy: Strategy, micro_batching: MicroBatching, program: Program, full: Replay
) -> dict[str, float]:
    """Iteration time under each reading; sub-batches come last, so that the step to them shows what they bring."""
    if micro_batching.parts == 1:
        return _readings(additive_s(model, strategy, micro_batching), program, full)
    prices, spaces, _ = applied(model, strategy)
    whole = lower(prices, spaces)  # the whole batch at once, whether or not it would fit
    return {**_readings(additive_s(model, strategy), whole, replay(whole)), "pipelining": full.iteration_s}


def _readings(additive: float, program: Program, full: Replay) -> dict[str, float]:
    overlapped = replay(program, contention=False)
    return {"additive": additive, "overlap": overlapped.iteration_s, "contention": full.iteration_s}


def layer_results(
    model: CostModel, strategy: Strategy, micro_batching: MicroBatching, program: Program
) -> tuple[LayerResult, ...]:
    """The terms of Eq. 1 by layer, and what each moves."""
    terms = additive_terms(model, strategy, micro_batching)
    model, spaces, _ = applied(model, strategy, micro_batching)
    owner = np.where(program.kind == KINDS.index("collective"), program.layer, program.consumer)
    moved = np.bincount(owner[~program.is_compute], program.size_bytes[~program.is_compute], minlength=len(spaces))
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
                gradient_sync=_exchange(model, i, space),
            )
        )
    return tuple(rows)


def _exchange(model: CostModel, layer: int, space: ConfigSpace) -> str:
    """How a layer exchanges its gradients, and why; nothing where it has none to exchange."""
    graph = model.graph
    choice = layer_choice(model.network, model.gradient_sync, graph.layers[layer], space, graph.element_bytes)
    if choice is None:
        return ""
    price, other = f"{1e3 * choice.price_s:.3g} ms", f"{choice.runner_up} {1e3 * choice.runner_up_s:.3g} ms"
    why = f", {price}; {other}" if choice.runner_up else ""
    return choice.scheme + why


def _tried(model: CostModel, results: Sequence[StrategyResult], strategies: dict[str, Strategy]) -> pd.DataFrame:
    """Additive and simulated cost of every strategy compared, and of random mixtures of those on the whole batch."""
    rows = [(result.name, result.additive_s, result.simulated_s) for result in results]
    names, layers = list(strategies), [layer.name for layer in model.graph.layers]
    random = np.random.default_rng(0)
    for mixture in range(_MIXTURES if len(names) > 1 else 0):
        micro_batchings = np.sort(random.integers(0, len(layers), size=2))
        picks = [names[k] for k in random.integers(0, len(names), size=3)]
        which = np.searchsorted(micro_batchings, np.arange(len(layers)), side="right")
        mixed = {layer: strategies[picks[k]][layer] for layer, k in zip(layers, which.tolist(), strict=True)}
        try:
            program = lowered(model, mixed)
        except InfeasiblePlanError:
            continue
        if program.size <= _MOST_TASKS:
            rows.append((f"mixture {mixture + 1}", additive_s(model, mixed), replay(program).iteration_s))
    return pd.DataFrame(rows, columns=["name", "additive_s", "simulated_s"])
