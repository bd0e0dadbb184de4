"""Sensitivity of the iteration time to faster hardware, by replays of the program on changed clusters."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hwprofiles.devices import DeviceGraph, Latency, Link
from planner.lowering import Program
from planner.simulation.execution_models import ITERATIONS, ProgramGraph, build_program_graph
from planner.simulation.interference_use import with_interference
from planner.simulation.program_replay import Replay, replay
from planner.simulation.rank_spread import with_slowest_rank
from simulator.engines import simulate
from simulator.graph import TaskGraph

__all__ = ["Sensitivity", "faster", "sensitivities"]

STEP = 0.01
"""Relative change of the difference quotient."""
_LARGE = {"bandwidth": 2.0, "latency": 0.5, "speed": 2.0}
"""Factors of the large change of each quantity."""
_CHANGES = {"bandwidth": "{} twice as fast", "latency": "{} latency halved", "speed": "{} twice as fast"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Effect of one quantity of one kind of hardware on the iteration time, all else equal."""

    change: str
    """Change in words, such as ``fdr latency halved``."""
    quantity: str
    """``bandwidth`` or ``latency`` of a class of links, or ``speed`` of a kind of device."""
    of: str
    """Link class, or compute profile."""
    iteration_s: float
    """Iteration time with the quantity doubled, or a latency halved."""
    effect: float
    """Relative change of the iteration time by that: -0.03 is 3 % less."""
    elasticity: float
    """Relative change of the time per relative change of the quantity, from one per cent more and one less."""
    elasticity_spread: float
    """Half of the difference between the slopes on both sides; near zero where the time is smooth."""
    derivative_s: float
    """Change of the time in seconds per relative change of the quantity: elasticity times iteration time."""
    reroutes: bool
    """True if the doubled or halved quantity also changes the routes of some transfers."""


def sensitivities(
    program: Program, *, iterations: int = ITERATIONS, progress: Callable[[str, int, int], None] | None = None
) -> tuple[Sensitivity, ...]:
    """Replay the program with each link class's bandwidth and latency, and each compute profile's speed, changed.

    Routes are computed anew, so a faster class may take over transfers from others; the regions that move, and the
    order in which each device computes, do not change.  Where transfers wait for turns, a small change may alter their
    order, and the time by more than the change: then ``elasticity_spread`` is large.

    Args:
        program: One iteration, lowered.
        iterations: As for ``replay``.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        Sensitivities, greatest gain first, then greatest elasticity; then in the order of the cluster's links and
        devices.
    """
    trial, rows, quantities = _Trial(program, iterations), [], _quantities(program.cluster)
    for done, (quantity, of) in enumerate(quantities):
        if progress:
            progress(_CHANGES[quantity].format(of), done, len(quantities))
        rows.append(trial.row(quantity, of))
    return tuple(sorted(rows, key=lambda row: (row.effect, -abs(row.elasticity))))


class _Trial:
    """Replays of a program on changed hardware."""

    def __init__(self, program: Program, iterations: int) -> None:
        base = replay(program, iterations=iterations)
        self.program, self.iterations, self.base_s = program, iterations, base.iteration_s
        self.graph = base.program_graph.graph
        self.used = np.unique(self.graph.use_resource)
        self.on_links = self.graph.use_resource < len(program.cluster.links)

    def row(self, quantity: str, of: str) -> Sensitivity:
        """Return the effect of one quantity."""
        much_s, reroutes = self._time(quantity, of, _LARGE[quantity])
        more_s, less_s = (self._time(quantity, of, factor)[0] for factor in (1 + STEP, 1 - STEP))
        rising, falling = (more_s / self.base_s - 1) / STEP, (1 - less_s / self.base_s) / STEP
        elasticity = (rising + falling) / 2
        return Sensitivity(
            change=_CHANGES[quantity].format(of),
            quantity=quantity,
            of=of,
            iteration_s=much_s,
            effect=much_s / self.base_s - 1,
            elasticity=elasticity,
            elasticity_spread=abs(rising - falling) / 2,
            derivative_s=elasticity * self.base_s,
            reroutes=reroutes,
        )

    def _time(self, quantity: str, of: str, factor: float) -> tuple[float, bool]:
        """Return the iteration time with one quantity multiplied, and True if routes change."""
        changed = faster(self.program, {(quantity, of): factor})
        program_graph = self._conditioned(changed)
        graph, base = program_graph.graph, self.graph
        # weights of copy engines change with the bandwidth of links, even if routes do not: compare those of links only
        reroutes = not (
            np.array_equal(graph.use_resource, base.use_resource)
            and np.array_equal(graph.use_weight[self.on_links], base.use_weight[self.on_links])
        )
        if not reroutes and self._replays_alike(graph):
            return self.base_s, False
        schedule = simulate(graph)
        return Replay(
            program=changed, program_graph=program_graph, schedule=schedule, engine_s=0.0
        ).iteration_s, reroutes

    def _conditioned(self, program: Program) -> ProgramGraph:
        """Return the task graph of a program on changed hardware under its conditions."""
        program_graph, conditions = build_program_graph(program, iterations=self.iterations), program.conditions
        if conditions.interference:
            program_graph = with_interference(program, program_graph)
        return with_slowest_rank(program, program_graph) if conditions.spread else program_graph

    def _replays_alike(self, graph: TaskGraph) -> bool:
        """Return True if nothing that the program uses has changed, so that its replay has the same times."""
        return (
            np.array_equal(graph.capacity[self.used], self.graph.capacity[self.used])
            and np.array_equal(graph.use_weight, self.graph.use_weight)
            and np.array_equal(graph.work, self.graph.work)
            and np.array_equal(graph.latency_s, self.graph.latency_s)
        )


def _quantities(cluster: DeviceGraph) -> list[tuple[str, str]]:
    """Return the quantities of a cluster, each with its link class or compute profile."""
    classes = dict.fromkeys(link.link_class for link in cluster.links)
    profiles = dict.fromkeys(device.profile for device in cluster.devices)
    links = [(quantity, name) for name in classes for quantity in ("bandwidth", "latency")]
    return links + [("speed", name) for name in profiles]


def faster(program: Program, factors: dict[tuple[str, str], float]) -> Program:
    """Return the same program on changed hardware.

    Args:
        program: One iteration.
        factors: Factors of (``bandwidth`` or ``latency``, link class) and (``speed``, profile); 1 if left out.
    """
    cluster = program.cluster
    speed = np.array([factors.get(("speed", device.profile), 1.0) for device in cluster.devices])
    work_s = np.where(program.is_compute, program.work_s / speed[program.device], program.work_s)
    links = [_changed(link, factors) for link in cluster.links]
    if links != list(cluster.links):
        cluster = cluster.with_links(links)
    return replace(program, cluster=cluster, work_s=work_s)


def _changed(link: Link, factors: dict[tuple[str, str], float]) -> Link:
    """Return a link with the factors of its class applied."""
    bandwidth, latency = (factors.get((quantity, link.link_class), 1.0) for quantity in ("bandwidth", "latency"))
    return replace(
        link,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * bandwidth,
        latency=Latency(link.latency.sizes_bytes, tuple(second * latency for second in link.latency.seconds)),
    )
