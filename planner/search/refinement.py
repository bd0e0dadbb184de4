"""Refinement: from good additive plans to a plan that is good when simulated, overlap and contention included.

Walks start at the k best strategies of Eq. 1 and at the named ones, and go on by local moves.  A move is simulated
only where the busiest link or device leaves it a chance.  The most promising go first: their bound, and on top of it
the share of the additive cost that the plan walked from leaves exposed.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf

import numpy as np

from hwprofiles import ConfigError, InfeasiblePlanError
from planner.cost import CostModel, LinkLoads
from planner.elimination import SLACK
from planner.lowering import Program, lower
from planner.memory import check_plan_memory, peak_memory_bytes
from planner.parallel import Configuration, Strategy
from planner.search.neighbours import Neighbours, Spaces, StrategyChange
from planner.simulation import iteration_bound, replay_that_fits

__all__ = ["Refined", "refine"]

WAVE = 4
"""Plans simulated side by side, whatever the number of cores: so the answer does not depend on it."""
PATIENCE = 80
"""Plans without an improvement after which a walk gives way to the next; the last goes on.  40 left AlexNet on 16
GPUs at a gap of 18 %, 80 at 9 %, in the same 200 plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The best plan simulated, with its certificate and where it came from."""

    strategy: dict[str, Configuration]
    program: Program
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    lower_bound_s: float
    """No schedule of this plan's tasks is shorter."""
    bound_reason: str
    start_s: float
    """Simulated time of the best start."""
    origin: str
    """The start that it was reached from, and in how many moves."""
    simulated_plans: int
    refused: dict[str, str]
    """Starts that do not fit in memory, with the reason."""

    @property
    def gap(self) -> float:
        """How much longer than its bound it takes, as a share of the bound."""
        return self.simulated_s / self.lower_bound_s - 1


@dataclass(frozen=True, slots=True)
class _Point:
    """A simulated plan and the way to it."""

    spaces: Spaces
    simulated_s: float
    start: str
    moves: int = 0

    @property
    def origin(self) -> str:
        steps = {0: "", 1: ", 1 move"}.get(self.moves, f", {self.moves} moves")
        return f"{self.start}{steps}"


def refine(
    model: CostModel,
    starts: Mapping[str, Strategy],
    *,
    plans: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> Refined:
    """Return the best plan found by simulating the starts and walking on from them; the same in every run.

    It is never worse than any start.  Starts that a bound rules out are not simulated.

    Args:
        model: Graph, cluster and exchange scheme, with their prices.
        starts: Name to strategy; the best of several equal ones is the first.
        plans: Plans to simulate, starts included, >= 1; the starts are simulated even if they are more.
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
    def __init__(
        self, model: CostModel, plans: int, pool: ThreadPoolExecutor,
        progress: Callable[[str, int, int], None] | None,
    ) -> None:  # fmt: skip
        self.model, self.plans, self.pool, self.progress = model, plans, pool, progress
        self.moves, self.loads = Neighbours(model), LinkLoads(model)
        self.known: dict[Spaces, float | InfeasiblePlanError] = {}
        """What was simulated or refused."""
        self.starts: list[Spaces] = []
        self.best = _Point((), inf, "")

    @property
    def simulated(self) -> int:
        return sum(isinstance(outcome, float) for outcome in self.known.values())

    def run(self, starts: Mapping[str, Strategy]) -> Refined:
        """Simulate the starts, then walk from the best of them while plans are left."""
        named = {self.moves.spaces(strategy): name for name, strategy in reversed(list(starts.items()))}
        points = self._start(named)
        refused = {named[s]: str(error) for s, error in self.known.items() if isinstance(error, InfeasiblePlanError)}
        if not points:
            raise InfeasiblePlanError("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
        start_s = self.best.simulated_s
        for point in points:
            self._walk(point, PATIENCE)
        self._walk(self.best, self.plans)
        program = lower(self.model, self.best.spaces)
        bound_s, reason = iteration_bound(program)
        return Refined(
            strategy=self.moves.strategy(self.best.spaces),
            program=program,
            simulated_s=self.best.simulated_s,
            lower_bound_s=bound_s,
            bound_reason=reason,
            start_s=start_s,
            origin=self.best.origin,
            simulated_plans=self.simulated,
            refused=refused,
        )

    def _start(self, named: dict[Spaces, str]) -> list[_Point]:
        """Simulate the starts that a bound does not rule out, lowest bound first; best first come those that fit."""
        self.starts = list(reversed(named))
        bound_s = {spaces: float(self.loads.total(spaces)[:-1].max()) for spaces in self.starts}
        points = []
        for spaces in sorted(self.starts, key=bound_s.__getitem__):
            if bound_s[spaces] <= self.best.simulated_s * (1 + SLACK):
                points += self._simulate([spaces], named[spaces], 0)
        return sorted(points, key=lambda point: point.simulated_s)

    def _simulate(self, wave: list[Spaces], start: str, moves: int) -> list[_Point]:
        """Simulate plans that were not simulated yet, side by side; returns those that fit."""
        self.known.update(zip(wave, self.pool.map(self._outcome, wave), strict=True))
        if self.progress:
            self.progress("refining", min(self.simulated, self.plans), self.plans)
        outcomes = [(spaces, self.known[spaces]) for spaces in wave]
        points = [_Point(spaces, t, start, moves) for spaces, t in outcomes if isinstance(t, float)]
        self.best = min([self.best, *points], key=lambda point: point.simulated_s)
        return points

    def _outcome(self, spaces: Spaces) -> float | InfeasiblePlanError:
        program = lower(self.model, spaces)
        try:
            check_plan_memory(program, peak_memory_bytes(program))
            return replay_that_fits(program).iteration_s
        except InfeasiblePlanError as error:
            return error

    def _walk(self, point: _Point, patience: int) -> None:
        """Go on from a plan, each time to the best of the first wave that improves it."""
        waiting, tried = self._promising(point), 0
        while waiting and tried < patience and self.simulated < self.plans:
            wave, waiting = waiting[: min(WAVE, self.plans - self.simulated)], waiting[WAVE:]
            near = self._simulate(wave, point.start, point.moves + 1)
            tried += len(wave)
            better = min([point, *near], key=lambda point: point.simulated_s)
            if better is not point:
                point, tried = better, 0
                waiting = self._promising(point)

    def _promising(self, point: _Point) -> list[Spaces]:
        """The neighbours that may be better than the best plan so far, most promising first."""
        loads, spaces = self.loads, point.spaces
        total = loads.total(spaces)
        alone = np.sum([loads.node(i, space) for i, space in enumerate(spaces)], axis=0)
        busy_s = float(total[:-1].max())
        exposed = min(max((point.simulated_s - busy_s) / max(float(total[-1]) - busy_s, busy_s * SLACK), 0.0), 1.0)
        ranked: list[tuple[float, int, Spaces]] = []
        for number, change in enumerate(self.moves.around(spaces, self.starts)):
            moved = tuple(change.get(i, space) for i, space in enumerate(spaces))
            # Arithmetic and exchanges alone rule most moves out, before any transfer is priced.
            least = alone + sum(loads.node(i, space) - loads.node(i, spaces[i]) for i, space in change.items())
            if moved in self.known or least[:-1].max() >= self.best.simulated_s:
                continue
            after = total + sum(loads.term(i, moved) - loads.term(i, spaces) for i in self._touched(change))
            bound_s = float(after[:-1].max())
            if bound_s < self.best.simulated_s:
                ranked.append((bound_s + exposed * (float(after[-1]) - bound_s), number, moved))
        return [moved for _, _, moved in sorted(ranked, key=lambda row: row[:2])]

    def _touched(self, change: StrategyChange) -> list[int]:
        """Layers whose terms a change may alter: those that change, and those that they read."""
        return sorted({*change, *(edge.producer for i in change for edge in self.model.graph.producers[i])})
