"""Streams on many devices: the order of weight gradients among activation gradients, and of gradient synchronisation.

The next iteration's forward pass needs the first layers' parameters first, whose gradients come last.  So the
synchronisation of a layer's gradients has the priority of their reuse distance, and the gradients of a layer's weights
stand in one of three places: delayed behind activation gradients, even with them, or advanced, so that the layer before
waits for them.  The best place depends on whether computation or communication is the bottleneck, so all are simulated.

Source: "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from groundwork.array_types import Bools, Ints
from groundwork.errors import ConfigError
from groundwork.progress import Progress
from hwprofiles.compute.kernel_occupancy import launch_of
from hwprofiles.compute.launch import Launch
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph
from planner.graph.layer_paths import dependency_distances
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS, Program
from planner.simulation.execution_models import ITERATIONS
from planner.strategies.named_strategies import named_strategy, spaces_of
from studies.streams.decomposition import Decomposed, decompose
from studies.streams.stream_plan import StreamPlan, pairs_of, replay_streams
from studies.streams.stream_schedules import check_streams, schedule

PLACES = ("delayed", "even", "advanced")
"""Places of a layer's weight gradient beside the activation gradients."""
SHARING_ORDERS = ("ready", "reuse")
"""Orders of gradient synchronisation: all that are ready share the links, or the shortest reuse distance goes first,
which is that of the first layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """One way to order gradients and their synchronisation, simulated."""

    name: str
    gradient_sync: str
    """One of ``SHARING_ORDERS``."""
    places: Mapping[str, str]
    """One of ``PLACES`` for each layer with parameters; empty where all gradients are on one stream."""
    iteration_s: float
    exposed_s: float
    """Communication of an iteration that no computation of the busiest device covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyDevices:
    """Arrangements of a data-parallel network on a cluster, one stream first and the planner's choice last."""

    model: str
    cluster: str
    batch: int
    results: tuple[Arrangement, ...]

    @property
    def chosen(self) -> Arrangement:
        """Arrangement that the planner chooses."""
        return self.results[-1]

    def gain(self, row: Arrangement) -> float:
        """Return the speedup over one stream with gradients synchronised as they become ready."""
        return self.results[0].iteration_s / row.iteration_s


def arrange(
    graph: ComputationGraph,
    cluster: DeviceGraph,
    *,
    gradient_sync: str = "ring",
    occupancy_model: str = "geometry",
    tries: int = 16,
    progress: Progress | None = None,
) -> ManyDevices:
    """Simulate the arrangements of a data-parallel plan, and refine the best of them layer by layer.

    Args:
        graph: The network, with the batch of all devices.
        cluster: Device graph; its profiles have ``launch`` sections.
        gradient_sync: Algorithm of gradient synchronisation.
        occupancy_model: ``geometry`` or ``throughput``.
        tries: Number of layers, those with the most parameters first, for which the other places are tried too.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: A profile has no ``launch`` section, ``tries`` is negative, or the algorithm or the model of
            occupancy is unknown.

    Source: "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
    """
    if tries < 0:
        raise ConfigError(f"tries must be >= 0, got {tries}")
    model = CostModel(graph, cluster, gradient_sync)
    count = len(cluster.devices)
    program = lower(model, spaces_of(graph, named_strategy("data", graph, count, cluster), count))
    trained = [layer.name for layer in graph.layers if layer.parameter_count > 0]
    total = 2 + len(PLACES) * len(SHARING_ORDERS) + 2 * min(tries, len(trained))
    simulations = _Simulations(decompose(program, model, occupancy_model=occupancy_model), model, total, progress)
    results = [simulations.one_stream(order) for order in SHARING_ORDERS]
    for place, order in product(PLACES, SHARING_ORDERS):
        results.append(simulations.arrangement(dict.fromkeys(trained, place), order, f"all {place}"))
    best = min(results, key=lambda row: row.iteration_s)
    if best.places:
        best = _refined(simulations, best, tries)
    return ManyDevices(
        model=graph.name, cluster=cluster.spec, batch=graph.batch, results=(*results, replace(best, name="chosen"))
    )


class _Simulations:
    """Simulated arrangements of one program."""

    def __init__(self, work: Decomposed, model: CostModel, total: int, progress: Progress | None) -> None:
        self.work = work
        self._streams = schedule(work, "asynchronous", launch_of(model.profiles[0]))
        for profile in model.profiles:
            check_streams(self._streams, launch_of(profile))
        self._progress, self._total, self._done = progress, total, 0

    def one_stream(self, order: str) -> Arrangement:
        """Return the arrangement with all gradients on one stream."""
        self._begin(f"one stream, {order}")
        every_device = Launch(tile_rows=1, tile_columns=1, blocks_per_multiprocessor=1, priorities=1, streams=1)
        plan = schedule(self.work, "one-stream", every_device)
        return self._result(replace(plan, priority=_sync_priority(self.work.program, order)), "one stream", order, {})

    def arrangement(self, places: Mapping[str, str], order: str, name: str) -> Arrangement:
        """Return the arrangement with some places of the weight gradients."""
        self._begin(f"{name}, {order}")
        return self._result(arranged(self.work.program, self._streams, places, order), name, order, places)

    def _begin(self, label: str) -> None:
        if self._progress:
            self._progress(label, self._done, self._total)
        self._done = min(self._done + 1, self._total - 1)

    def _result(self, plan: StreamPlan, name: str, order: str, places: Mapping[str, str]) -> Arrangement:
        replayed = replay_streams(self.work, plan, iterations=ITERATIONS)
        return Arrangement(
            name=name,
            gradient_sync=order,
            places=places,
            iteration_s=replayed.iteration_s,
            exposed_s=replayed.shares().exposed_communication_s,
        )


def _refined(simulations: _Simulations, best: Arrangement, tries: int) -> Arrangement:
    """Return the best arrangement after trying the other places of one layer after the other, the largest first."""
    layers = simulations.work.program.graph.layers
    sizes = {layer.name: layer.parameter_count for layer in layers if layer.parameter_count > 0}
    for name in sorted(sizes, key=lambda layer: -sizes[layer])[:tries]:
        for place in PLACES:
            if place == best.places[name]:
                continue
            other = simulations.arrangement({**best.places, name: place}, best.gradient_sync, name)
            best = min(best, other, key=lambda row: row.iteration_s)
    return best


def arranged(program: Program, streams: StreamPlan, places: Mapping[str, str], order: str) -> StreamPlan:
    """Return a plan with two priorities: activation gradients run before delayed gradients, and wait for advanced ones.

    Raises:
        ConfigError: A place or the order is unknown.
    """
    for place in places.values():
        if place not in PLACES:
            raise ConfigError(f"place of a weight gradient must be one of {', '.join(PLACES)}, got {place!r}")
    names = [layer.name for layer in program.graph.layers]
    place_of = np.array([PLACES.index(places[name]) if name in places else 1 for name in names])[program.layer]
    parameters = np.isin(program.kind, [KINDS.index(kind) for kind in ("weight_gradient", "bias_gradient", "update")])
    priority = np.where(parameters & (place_of == 0), 0, 1)
    priority[~program.is_compute] = _sync_priority(program, order)[~program.is_compute]
    pairs = np.concatenate([streams.order, pairs_of(_waits_for_advanced(program, place_of == 2))])
    return replace(streams, priority=priority, order=pairs)


def _sync_priority(program: Program, order: str) -> Ints:
    """Return the priority of gradient synchronisation, higher the sooner the parameters are used again, shape (T,)."""
    if order not in SHARING_ORDERS:
        raise ConfigError(
            f"order of gradient synchronisation must be one of {', '.join(SHARING_ORDERS)}, got {order!r}"
        )
    if order == "ready":
        return np.zeros(program.size, dtype=np.int64)
    distance = np.array(dependency_distances(program.graph))
    return np.where(program.is_compute, 0, -distance[program.layer])


def _waits_for_advanced(program: Program, advanced: Bools) -> list[tuple[int, int]]:
    """Return pairs of a task and an advanced weight gradient that it waits for.

    The layers before an advanced one start their backward pass after its weight gradient, each device by itself.
    """
    back = np.isin(program.kind, [KINDS.index(f"{kind}_gradient") for kind in ("epilogue", "activation")])
    tasks = {(int(program.layer[t]), int(program.device[t])): t for t in np.flatnonzero(back)[::-1].tolist()}
    pairs = []
    for early in np.flatnonzero(advanced & (program.kind == KINDS.index("weight_gradient"))).tolist():
        for edge in program.graph.producers[int(program.layer[early])]:
            late = tasks.get((edge.producer, int(program.device[early])))
            if late is not None:
                pairs.append((late, early))
    return pairs
