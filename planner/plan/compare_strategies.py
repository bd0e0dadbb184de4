"""Compare strategies for one model on one cluster: price, replay, bound, and validate the additive model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.input_files import AnyPath, text_of
from groundwork.progress import Progress, keeping
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.conditions import Conditions
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import Strategy
from planner.parallel.degrees import storage_of
from planner.parallel.micro_batches import WHOLE_BATCH, MicroBatching
from planner.plan.comparison import Comparison, StrategyResult
from planner.plan.data_parallel_note import data_parallel_note
from planner.plan.layerwise_choice import SimulatedStrategy, layerwise, refined
from planner.plan.lowered_plan import lowered
from planner.plan.no_strategy_fits import NoStrategyFitsError, fitting_batch
from planner.plan.priced_strategy import compared_model, one_device_s, price_strategy, strategy_result
from planner.plan.training_rates import above_peak
from planner.search.hybrid_search import HYBRID, search_hybrids
from planner.search.pipeline_strategy import strategy_and_micro_batching
from planner.simulation.additive_cost import additive_s
from planner.simulation.ladder import steady_s
from planner.simulation.program_replay import Replay

_MIXTURES = 8
"""Random mixtures of the strategies that validate the additive model beside the strategies themselves."""
_MOST_TASKS = 60_000
"""Largest program of a mixture that is simulated, so that the validation takes seconds, and of which
the replay is kept for the layer-wise search."""


_Subject = tuple[Strategy, MicroBatching]
"""Strategy to compare, with its micro-batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """How strategies are searched."""

    refine: int
    """Plans to simulate in the refinement of ``layerwise``; 0 for none."""
    progress: Progress | None


@dataclass(slots=True, kw_only=True)
class _Found:
    """Results and reasons by the names of strategies, and notes of the searches."""

    results: dict[str, StrategyResult] = field(default_factory=dict)
    refused: dict[str, InfeasiblePlanError]
    notes: tuple[str, ...] = ()
    simulated: list[SimulatedStrategy] = field(default_factory=list)
    """Strategies without micro-batches, of not too many tasks, with their replays."""

    def in_order(self, names: Iterable[str]) -> list[StrategyResult]:
        """Return the results in the order in which the strategies were named."""
        return [self.results[name] for name in names if name in self.results]


def compare(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    strategies: Sequence[AnyPath],
    *,
    gradient_sync: str | None = None,
    conditions: Conditions | None = None,
    refine: int = 0,
    progress: Progress | None = None,
    arrived: Callable[[StrategyResult], None] | None = None,
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
        arrived: Called with every result as soon as there is one; ``layerwise`` comes last.

    Returns:
        A result for every strategy that fits, with the reasons of the others.

    Raises:
        ConfigError: A name is unknown, this batch cannot have a strategy, or the cluster not what the conditions ask.
        NoStrategyFitsError: No strategy fits in memory.
        Interrupted: After Ctrl-C, with the strategies that had been compared; without any, KeyboardInterrupt.
    """
    model = compared_model(graph, cluster, gradient_sync=gradient_sync, conditions=conditions)
    named = _named(model, [text_of(each, "strategies") for each in strategies])
    alone_s = one_device_s(model)
    found = _Found(refused={name: error for name, error in named.items() if isinstance(error, InfeasiblePlanError)})

    def finished() -> Comparison | None:
        """Return what is finished after an interrupt."""
        if not found.results:
            return None
        left = [name for name in named if name not in found.results and name not in found.refused]
        missing = f"{', '.join(left)} {'was' if len(left) == 1 else 'were'} compared" if left else "mixtures were tried"
        briefly = {name: each.brief for name, each in found.refused.items()}
        rows = _rows(found.in_order(named))
        return _comparison(model, found, briefly, alone_s, rows, f"Interrupted before {missing}.")

    with keeping(finished):
        _add_results(model, named, _Search(refine=refine, progress=progress), alone_s, arrived, found)
        if progress:
            progress("validating the additive model", len(named), len(named) + 1)
        results = found.in_order(named)
        tried, note = _tried(model, results), data_parallel_note(model, results)
    refused = {name: str(each) for name, each in found.refused.items()}
    return _comparison(model, found, refused, alone_s, tried, note)


def _comparison(
    model: CostModel, found: _Found, refused: dict[str, str], alone_s: float, tried: pd.DataFrame, note: str
) -> Comparison:
    """Return the comparison of the strategies that have results."""
    graph, cluster = model.graph, model.cluster
    results = found.in_order(tried["name"])
    return Comparison(
        model=graph.name,
        cluster=cluster.name,
        batch=graph.batch,
        devices=tuple(device.name for device in cluster.devices),
        device_memory_bytes=tuple(device.usable_bytes for device in cluster.devices),
        samples_are=graph.samples_are,
        one_device_s=alone_s,
        strategies=tuple(results),
        refused=refused,
        winner=min(results, key=lambda result: (result.expected_s, result.name != "layerwise")).name,
        rank_correlation=float(tried["additive_s"].rank().corr(tried["simulated_s"].rank())),
        tried=tried,
        notes=(
            *found.notes,
            *filter(None, [note]),
            *model.compute_times.notes,
            *above_peak(each.rates for each in results),
        ),
    )


def _named(model: CostModel, names: Sequence[str]) -> dict[str, _Subject | InfeasiblePlanError | None]:
    """Return by name the strategies that follow from a rule, the error of one that is refused, and None to search."""
    if not names:
        raise ConfigError("strategies must name at least one, got none")
    subjects: dict[str, _Subject | InfeasiblePlanError | None] = {}
    for name in names:
        try:
            subjects[name] = None if name in ("layerwise", HYBRID) else strategy_and_micro_batching(model, name)
        except InfeasiblePlanError as error:
            subjects[name] = error
    return subjects


def _add_results(
    model: CostModel,
    named: Mapping[str, _Subject | InfeasiblePlanError | None],
    search: _Search,
    alone_s: float,
    arrived: Callable[[StrategyResult], None] | None,
    found: _Found,
) -> None:
    """Simulate every strategy, ``layerwise`` last; add those that fit, and the reasons of all others.

    Raises:
        NoStrategyFitsError: No strategy fits in memory.
    """
    others = sorted((name for name in named if name not in found.refused), key=lambda name: name == "layerwise")
    for done, name in enumerate(others):
        if search.progress:
            search.progress(f"simulating {name}", done, len(named) + 1)
        try:
            (strategy, micro_batching), notes, replayed = _subject(model, name, named[name], search, found.simulated)
            found.notes += notes
            conditions = replace(model.conditions, storage=storage_of(name))
            prices = model if conditions == model.conditions else model.on(model.cluster, conditions)
            priced = price_strategy(prices, name, strategy, micro_batching, known=replayed)
            if micro_batching.parts == 1 and priced.full.tasks <= _MOST_TASKS:
                found.simulated.append(SimulatedStrategy(name=name, strategy=strategy, replayed=priced.full))
            result = strategy_result(priced, alone_s)
        except InfeasiblePlanError as error:
            found.refused[name] = error
            continue
        found.results[name] = result
        if arrived:
            arrived(result)
    if not found.results:
        # to print an error in full is to search for changes of a plan that fit, which takes long for each strategy
        reasons = {name: error.brief for name, error in found.refused.items()}
        raise NoStrategyFitsError(reasons, fitting_batch(model, list(named)))


def _subject(
    model: CostModel,
    name: str,
    known: _Subject | InfeasiblePlanError | None,
    search: _Search,
    simulated: Sequence[SimulatedStrategy],
) -> tuple[_Subject, tuple[str, ...], Replay | None]:
    """Return a strategy, the notes of its search, and its replay where the search has made one.

    Args:
        model: Prices of a model on a cluster.
        name: Name of the strategy.
        known: The strategy, where it follows from a rule.
        search: How it is searched.
        simulated: Strategies with their replays, which the search need not make again.

    Raises:
        InfeasiblePlanError: No candidate fits in memory.
    """
    if isinstance(known, tuple):
        return known, (), None
    if name == HYBRID:
        best = search_hybrids(model, progress=search.progress)
        return (best.strategy, best.micro_batching), best.notes, None
    if search.refine:
        _, refinement, notes = refined(model, search.refine, progress=search.progress)
        return (refinement.strategy, WHOLE_BATCH), notes, None
    _, candidate, notes = layerwise(model, progress=search.progress, known=simulated)
    return (candidate.strategy, WHOLE_BATCH), notes, candidate.replayed


def _tried(model: CostModel, results: Sequence[StrategyResult]) -> pd.DataFrame:
    """Return additive and simulated times of every strategy, and of random mixtures of those on the whole batch."""
    tried = _rows(results)
    rows: list[tuple[str, float, float]] = list(tried.itertuples(index=False, name=None))
    strategies = {
        result.name: result.strategy
        for result in results
        if result.strategy is not None and result.micro_batching.parts == 1
    }
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
    return pd.DataFrame(rows, columns=tried.columns)


def _rows(results: Iterable[StrategyResult]) -> pd.DataFrame:
    """Return additive and simulated times of strategies."""
    rows = [(result.name, result.additive_s, result.simulated_s) for result in results]
    return pd.DataFrame(rows, columns=["name", "additive_s", "simulated_s"])


def _priced_and_simulated_s(model: CostModel, strategy: Strategy) -> tuple[float, float] | None:
    """Return the additive and the simulated time of a strategy; None where it does not fit, or has very many tasks."""
    try:
        program = lowered(model, strategy)
    except InfeasiblePlanError:
        return None
    if program.size > _MOST_TASKS:
        return None
    return additive_s(model, strategy, program=program), steady_s(program)
