"""A plan: one strategy for one model, batch and cluster, with what it was priced at and how it was found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hwprofiles.device_graph import DeviceGraph
from hwprofiles.errors import ConfigError, InfeasiblePlanError
from planner.configurations import Configuration
from planner.costs import CostModel
from planner.graph import ComputationGraph
from planner.layerwise import Found, find
from planner.lowering import lower
from planner.memory import check_memory
from planner.program import Program
from planner.replay import replay
from planner.search.problem import evaluate
from planner.strategies import NAMED, Strategy, named_strategy, spaces_of

__all__ = ["Plan", "Progress", "additive_s", "layerwise", "lower_plan", "lowered", "make_plan"]

Progress = Callable[[str, int, int], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A strategy for every layer of a model, priced on a cluster."""

    model: str
    """Name and parameters of the model."""
    cluster: str
    """Catalogue entry or path, with parameters."""
    batch: int
    strategy: str
    """``data``, ``layerwise``, ... or the file it came from."""
    exchange: str
    """How gradients are exchanged."""
    configurations: Mapping[str, Configuration]
    model_digest: str
    cluster_digest: str
    additive_s: float
    """Eq. 1."""
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    tables_s: float = 0.0
    """Time that the search spent on cost tables."""
    search_s: float = 0.0
    """Time that it spent on elimination."""
    width: int = 0
    """Most layers that one layer was joined with when it was eliminated; 0 where nothing was searched."""
    notes: Sequence[str] = field(default=())


def additive_s(model: CostModel, strategy: Strategy) -> float:
    """Eq. 1 of a strategy, from the cost tables; tensors in one layout are paid once."""
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    return evaluate(model.problem(spaces, model.transfer_table), [0] * len(spaces))


def lowered(model: CostModel, strategy: Strategy) -> Program:
    """The program of one iteration of a strategy that fits in memory.

    Raises:
        InfeasiblePlanError: It does not fit.
    """
    program = lower(model, spaces_of(model.graph, strategy, len(model.cluster.devices)))
    check_memory(program)
    return program


def lower_plan(plan: Plan, graph: ComputationGraph, cluster: DeviceGraph) -> Program:
    """The program of a plan on its model and cluster.

    Raises:
        ConfigError: The plan was made for another model.
        InfeasiblePlanError: It does not fit in memory.
    """
    if plan.model_digest != graph.digest:
        raise ConfigError(
            f"plan was made for another {plan.model} with batch {plan.batch}: "
            f"its model_digest is {plan.model_digest}, this model has {graph.digest}; make the plan again"
        )
    return lowered(CostModel(graph, cluster, plan.exchange), plan.configurations)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    name: str
    strategy: Strategy
    program: Program
    simulated_s: float


def layerwise(model: CostModel, *, progress: Progress = None) -> tuple[Found, _Candidate, tuple[str, ...]]:
    """Search the layer-wise optimum of Eq. 1, and choose by simulation among it and the usual strategies.

    Returns:
        What the search found, the best candidate, and notes: which candidate it is where it is not the
        additive optimum, and which were refused.

    Raises:
        InfeasiblePlanError: No candidate fits in memory.
    """
    count, notes = len(model.cluster.devices), []
    candidates: dict[str, Strategy] = {}
    for name in NAMED:
        try:
            candidates[name] = named_strategy(name, model.graph, count)
        except ConfigError as error:
            notes.append(f"{name} is no candidate: {error}")
    if progress:
        progress("searching", 0, len(candidates) + 2)
    found = find(model, known=list(candidates.values()))
    candidates = {"layerwise": found.strategy, **candidates}
    best: _Candidate | None = None
    for done, (name, strategy) in enumerate(candidates.items()):
        if progress:
            progress(f"simulating {name}", done + 1, len(candidates) + 1)
        if best is not None and additive_lower_bound_s(model, strategy) > best.simulated_s:
            continue  # cannot win whatever overlaps
        try:
            program = lowered(model, strategy)
        except InfeasiblePlanError as error:
            notes.append(f"{name} is no candidate: {error}")
            continue
        simulated_s = replay(program).iteration_s
        if best is None or simulated_s < best.simulated_s:
            best = _Candidate(name=name, strategy=strategy, program=program, simulated_s=simulated_s)
    if best is None:
        raise InfeasiblePlanError("; ".join(notes))
    if best.name != "layerwise":
        notes.append(f"{best.name} has the shorter simulated iteration than the optimum of Eq. 1, and is the plan")
    return found, best, tuple(notes)


def additive_lower_bound_s(model: CostModel, strategy: Strategy) -> float:
    """Arithmetic of the busiest device: no simulated iteration of the strategy is shorter."""
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    busy = np.zeros(len(model.cluster.devices))
    for i, space in enumerate(spaces):
        costs = model.node_costs(i, space)
        if len(model.profiles) == 1:
            busy[space.devices] += costs.compute_s[0] + costs.phase_s["update"][0]
    return float(busy.max())


def make_plan(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    *,
    strategy: str = "layerwise",
    exchange: str = "ring",
    progress: Progress = None,
) -> Plan:
    """Make a plan: search it (``layerwise``), derive it from a rule, or read it from a file.

    Args:
        graph: Model with its batch.
        cluster: Device graph.
        strategy: A name of ``planner.strategies.strategy_names`` or a strategy file.
        exchange: A key of ``simulator.collectives.ALL_REDUCES``.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: An unknown name, or a strategy that this batch and cluster cannot have.
        InfeasiblePlanError: The plan does not fit in memory.
    """
    model = CostModel(graph, cluster, exchange)
    tables_s = search_s = 0.0
    width = 0
    notes: tuple[str, ...] = ()
    if strategy == "layerwise":
        found, best, notes = layerwise(model, progress=progress)
        tables_s, search_s, width = found.tables_s, found.search_s, found.width
        chosen, simulated_s = best.strategy, best.simulated_s
    else:
        chosen = named_strategy(strategy, graph, len(cluster.devices))
        simulated_s = replay(lowered(model, chosen)).iteration_s
    return Plan(
        model=graph.name,
        cluster=cluster.spec,
        batch=graph.batch,
        strategy=strategy,
        exchange=exchange,
        configurations=dict(chosen),
        model_digest=graph.digest,
        cluster_digest=cluster.digest,
        additive_s=additive_s(model, chosen),
        simulated_s=simulated_s,
        tables_s=tables_s,
        search_s=search_s,
        width=width,
        notes=notes,
    )
