"""The layer-wise search with a choice by simulation, among its optimum and the usual strategies.

The search minimises the additive cost of the layer-wise paper: the sum over all layers of the times of compute,
gradient synchronisation and input transfers, none of which overlap.  In the simulation they do; it decides.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Eq. 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.progress import Progress
from groundwork.units import MILLI
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy
from planner.lowering.program import Program
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.plan.lowered_plan import folds, lowered
from planner.search.layerwise import LayerwiseResult, search_layerwise
from planner.search.mesh_search import search_on_mesh
from planner.search.near_best_strategies import near_best
from planner.search.refinement import Refined, refine
from planner.simulation.lower_bound import arithmetic_s, exceeds
from planner.simulation.memory_over_time import check_replay_fits
from planner.simulation.program_replay import Replay, replay
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy

_STARTS = 8
"""Strategies of least additive cost that a refinement starts from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStrategy:
    """A strategy that was simulated."""

    name: str
    strategy: Strategy
    replayed: Replay

    @property
    def program(self) -> Program:
        """One iteration."""
        return self.replayed.program

    @property
    def simulated_s(self) -> float:
        """Time of an iteration."""
        return self.replayed.iteration_s


class NoCandidateFitsError(InfeasiblePlanError):
    """No candidate of the layer-wise search fits in memory; to print it takes a search for changes that fit.

    ``needed_bytes`` is the least that a candidate needs.

    Args:
        refused: Errors of the candidates.
    """

    def __init__(self, refused: Mapping[str, InfeasiblePlanError]) -> None:
        self._refused = refused
        self.needed_bytes = min(filter(None, (error.needed_bytes for error in refused.values())), default=0.0)
        super().__init__(self.brief)

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, InfeasiblePlanError]]]:
        return type(self), (dict(self._refused),)

    @property
    def brief(self) -> str:
        """Message without the changes that fit."""
        return self._said(self._refused["layerwise"].brief)

    def _said(self, why: str) -> str:
        others = ", ".join(name for name in self._refused if name != "layerwise")
        return f"{why}; neither do the candidates {others} fit" if others else why

    def __str__(self) -> str:
        return f"layerwise: {self._said(str(self._refused['layerwise']))}"


def layerwise(
    model: CostModel,
    *,
    mesh: bool = False,
    progress: Progress | None = None,
    known: Sequence[SimulatedStrategy] = (),
) -> tuple[LayerwiseResult, SimulatedStrategy, tuple[str, ...]]:
    """Search the strategy of least additive cost, and choose by simulation among it and the usual strategies.

    Args:
        model: Prices of a model on a cluster.
        mesh: Whether to search on a mesh too (``search_on_mesh``).
        progress: Called as ``progress(label, done, total)``.
        known: Strategies that were simulated already, whose replays are used again.

    Returns:
        The result of the search, the fastest candidate, and notes: its name where the search found nothing faster,
        and the candidates that this batch cannot have.

    Raises:
        InfeasiblePlanError: No candidate fits in memory.
    """
    searched, candidates, notes = _candidates(model, progress, mesh=mesh)
    best: SimulatedStrategy | None = None
    optimum, refused = "does not fit in memory", dict[str, InfeasiblePlanError]()
    for done, (name, strategy) in enumerate(candidates.items()):
        if progress:
            progress(f"simulating {name}", done + 1, len(candidates) + 1)
        if best is not None and arithmetic_s(model, strategy) > best.simulated_s:
            continue  # cannot win, whatever overlaps
        fastest_s = best.simulated_s if best is not None and name != "layerwise" else math.inf
        try:
            candidate = _simulated(model, name, strategy, fastest_s, known)
        except InfeasiblePlanError as error:
            refused[name] = error
            continue
        if candidate is None:
            continue
        if name == "layerwise":
            optimum = f"takes {candidate.simulated_s / MILLI:.4g} ms simulated"
        if best is None or candidate.simulated_s < best.simulated_s:
            best = candidate
    if best is None:
        raise NoCandidateFitsError(refused)
    if best.name != "layerwise":
        notes.append(
            f"Layer-wise search found nothing faster than {best.name} ({best.simulated_s / MILLI:.4g} ms simulated): "
            f"the least sum {'' if searched.exact else 'found '}of compute, transfer and synchronisation times "
            "(Eq. 1 of Jia et al., 2018), "
            f"{searched.cost_s / MILLI:.4g} ms, is that of a strategy that {optimum}"
        )
    return searched, best, tuple(notes)


def _simulated(
    model: CostModel, name: str, strategy: Strategy, fastest_s: float, known: Sequence[SimulatedStrategy]
) -> SimulatedStrategy | None:
    """Return a candidate that was simulated and fits in memory; None if it takes as long as the fastest, or longer.

    Whether it fits takes the longest to find out for most programs, so that comes last.

    Args:
        model: Prices of a model on a cluster.
        name: Name of the candidate.
        strategy: Its configurations.
        fastest_s: Time of the fastest candidate so far.
        known: Strategies that were simulated already.

    Raises:
        InfeasiblePlanError: It is faster, and does not fit in memory.
    """
    for each in known:
        if each.strategy == strategy:
            return SimulatedStrategy(name=name, strategy=strategy, replayed=each.replayed)
    program = lowered(model, strategy, check_memory=fastest_s == math.inf, folded=folds(model.cluster))
    if fastest_s < math.inf and exceeds(program, fastest_s * (1 + 1e-9)):
        return None
    replayed = replay(program)
    if replayed.iteration_s >= fastest_s:
        return None
    if fastest_s < math.inf:
        check_plan_memory(program, peak_memory_bytes(program))
    check_replay_fits(replayed)
    return SimulatedStrategy(name=name, strategy=strategy, replayed=replayed)


def refined(
    model: CostModel, plans: int, *, progress: Progress | None = None
) -> tuple[LayerwiseResult, Refined, tuple[str, ...]]:
    """Search the strategy of least additive cost; refine it, its runners-up and the usual strategies by simulation.

    Args:
        model: Prices of a model on a cluster.
        plans: Plans to simulate; see ``planner.search.refinement.refine``.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        The result of the search, the best plan simulated, and notes: its start, and the starts that were refused.

    Raises:
        ConfigError: ``plans`` < 1.
        InfeasiblePlanError: No start fits in memory.
    """
    searched, candidates, notes = _candidates(model, progress)
    near = near_best(model, searched.cost_s, min(_STARTS, plans)) if searched.exact else []
    starts = {**candidates, **{f"additive plan {k}": strategy for k, strategy in enumerate(near[1:], 2)}}
    best = refine(model, starts, plans=plans, progress=progress)
    notes += [f"{name} is no candidate: {reason}" for name, reason in best.refused.items()]
    times_ms = [seconds / MILLI for seconds in (best.simulated_s, best.start_s, best.lower_bound_s)]
    notes.append(
        f"Refinement reached {times_ms[0]:.4g} ms from {best.origin}; the best start took {times_ms[1]:.4g} ms, and no "
        f"schedule of this plan takes less than {times_ms[2]:.4g} ms "
        f"({best.bound_reason}); {best.simulated_plans} plans simulated"
    )
    return searched, best, tuple(notes)


def _candidates(
    model: CostModel, progress: Progress | None, *, mesh: bool = False
) -> tuple[LayerwiseResult, dict[str, Strategy], list[str]]:
    """Return the result of the search, the strategies to simulate by name, and notes on those that cannot be had.

    With ``mesh`` the optimum without one stays a candidate where one on the mesh has a smaller additive cost.
    """
    count, notes = len(model.cluster.devices), []
    usual: dict[str, Strategy] = {}
    for name in NAMED:
        try:
            usual[name] = named_strategy(name, model.graph, count)
        except ConfigError as error:
            notes.append(f"{name} is no candidate: {error}")
    if progress:
        progress("searching", 0, len(usual) + 2)
    searched = search_layerwise(model, known=list(usual.values()))
    if mesh and (on_mesh := search_on_mesh(model, searched)).strategy != searched.strategy:
        usual, searched = {"plain layerwise": searched.strategy, **usual}, on_mesh
    if not searched.exact:
        notes.append(
            "layerwise: so many branches lie side by side that an exact search would take too long; the least sum of "
            f"times among the most promising configurations of each layer is {searched.cost_s / MILLI:.4g} ms, and no "
            f"strategy has one below {searched.least_s / MILLI:.4g} ms"
        )
    return searched, {"layerwise": searched.strategy, **usual}, notes
