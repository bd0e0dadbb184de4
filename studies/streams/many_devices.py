"""Streams on many devices: which weight gradients are put off, which hurried, and whose exchange goes first.

The next iteration's forward pass needs the first layers' parameters first, whose gradients come last.  So an exchange
has the priority of its reuse distance, and the gradients of a layer's weights stand in one of three places: delayed
behind activation gradients, even with them, or hurried, so that the layer before waits for them.  What is best depends
on whether arithmetic or the exchange is the bottleneck; simulation decides.

Source: "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwprofiles import ConfigError, Ints
from hwprofiles.compute import Launch, launch_of
from hwprofiles.devices import DeviceGraph
from planner.cost import CostModel
from planner.graph import ComputationGraph, dependency_distances
from planner.lowering import KINDS, Program, lower
from planner.parallel import named_strategy, spaces_of
from planner.simulation import ITERATIONS
from studies.streams.decomposition import Decomposed, decompose
from studies.streams.stream_plan import StreamPlan, pairs_of, replay_streams
from studies.streams.stream_schedules import check_streams, schedule

__all__ = ["PLACES", "SHARING_ORDERS", "Arrangement", "ManyDevices", "arrange", "arranged"]

PLACES = ("delayed", "even", "hurried")
"""Of a layer's weight gradient beside the activation gradients."""
SHARING_ORDERS = ("ready", "reuse")
"""Exchanges share links as they become ready, or go by their reuse distance, the first layers first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """One way to order gradients and their exchange, simulated."""

    name: str
    gradient_sync: str
    """One of ``SHARING_ORDERS``."""
    places: Mapping[str, str]
    """By trained layer, one of ``PLACES``; empty where all gradients are on one stream."""
    iteration_s: float
    exposed_s: float
    """Communication that no arithmetic of the busiest device covers, an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyDevices:
    """Arrangements of a data-parallel network on a cluster, one stream first and the planner's choice last."""

    model: str
    cluster: str
    batch: int
    results: tuple[Arrangement, ...]

    @property
    def chosen(self) -> Arrangement:
        """What the planner takes."""
        return self.results[-1]

    def gain(self, row: Arrangement) -> float:
        """Speedup over one stream with exchanges as they become ready."""
        return self.results[0].iteration_s / row.iteration_s


def arrange(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    *,
    gradient_sync: str = "ring",
    reading: str = "geometry",
    tries: int = 16,
    progress: Callable[[str, int, int], None] | None = None,
) -> ManyDevices:
    """Simulate the arrangements of a data-parallel plan, and refine the best of them layer by layer.

    Args:
        graph: With the batch of all devices.
        cluster: Its profiles have ``launch`` sections.
        exchange: Scheme of the gradient exchange.
        reading: How occupancies are had.
        tries: Layers, those with the most parameters first, for which the other places are tried too.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: A profile says nothing of launches, ``tries`` is negative, or an unknown scheme or reading.
    """
    if tries < 0:
        raise ConfigError(f"tries must be >= 0, got {tries}")
    model = CostModel(graph, cluster, gradient_sync)
    count = len(cluster.devices)
    program = lower(model, spaces_of(graph, named_strategy("data", graph, count, cluster), count))
    work = decompose(program, model, reading=reading)
    trained = [layer.name for layer in graph.layers if layer.parameter_count > 0]
    streams = schedule(work, "asynchronous", launch_of(model.profiles[0]))
    for profile in model.profiles:
        check_streams(streams, launch_of(profile))
    total = 2 + len(PLACES) * len(SHARING_ORDERS) + 2 * min(tries, len(trained))
    seen = _Counted(progress, total)
    found = [_one_stream(work, order, seen) for order in SHARING_ORDERS]
    for place, order in product(PLACES, SHARING_ORDERS):
        found.append(_simulated(work, streams, dict.fromkeys(trained, place), order, f"all {place}", seen))
    best = min(found, key=lambda row: row.iteration_s)
    if best.places:
        best = _refined(work, streams, best, tries, seen)
    return ManyDevices(
        model=graph.name, cluster=cluster.spec, batch=graph.batch, results=(*found, replace(best, name="chosen"))
    )


class _Counted:
    """Tells how many simulations are done."""

    def __init__(self, progress: Callable[[str, int, int], None] | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def next(self, label: str) -> None:
        """One more begins."""
        if self._progress:
            self._progress(label, self._done, self._total)
        self._done = min(self._done + 1, self._total - 1)


def _one_stream(work: Decomposed, order: str, seen: _Counted) -> Arrangement:
    seen.next(f"one stream, {order}")
    plan = schedule(work, "one-stream", _any_launch())
    plan = replace(plan, priority=_exchange_priority(work.program, order))
    return _outcome(work, plan, "one stream", order, {})


def _any_launch() -> Launch:
    """One stream is what every device has."""
    return Launch(tile_rows=1, tile_columns=1, blocks_per_multiprocessor=1, priorities=1, streams=1)


def _simulated(
    work: Decomposed, streams: StreamPlan, places: Mapping[str, str], order: str, name: str, seen: _Counted
) -> Arrangement:
    seen.next(f"{name}, {order}")
    return _outcome(work, arranged(work.program, streams, places, order), name, order, places)


def _outcome(work: Decomposed, plan: StreamPlan, name: str, order: str, places: Mapping[str, str]) -> Arrangement:
    replayed = replay_streams(work, plan, iterations=ITERATIONS)
    return Arrangement(
        name=name, gradient_sync=order, places=places, iteration_s=replayed.iteration_s,
        exposed_s=replayed.shares().exposed_communication_s,
    )  # fmt: skip


def _refined(work: Decomposed, streams: StreamPlan, best: Arrangement, tries: int, seen: _Counted) -> Arrangement:
    """Try the other places of one layer after the other, those that exchange most first; keep what is faster."""
    sizes = {layer.name: layer.parameter_count for layer in work.program.graph.layers if layer.parameter_count > 0}
    for name in sorted(sizes, key=lambda layer: -sizes[layer])[:tries]:
        for place in PLACES:
            if place == best.places[name]:
                continue
            other = _simulated(work, streams, {**best.places, name: place}, best.gradient_sync, name, seen)
            best = min(best, other, key=lambda row: row.iteration_s)
    return best


def arranged(program: Program, streams: StreamPlan, places: Mapping[str, str], order: str) -> StreamPlan:
    """A plan with two priorities: activation gradients above what is delayed; hurried ones are waited for.

    Args:
        program: Decomposed.
        streams: The streams of its tasks.
        places: By layer with parameters, one of ``PLACES``.
        order: One of ``SHARING_ORDERS``.

    Raises:
        ConfigError: An unknown place or order.
    """
    for place in places.values():
        if place not in PLACES:
            raise ConfigError(f"place of a weight gradient must be one of {', '.join(PLACES)}, got {place!r}")
    names = [layer.name for layer in program.graph.layers]
    place_of = np.array([PLACES.index(places[name]) if name in places else 1 for name in names])[program.layer]
    parameters = np.isin(program.kind, [KINDS.index(kind) for kind in ("weight_gradient", "bias_gradient", "update")])
    priority = np.where(parameters & (place_of == 0), 0, 1)
    priority[~program.is_compute] = _exchange_priority(program, order)[~program.is_compute]
    pairs = np.concatenate([streams.order, pairs_of(_waits(program, place_of == 2))])
    return replace(streams, priority=priority, order=pairs)


def _exchange_priority(program: Program, order: str) -> Ints:
    """Of collectives, higher the sooner their parameters are used again."""
    if order not in SHARING_ORDERS:
        raise ConfigError(f"order of exchanges must be one of {', '.join(SHARING_ORDERS)}, got {order!r}")
    if order == "ready":
        return np.zeros(program.size, dtype=np.int64)
    distance = np.array(dependency_distances(program.graph))
    return np.where(program.is_compute, 0, -distance[program.layer])


def _waits(program: Program, hurried: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The layers before a hurried one go back after its weight gradient, each device by itself."""
    back = np.isin(program.kind, [KINDS.index(f"{kind}_gradient") for kind in ("epilogue", "activation")])
    tasks = {(int(program.layer[t]), int(program.device[t])): t for t in np.flatnonzero(back)[::-1].tolist()}
    pairs = []
    for early in np.flatnonzero(hurried & (program.kind == KINDS.index("weight_gradient"))).tolist():
        for edge in program.graph.producers[int(program.layer[early])]:
            late = tasks.get((edge.producer, int(program.device[early])))
            if late is not None:
                pairs.append((late, early))
    return pairs
