"""Refinement: local search for the strategy with the shortest simulated iteration, overlap and contention included.

Searches start at the strategies of least additive cost and at the named ones, and continue with neighbours.  A
neighbour is simulated only if its load of the busiest link or device, a lower bound, is below the best time so far.
The most promising neighbours go first: by that bound, plus the share of the rest of the additive cost that the current
strategy does not hide.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf

import numpy as np

from groundwork.errors import ConfigError, InfeasiblePlanError
from planner.cost.cost_model import CostModel
from planner.cost.link_loads import LinkLoads
from planner.elimination.bounds import SLACK
from planner.layouts.configurations import Configuration, Strategy
from planner.lowering.lower_strategy import lower
from planner.lowering.program import Program
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.search.neighbours import Neighbours, Spaces, StrategyChange
from planner.simulation.lower_bound import iteration_bound
from planner.simulation.memory_over_time import replay_that_fits

WAVE = 4
"""Plans simulated side by side; fixed, so that the result does not depend on the number of cores."""
PATIENCE = 80
"""Plans without an improvement after which a search from one start ends; that from the best plan goes on.  With 40,
AlexNet on 16 GPUs stopped at a gap of 18 %, with 80 at 9 %, in the same 200 plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """Best plan that was simulated, with its lower bound and origin."""

    strategy: dict[str, Configuration]
    program: Program
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    lower_bound_s: float
    """Lower bound of the time of any schedule of this plan's tasks."""
    bound_reason: str
    """Resource or path that sets the bound, in words."""
    start_s: float
    """Simulated time of the best start."""
    origin: str
    """Start from which the plan was reached, and the number of changes to it."""
    simulated_plans: int
    refused: dict[str, str]
    """Starts that do not fit in memory, with the reason."""

    @property
    def gap(self) -> float:
        """Relative distance of the simulated time from its lower bound."""
        return self.simulated_s / self.lower_bound_s - 1


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A simulated plan, the start from which it was reached, and the number of steps."""

    spaces: Spaces
    simulated_s: float
    start: str
    steps: int = 0

    @property
    def origin(self) -> str:
        """Start and number of steps in words."""
        steps = {0: "", 1: ", 1 change"}.get(self.steps, f", {self.steps} changes")
        return f"{self.start}{steps}"


def refine(
    model: CostModel,
    starts: Mapping[str, Strategy],
    *,
    plans: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> Refined:
    """Return the best plan of a local search from several starts; the result is the same in every run.

    It is never worse than any start.  Starts that a lower bound rules out are not simulated.

    Args:
        model: Costs of a network on a cluster, gradient synchronisation included.
        starts: Strategies by name; of several equal ones the first gives its name.
        plans: Number of plans to simulate, starts included, >= 1; starts are simulated even if they are more.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: ``plans`` < 1 or no starts.
        InfeasiblePlanError: No start fits in memory.
    """
    if plans < 1:
        raise ConfigError(f"plans must be >= 1, got {plans}")
    if not starts:
        raise ConfigError("starts must name at least one strategy, got none")
    with ThreadPoolExecutor(2, thread_name_prefix="refine") as pool:
        return _Refinement(model, plans, pool, progress).run(starts)


class _Refinement:
    """State of one local search: simulated plans, the best of them, and starts."""

    def __init__(
        self,
        model: CostModel,
        plans: int,
        pool: ThreadPoolExecutor,
        progress: Callable[[str, int, int], None] | None,
    ) -> None:
        self.model, self.plans, self.pool, self.progress = model, plans, pool, progress
        self.neighbours, self.loads = Neighbours(model), LinkLoads(model)
        self.known: dict[Spaces, float | InfeasiblePlanError] = {}
        """Simulated times of plans, or the reason why they do not fit."""
        self.starts: list[Spaces] = []
        self.best = _Candidate((), inf, "")

    @property
    def simulated(self) -> int:
        """Number of plans simulated so far."""
        return sum(isinstance(outcome, float) for outcome in self.known.values())

    def run(self, starts: Mapping[str, Strategy]) -> Refined:
        """Simulate the starts, then search from each of them, best first, while plans are left."""
        named = {self.neighbours.spaces(strategy): name for name, strategy in reversed(list(starts.items()))}
        candidates = self._start(named)
        refused = {named[s]: str(error) for s, error in self.known.items() if isinstance(error, InfeasiblePlanError)}
        if not candidates:
            raise InfeasiblePlanError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
        start_s = self.best.simulated_s
        for candidate in candidates:
            self._search_from(candidate, PATIENCE)
        self._search_from(self.best, self.plans)
        program = lower(self.model, self.best.spaces)
        bound_s, reason = iteration_bound(program)
        return Refined(
            strategy=self.neighbours.strategy(self.best.spaces),
            program=program,
            simulated_s=self.best.simulated_s,
            lower_bound_s=bound_s,
            bound_reason=reason,
            start_s=start_s,
            origin=self.best.origin,
            simulated_plans=self.simulated,
            refused=refused,
        )

    def _start(self, named: dict[Spaces, str]) -> list[_Candidate]:
        """Simulate the starts that a bound does not rule out, lowest bound first; return those that fit, best first."""
        self.starts = list(reversed(named))
        bound_s = {spaces: float(self.loads.total(spaces)[:-1].max()) for spaces in self.starts}
        candidates = []
        for spaces in sorted(self.starts, key=bound_s.__getitem__):
            if bound_s[spaces] <= self.best.simulated_s * (1 + SLACK):
                candidates += self._simulate([spaces], named[spaces], 0)
        return sorted(candidates, key=lambda candidate: candidate.simulated_s)

    def _simulate(self, wave: list[Spaces], start: str, steps: int) -> list[_Candidate]:
        """Simulate plans that were not simulated yet, side by side, and return those that fit."""
        self.known.update(zip(wave, self.pool.map(self._outcome, wave), strict=True))
        if self.progress:
            self.progress("refining", min(self.simulated, self.plans), self.plans)
        outcomes = [(spaces, self.known[spaces]) for spaces in wave]
        candidates = [_Candidate(spaces, t, start, steps) for spaces, t in outcomes if isinstance(t, float)]
        self.best = min([self.best, *candidates], key=lambda candidate: candidate.simulated_s)
        return candidates

    def _outcome(self, spaces: Spaces) -> float | InfeasiblePlanError:
        """Return the simulated iteration time of a plan, or the reason why it does not fit."""
        program = lower(self.model, spaces)
        try:
            check_plan_memory(program, peak_memory_bytes(program))
            return replay_that_fits(program).iteration_s
        except InfeasiblePlanError as error:
            return error

    def _search_from(self, current: _Candidate, patience: int) -> None:
        """Simulate a plan's neighbours in waves, and go on from the best one of the first wave that improves it."""
        waiting, tried = self._promising(current), 0
        while waiting and tried < patience and self.simulated < self.plans:
            wave, waiting = waiting[: min(WAVE, self.plans - self.simulated)], waiting[WAVE:]
            near = self._simulate(wave, current.start, current.steps + 1)
            tried += len(wave)
            better = min([current, *near], key=lambda candidate: candidate.simulated_s)
            if better is not current:
                current, tried = better, 0
                waiting = self._promising(current)

    def _promising(self, current: _Candidate) -> list[Spaces]:
        """Return the neighbours whose lower bound is below the best time so far, most promising first."""
        loads, spaces = self.loads, current.spaces
        total = loads.total(spaces)
        alone = np.sum([loads.node(i, space) for i, space in enumerate(spaces)], axis=0)
        busy_s = float(total[:-1].max())
        # share of the additive cost above the busiest resource that the current plan does not hide
        exposed = min(max((current.simulated_s - busy_s) / max(float(total[-1]) - busy_s, busy_s * SLACK), 0.0), 1.0)
        ranked: list[tuple[float, int, Spaces]] = []
        for number, change in enumerate(self.neighbours.around(spaces, self.starts)):
            neighbour = tuple(change.get(i, space) for i, space in enumerate(spaces))
            # Arithmetic and gradient synchronisation alone rule most neighbours out, before any transfer is priced.
            least = alone + sum(loads.node(i, space) - loads.node(i, spaces[i]) for i, space in change.items())
            if neighbour in self.known or least[:-1].max() >= self.best.simulated_s:
                continue
            after = total + sum(loads.term(i, neighbour) - loads.term(i, spaces) for i in self._affected(change))
            bound_s = float(after[:-1].max())
            if bound_s < self.best.simulated_s:
                ranked.append((bound_s + exposed * (float(after[-1]) - bound_s), number, neighbour))
        return [neighbour for _, _, neighbour in sorted(ranked, key=lambda row: row[:2])]

    def _affected(self, change: StrategyChange) -> list[int]:
        """Return the layers whose cost terms a change may alter: those that change, and those that they read."""
        return sorted({*change, *(edge.producer for i in change for edge in self.model.graph.incoming[i])})
