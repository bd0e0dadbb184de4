"""Compare strategies for one model on one cluster: price, replay, bound, and validate the additive model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.input_files import AnyPath, text_of
from groundwork.progress import Progress, keeping
from groundwork.units import MILLI
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.layouts.configurations import Strategy
from planner.plan.comparison import Comparison, StrategyResult
from planner.plan.layerwise_choice import SimulatedStrategy
from planner.plan.lowered_plan import CostModels, PlannedStrategy, lowered
from planner.plan.make_plan import choose, derived, request_for
from planner.plan.no_strategy_fits import NoStrategyFitsError, fitting_batch
from planner.plan.plan_request import PlanRequest
from planner.plan.priced_strategy import one_device_s, price_strategy, strategy_result
from planner.plan.training_rates import above_peak
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import check_strategy, is_searched, named_strategy

_HIDDEN = 0.05
"""Share of the iteration below which exposed communication hardly counts."""
_DOUBLINGS = 6
"""Batches that are tried: up to 64 times the one that is compared."""


def data_parallel_note(model: CostModel, results: Sequence[StrategyResult]) -> str:
    """Return a sentence on how much of its gradient synchronisation data parallelism hides, and at which batch it does.

    Where communication hides under the backward pass, no strategy can be faster by much, as none computes less.

    Args:
        model: Costs of the network on the cluster, with the conditions.
        results: Strategies compared.

    Returns:
        The sentence; empty if data parallelism was not compared.
    """
    data = next((result for result in results if result.name == "data"), None)
    if data is None:
        return ""
    sync_s = sum(layer.gradient_sync_s for layer in data.layers)
    exposed = f"{data.exposed_communication_s / MILLI:.3g} ms"
    if data.exposed_communication_s <= _HIDDEN * data.simulated_s:
        rest = f", all but {exposed}" if data.exposed_communication_s > 0 else ""
        return (
            f"data hides its gradient synchronisation ({sync_s / MILLI:.3g} ms) under the backward pass{rest}: no "
            f"strategy can be much faster than one that only computes"
        )
    shown = f"data exposes {exposed} of communication at batch {model.graph.batch:,}"
    for power in range(1, _DOUBLINGS + 1):
        batch = model.graph.batch << power
        try:
            share = _exposed_share(model.for_batch(batch))
        except InfeasiblePlanError:
            return f"{shown}; it would do so at every larger batch that was tried and fits in memory"
        if share <= _HIDDEN:
            return f"{shown}; from batch {batch:,} on it hides under the backward pass"
    return f"{shown}; even at batch {batch:,} it does not hide under the backward pass"


def _exposed_share(model: CostModel) -> float:
    """Return the share of a data-parallel iteration in which its busiest device waits for communication."""
    replayed = replay(lowered(model, named_strategy("data", model.graph, len(model.cluster.devices))))
    return replayed.shares().exposed_communication_s / replayed.iteration_s


_MIXTURES = 8
"""Random mixtures of the strategies that validate the additive model beside the strategies themselves."""
_MOST_TASKS = 60_000
"""Largest program of a mixture that is simulated, so that the validation takes seconds, and of which
the replay is kept for the layer-wise search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A plan to compare, with what is known of it before anything is simulated."""

    request: PlanRequest
    model: CostModel
    """Prices under the conditions of the request."""
    planned: PlannedStrategy | InfeasiblePlanError | None
    """The strategy where it follows from a rule, the error where that is refused; None for one that is searched."""


@dataclass(slots=True, kw_only=True)
class _Found:
    """Results and reasons by the texts of plans, and notes of the searches."""

    results: dict[str, StrategyResult] = field(default_factory=dict)
    refused: dict[str, InfeasiblePlanError]
    notes: tuple[str, ...] = ()
    simulated: list[tuple[CostModel, SimulatedStrategy]] = field(default_factory=list)
    """Strategies on the whole batch, of not too many tasks, with their prices and replays."""

    def in_order(self, names: Iterable[str]) -> list[StrategyResult]:
        """Return the results in the order in which the plans were named."""
        return [self.results[name] for name in names if name in self.results]


def compare(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    strategies: Sequence[AnyPath],
    *,
    refine: int = 0,
    progress: Progress | None = None,
    arrived: Callable[[StrategyResult], None] | None = None,
    **options: Any,
) -> Comparison:
    """Compare plans by their texts; each is made as ``planner.plan.make_plan.simulated_plan`` makes it.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        strategies: Names of ``planner.strategies.named_strategies.strategy_names``, degrees or strategy files, with
            options as further words (``planner.plan.plan_text``).
        refine: Plans to simulate in the refinement of ``layerwise``, where its text says nothing of it; 0 for none.
        progress: Called as ``progress(label, done, total)``.
        arrived: Called with every result as soon as there is one; ``layerwise`` comes last.
        options: Fields of ``PlanRequest`` that all have in common, such as ``gradient_sync`` or ``framework``.

    Returns:
        A result for every plan that fits, with the reasons of the others.

    Raises:
        ConfigError: A text or an option is wrong, this batch cannot have a strategy, or the cluster does not declare
            what a plan takes into account.
        NoStrategyFitsError: No plan fits in memory.
        Interrupted: After Ctrl-C, with the plans that had been compared; without any, KeyboardInterrupt.
    """
    if not strategies:
        raise ConfigError("strategies must name at least one, got none")
    models = CostModels(graph, cluster)
    model = models.of(request_for(graph, cluster, strategy="data", **options))
    named = _named(models, graph, cluster, [text_of(each, "strategies") for each in strategies], refine, options)
    alone_s = one_device_s(model)
    refused = {name: each.planned for name, each in named.items() if isinstance(each.planned, InfeasiblePlanError)}
    found = _Found(refused=refused)

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
        _add_results(named, alone_s, progress, arrived, found)
        if progress:
            progress("validating the additive model", len(named), len(named) + 1)
        results = found.in_order(named)
        # what may be mixed are plans that are a strategy and nothing else, under the conditions of all
        usual = [each for each in results if named[each.name].model is model and each.planned.is_plain]
        mixed = {each.name: each.planned.strategy for each in usual}
        tried, note = _tried(model, results, mixed), data_parallel_note(model, results)
    reasons = {name: str(each) for name, each in found.refused.items()}
    return _comparison(model, found, reasons, alone_s, tried, note)


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
        devices=tuple(cluster.devices.names),
        device_memory_bytes=tuple(cluster.devices.of_each(lambda device: device.usable_bytes).tolist()),
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


def _named(
    models: CostModels,
    graph: ComputationGraph,
    cluster: DeviceGraph,
    texts: Sequence[str],
    refine: int,
    options: Mapping[str, Any],
) -> dict[str, _Subject]:
    """Return the plans by their texts, each once; arguments as for ``compare``, with the prices of all conditions."""
    subjects: dict[str, _Subject] = {}
    for text in texts:
        if not text:  # alone an empty text is the default; in a list it names nothing
            check_strategy(text)
        request = request_for(graph, cluster, strategy=text, **options)
        if request.strategy == "layerwise":
            request = replace(request, refine=request.refine or refine)
        model = models.of(request)
        planned: PlannedStrategy | InfeasiblePlanError | None = None
        if not is_searched(request.strategy):
            try:
                planned = derived(model, request)
            except InfeasiblePlanError as error:
                planned = error
        subjects[text] = _Subject(request=request, model=model, planned=planned)
    return subjects


def _add_results(
    named: Mapping[str, _Subject],
    alone_s: float,
    progress: Progress | None,
    arrived: Callable[[StrategyResult], None] | None,
    found: _Found,
) -> None:
    """Simulate every plan, those of ``layerwise`` last; add those that fit, and the reasons of all others.

    Raises:
        NoStrategyFitsError: No plan fits in memory.
    """
    others = [name for name in named if name not in found.refused]
    for done, name in enumerate(sorted(others, key=lambda name: named[name].request.strategy == "layerwise")):
        if progress:
            progress(f"simulating {name}", done, len(named) + 1)
        subject = named[name]
        model, planned = subject.model, subject.planned
        known = [each for prices, each in found.simulated if prices is model]
        try:
            assert not isinstance(planned, InfeasiblePlanError)
            chosen = choose(model, subject.request, planned=planned, known=known, progress=progress)
            found.notes += tuple(
                note if is_searched(subject.request.strategy) else f"{name}: {note}" for note in chosen.planned.notes
            )
            model = chosen.model or model
            priced = price_strategy(model, name, chosen.planned, chosen.replayed)
            if chosen.planned.is_plain and priced.full.tasks <= _MOST_TASKS:
                simulated = SimulatedStrategy(name=name, strategy=chosen.planned.strategy, replayed=priced.full)
                found.simulated.append((model, simulated))
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
        raise NoStrategyFitsError(reasons, fitting_batch([(each.model, each.request) for each in named.values()]))


def _tried(model: CostModel, results: Sequence[StrategyResult], strategies: Mapping[str, Strategy]) -> pd.DataFrame:
    """Return additive and simulated times of every plan, and of random mixtures of strategies.

    Args:
        model: Prices of the mixtures.
        results: The plans.
        strategies: Strategies of plans that differ in nothing else, by the texts of the plans.
    """
    tried = _rows(results)
    rows: list[tuple[str, float, float]] = list(tried.itertuples(index=False, name=None))
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
    return additive_s(model, strategy, program=program), replay(program).iteration_s
