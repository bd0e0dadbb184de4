"""Priced models, strategies and replays that several rows share, each computed once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS, Program
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.search.layerwise import search_layerwise
from planner.simulation.additive_cost import additive_s
from planner.simulation.program_replay import replay
from planner.strategies.named_strategies import named_strategy, spaces_of
from studies.reproduce.paper_clusters import cluster_of


@dataclass(frozen=True, slots=True)
class PricedCase:
    """A model with its batch on a cluster of ``cluster_of``, with an algorithm of gradient synchronisation."""

    model: str
    batch: int
    cluster: str
    gradient_sync: str


@dataclass(frozen=True, kw_only=True, eq=False)
class PricedOutcome:
    """Costs of one iteration of a strategy; those that few claims ask for are computed for the first that does."""

    model: CostModel
    strategy: Strategy
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    moved_bytes: float
    layer_bytes: tuple[float, ...]
    """Bytes of each layer's input transfers and gradient synchronisation."""

    @cached_property
    def additive_s(self) -> float:
        """Iteration time by Eq. 1, in which nothing overlaps."""
        return additive_s(self.model, self.strategy)

    @cached_property
    def fits(self) -> bool:
        """True if the memory of every device suffices."""
        capacity = self.model.cluster.devices.of_each(lambda device: device.usable_bytes)
        return bool((peak_memory_bytes(_lowered(self.model, self.strategy)) <= capacity).all())


@dataclass(slots=True)
class PricedCases:
    """Models, strategies and outcomes of cases, each computed once."""

    models: dict[PricedCase, CostModel] = field(default_factory=dict)
    strategies: dict[tuple[PricedCase, str], Strategy] = field(default_factory=dict)
    outcomes: dict[tuple[PricedCase, str, PricedCase], PricedOutcome] = field(default_factory=dict)

    def model(self, case: PricedCase) -> CostModel:
        """Return the prices of a case."""
        if case not in self.models:
            graph = load_model(case.model, batch=case.batch)
            self.models[case] = CostModel(graph, cluster_of(case.cluster), case.gradient_sync)
        return self.models[case]

    def strategy(self, case: PricedCase, name: str) -> Strategy:
        """Return a strategy by name; ``layerwise`` is the optimum of Eq. 1 for the case.

        Source: Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018,
        Eq. 1 and Algorithm 1.
        """
        if (case, name) not in self.strategies:
            model = self.model(case)
            strategy = (
                search_layerwise(model).strategy
                if name == "layerwise"
                else named_strategy(name, model.graph, len(model.cluster.devices))
            )
            self.strategies[case, name] = strategy
        return self.strategies[case, name]

    def outcome(self, case: PricedCase, name: str, priced: PricedCase | None = None) -> PricedOutcome:
        """Simulate a strategy on a case.

        Args:
            case: Case that is simulated.
            name: ``layerwise``, or a name of ``planner.strategies.named_rules.NAMED``.
            priced: Case whose prices the strategy is searched with, ``case`` unless given.
        """
        key = (case, name, priced or case)
        if key not in self.outcomes:
            model = self.model(case)
            strategy = self.strategy(priced or case, name)
            program = _lowered(model, strategy)
            # A transfer counts for the layer that reads it.
            owner = np.where(program.kind == KINDS.index("transfer"), program.consumer, program.layer)
            self.outcomes[key] = PricedOutcome(
                model=model,
                strategy=strategy,
                simulated_s=replay(program).iteration_s,
                moved_bytes=program.moved_bytes,
                layer_bytes=tuple(np.bincount(owner, program.size_bytes, minlength=len(program.graph.layers)).tolist()),
            )
        return self.outcomes[key]

    def fastest(self, case: PricedCase, names: Iterable[str] = ("layerwise", "data", "owt")) -> PricedOutcome:
        """Return the outcome with the shortest simulated iteration among some strategies."""
        return min((self.outcome(case, name) for name in names), key=lambda outcome: outcome.simulated_s)


def _lowered(model: CostModel, strategy: Strategy) -> Program:
    return lower(model, spaces_of(model.graph, strategy, len(model.cluster.devices)))
