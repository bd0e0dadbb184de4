"""Sensitivity of the iteration time to faster hardware: the same strategy, lowered and replayed on changed clusters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from groundwork.array_types import Floats, Ints
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link
from planner.lowering.program import Program
from planner.simulation.execution_models import ITERATIONS
from planner.simulation.program_replay import Replay, replay

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
    reroutes: bool
    """True if with the doubled or halved quantity messages also go over other links: by other routes, or by another
    algorithm of gradient synchronisation."""


def sensitivities(
    program: Program,
    lower_on: Callable[[DeviceGraph], Program],
    *,
    iterations: int = ITERATIONS,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Sensitivity, ...]:
    """Replay a strategy with each link class's bandwidth and latency, and each compute profile's speed, changed.

    The strategy is lowered anew for each changed cluster, so that every time is the one that a plan with the same
    strategy has there: routes, the algorithms of gradient synchronisation and what devices lose to messages follow the
    change.  Where transfers wait for turns, a small change may alter their order, and the time by more than the change:
    then ``elasticity_spread`` is large.

    Args:
        program: One iteration on today's cluster, lowered.
        lower_on: Lowers the same strategy on a cluster with the same devices, links and routes, some of them faster.
        iterations: As for ``replay``.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        Sensitivities, greatest gain first, then greatest elasticity; then in the order of the cluster's links and
        devices.
    """
    base = replay(program, iterations=iterations)
    rows, quantities = [], _quantities(program.cluster)
    for done, (quantity, of) in enumerate(quantities):
        if progress:
            progress(_CHANGES[quantity].format(of), done, len(quantities))
        much, more, less = (
            replay(lower_on(faster(program.cluster, {(quantity, of): factor})), iterations=iterations)
            for factor in (_LARGE[quantity], 1 + STEP, 1 - STEP)
        )
        rows.append(_row(quantity, of, base, much, more.iteration_s, less.iteration_s))
    return tuple(sorted(rows, key=lambda row: (row.effect, -abs(row.elasticity))))


def _row(quantity: str, of: str, base: Replay, much: Replay, more_s: float, less_s: float) -> Sensitivity:
    """Return the effect of one quantity, by replays with much more of it, and with one per cent more and less."""
    base_s = base.iteration_s
    rising, falling = (more_s / base_s - 1) / STEP, (1 - less_s / base_s) / STEP
    elasticity = (rising + falling) / 2
    return Sensitivity(
        change=_CHANGES[quantity].format(of),
        quantity=quantity,
        of=of,
        iteration_s=much.iteration_s,
        effect=much.iteration_s / base_s - 1,
        elasticity=elasticity,
        elasticity_spread=abs(rising - falling) / 2,
        reroutes=not all(map(np.array_equal, _link_uses(base), _link_uses(much))),
    )


def _link_uses(replayed: Replay) -> tuple[Ints, Ints, Floats]:
    """Return the tasks that use links, the links, and the weights; those of copy engines change with bandwidths."""
    graph = replayed.program_graph.graph
    on_links = graph.use_resource < len(replayed.program.cluster.links)
    return graph.use_owners[on_links], graph.use_resource[on_links], graph.use_weight[on_links]


def _quantities(cluster: DeviceGraph) -> list[tuple[str, str]]:
    """Return the quantities of a cluster, each with its link class or compute profile."""
    classes = dict.fromkeys(cluster.links.classes.tolist())
    profiles = dict.fromkeys(device.profile for device in cluster.devices.kinds)
    links = [(quantity, name) for name in classes for quantity in ("bandwidth", "latency")]
    return links + [("speed", name) for name in profiles]


def faster(cluster: DeviceGraph, factors: Mapping[tuple[str, str], float]) -> DeviceGraph:
    """Return a cluster with faster hardware.

    Args:
        cluster: Today's cluster.
        factors: Factors of (``bandwidth`` or ``latency``, link class) and (``speed``, profile); 1 if left out.
    """
    devices = cluster.devices.changed_kinds(
        lambda device: replace(device, speed=device.speed * factors.get(("speed", device.profile), 1.0))
    )
    links = cluster.links.changed_kinds(lambda link: _changed(link, factors))
    if devices.kinds != cluster.devices.kinds:
        cluster = cluster.with_devices(devices)
    return cluster.with_links(links) if links.kinds != cluster.links.kinds else cluster


def _changed(link: Link, factors: Mapping[tuple[str, str], float]) -> Link:
    """Return a link with the factors of its class applied."""
    bandwidth, latency = (factors.get((quantity, link.link_class), 1.0) for quantity in ("bandwidth", "latency"))
    return replace(
        link,
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * bandwidth,
        latency=Latency(link.latency.sizes_bytes, tuple(second * latency for second in link.latency.seconds)),
    )
