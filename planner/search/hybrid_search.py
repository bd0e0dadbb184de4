"""Search over uniform hybrids: all degrees of pipeline, data, spatial and filter parallelism, and micro-batches.

On a mesh degrees of tensor, sequence, expert and context parallelism stand in the place of spatial and filter ones, and
gradients may be added up over micro-batches.  What replicas divide and what is recomputed is given, not searched.
Every hybrid has two lower bounds that need no lowering: arithmetic and memory of the first device of a group, which
holds a part of every layer.  Hybrids whose memory bound does not fit are left out, and those that cannot be faster
than the best one so far are pruned; the others are replayed in the order of an estimate: the additive cost (Eq. 1)
with stages working in parallel.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.progress import Progress
from groundwork.units import MILLI
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.elimination.search_problem import strategy_cost
from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph, Layer
from planner.graph.operation import SavedTensors
from planner.graph.shapes import SUMMED
from planner.graph.type_roles import TYPE_BYTES
from planner.layouts.configurations import Strategy
from planner.layouts.storage import REPLICATED_STORAGE, STAGES
from planner.lowering.alike_replicas import lower_folded
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.operations.base import Part
from planner.operations.mapped import Mapped
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.search.search_tables import mesh_problem
from planner.simulation.additive_cost import additive_s
from planner.simulation.memory_over_time import replay_that_fits
from planner.strategies.degrees import Hybrid, check_hybrid, hybrid_of, layer_split
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.recomputation import drops_most, recompute_of, segments_of

REPLAYS = 12
"""Hybrids that are replayed by default."""
_ESTIMATES = 4
"""Hybrids that are estimated for each that may be replayed."""
_OFF_MESHES = ("pipeline", "data", "spatial", "filter")
_ON_MESHES = ("pipeline", "data", "context", "expert", "tensor")
"""Degrees that are searched."""
_PER_STAGE = (1, 2, 4)
"""Numbers of micro-batches that are tried, per stage."""
_SAMPLES = (1, 2, 4)
"""Samples of a replica in a micro-batch that are tried on a mesh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridRequest:
    """What a search for a hybrid is told."""

    replays: int = REPLAYS
    """Most hybrids to replay, >= 1."""
    stages: bool = True
    """True to include pipelines."""
    mesh: bool = False
    """True for the axes of meshes in place of splits of positions and output channels."""
    words: str = ""
    """Words of storage, such as ``zero=1``; that of the model's conditions."""
    micro_batches: int = 0
    """Their number; 0: several are tried."""
    schedule: str = "1f1b"
    """That of pipelines."""
    recompute: str = "none"
    """As for ``planner.strategies.recomputation.recompute_of``."""

    def planned(self, model: CostModel, candidate: "Candidate") -> tuple[Strategy, MicroBatching]:
        """Return the strategy of a candidate, and its micro-batches.

        Raises:
            ConfigError: The network cannot have it.
            InfeasiblePlanError: No division into stages fits.
        """
        count = candidate.micro_batches
        pipeline = Pipeline(micro_batches=count, schedule=self.schedule, recomputes=drops_most(self.recompute))
        whole = MicroBatching(parts=count, first=0) if count > 1 else WHOLE_BATCH
        return strategy_and_micro_batching(model, candidate.hybrid.text, micro_batching=whole, pipeline=pipeline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A hybrid with its micro-batches, and a lower bound of its time."""

    hybrid: Hybrid
    micro_batches: int
    bound_s: float
    """Lower bound of the simulated iteration time."""

    @property
    def text(self) -> str:
        """Degrees, and micro-batches if there are some."""
        return self.hybrid.text + (f" with {self.micro_batches} micro-batches" if self.micro_batches > 1 else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHybrid:
    """Best hybrid of a search, with its plan and the certificate of the search."""

    candidate: Candidate
    strategy: Strategy
    micro_batching: MicroBatching
    simulated_s: float
    candidates: int
    """Number of hybrids whose memory bound fits."""
    replayed: int
    """Number of hybrids that were simulated."""
    rest_s: float
    """Least bound of the hybrids that were neither replayed nor pruned; infinity if the result is the best of all."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Account of the search in one line."""
        rest = "no other is faster"
        if math.isfinite(self.rest_s):
            rest = f"the others take at least {self.rest_s / MILLI:.4g} ms"
        return (
            f"{self.candidate.text} is the fastest of {self.replayed} uniform hybrids simulated, of {self.candidates} "
            f"that may fit in memory; {rest}",
        )


def search_hybrids(
    model: CostModel, request: HybridRequest | None = None, *, progress: Progress | None = None
) -> FoundHybrid:
    """Return the uniform hybrid with the shortest simulated iteration.

    Args:
        model: Costs of a network on a cluster; a hybrid uses a number of devices that divides the cluster's.
        request: What is searched; None: what the defaults say.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: ``replays`` < 1.
        InfeasiblePlanError: No hybrid that was lowered fits in memory.
    """
    request = request or HybridRequest()
    if request.replays < 1:
        raise ConfigError(f"replays must be >= 1, got {request.replays}")
    known, at_once = _by_bound(model, request), _ESTIMATES * request.replays
    best: tuple[float, Candidate, Strategy, MicroBatching] | None = None
    replayed, open_s = 0, math.inf
    for first in range(0, len(known), at_once):
        chunk = known[first : first + at_once]
        for _, candidate, strategy, micro_batching in _estimated(model, chunk, request):
            if best and candidate.bound_s >= best[0]:
                continue
            if replayed == request.replays:
                open_s = min(open_s, candidate.bound_s)
                continue
            if progress:
                progress(f"simulating {candidate.text}", replayed, request.replays)
            seconds = _replayed_s(model, strategy, micro_batching, request.recompute)
            replayed += math.isfinite(seconds)
            if math.isfinite(seconds) and (best is None or seconds < best[0]):
                best = seconds, candidate, strategy, micro_batching
        if best is not None:
            behind = (row.bound_s for row in known[first + at_once :])
            open_s = min([open_s, *behind])
            break
    if best is None:
        raise InfeasiblePlanError(f"none of {len(known)} hybrids fits in memory")
    return FoundHybrid(
        candidate=best[1],
        strategy=best[2],
        micro_batching=best[3],
        simulated_s=best[0],
        candidates=len(known),
        replayed=replayed,
        rest_s=open_s if open_s < best[0] else math.inf,
    )


def first_hybrids(model: CostModel) -> list[tuple[Strategy, MicroBatching]]:
    """Return the hybrids that ``search_hybrids`` simulates while none fits: it finds one if one of these fits.

    Args:
        model: Costs of a network on a cluster.
    """
    request = HybridRequest()
    estimated = _estimated(model, _by_bound(model, request)[: _ESTIMATES * REPLAYS], request)
    return [(strategy, micro_batching) for _, _, strategy, micro_batching in estimated[:REPLAYS]]


def _by_bound(model: CostModel, request: HybridRequest) -> list[Candidate]:
    """Return the hybrids whose memory bound fits, those first that may be the fastest."""
    return sorted(
        candidates_of(model, request), key=lambda row: (row.bound_s * row.hybrid.pipeline * _share(row), row.text)
    )


def candidates_of(model: CostModel, request: HybridRequest | None = None) -> list[Candidate]:
    """Return all hybrids that the batch and the layers allow and whose memory bound fits.

    Args:
        model: Costs of a network on a cluster.
        request: What is searched; None: what the defaults say.
    """
    request = request or HybridRequest()
    bounds, candidates = _Bounds(model, request.recompute), []
    for hybrid in _hybrids(len(model.cluster.devices), request):
        if hybrid.pipeline > (len(model.graph.layers) if request.stages else 1):
            continue
        try:
            check_hybrid(hybrid, model.graph, len(model.cluster.devices))
        except ConfigError:
            continue
        counts = _micro_batches(hybrid, model.graph.batch, request)
        for micro_batches, (seconds, size) in zip(counts, bounds.of(hybrid, counts), strict=True):
            if size <= bounds.capacity_bytes:
                candidates.append(Candidate(hybrid=hybrid, micro_batches=micro_batches, bound_s=seconds))
    return candidates


def _hybrids(devices: int, request: HybridRequest) -> Iterator[Hybrid]:
    """Yield all hybrids of the words of a request whose number of parts divides the number of devices."""
    words, divisors = (
        _ON_MESHES if request.mesh else _OFF_MESHES,
        [d for d in range(1, devices + 1) if devices % d == 0],
    )
    rows: list[tuple[int, ...]] = [()]
    for _ in words:
        rows = [(*row, d) for row in rows for d in divisors if devices % (math.prod(row) * d) == 0]
    stored = hybrid_of(request.words) if request.words else Hybrid()
    for row in rows:
        degrees: dict[str, Any] = dict(zip(words, row, strict=True))
        for sequence in (False, True) if degrees.get("tensor", 1) > 1 else (False,):
            hybrid = Hybrid(**degrees, sequence=sequence)
            yield replace(stored, **degrees, sequence=sequence) if _replicas(hybrid) > 1 else hybrid


def _replicas(hybrid: Hybrid) -> int:
    """Return the most parts that hold the same parameters of any layer."""
    return hybrid.data * hybrid.context * hybrid.expert * (hybrid.tensor if hybrid.sequence else 1)


def _micro_batches(hybrid: Hybrid, batch: int, request: HybridRequest) -> list[int]:
    """Return the numbers of micro-batches to try; they must divide the samples of each data-parallel replica."""
    samples = batch // hybrid.sample_parts
    counts = {k * hybrid.pipeline for k in _PER_STAGE} if hybrid.pipeline > 1 else {1}
    if request.mesh:
        counts |= {count for size in _SAMPLES if (count := samples // size) >= hybrid.pipeline}
    if request.micro_batches:
        counts = {request.micro_batches}
    return [count for count in sorted(counts) if samples % count == 0]


class _PartCosts(NamedTuple):
    """Costs of the first part of a layer."""

    each_s: float
    """Arithmetic of a micro-batch."""
    update_s: float
    made: float
    """Elements of the output of a micro-batch."""
    held: float
    """Elements of the parameters that it trains."""


class _Bounds:
    """Lower bounds from the parts that the first device of every group holds; equal parts are computed once.

    Args:
        model: Costs of a network on a cluster.
        recompute: As for ``planner.strategies.recomputation.recompute_of``.
    """

    def __init__(self, model: CostModel, recompute: str = "none") -> None:
        self.model, self.storage = model, model.conditions.storage
        policy = MemoryPolicy(optimizer=model.conditions.optimizer)
        self.kept_bytes = policy.kept_bytes(model.types, divided=self.storage.zero == STAGES[-1])
        self.capacity_bytes = max(device.usable_bytes for device in model.cluster.devices.kinds)
        graph, first = model.graph, dict[object, int]()
        self._alike = [
            first.setdefault(
                (layer.operation, layer.input_shapes, layer.output, *(graph.has_phase(i, p) for p in LAYER_PHASES)), i
            )
            for i, layer in enumerate(graph.layers)
        ]
        """First layer that computes the same, by layer."""
        segments = segments_of(graph, recompute_of(graph, recompute, WHOLE_BATCH), WHOLE_BATCH)
        self._kept = [segment < 0 and _is_kept(graph, i) for i, segment in enumerate(segments)]
        self._known: dict[tuple[object, ...], _PartCosts] = {}

    def of(self, hybrid: Hybrid, counts: Sequence[int]) -> Iterator[tuple[float, float]]:
        """Yield lower bounds of a device's arithmetic, in seconds, and of its peak memory, in bytes.

        With stages, the bound is the mean over them, which the largest stage is not below.

        Args:
            hybrid: The degrees.
            counts: Numbers of micro-batches.
        """
        group, split = tuple(range(hybrid.parts // hybrid.pipeline)), layer_split(hybrid, self.model.graph)
        parts = Counter(
            (alike, tuple(split(layer, group).degrees.items()), kept)
            for alike, kept, layer in zip(self._alike, self._kept, self.model.graph.layers, strict=True)
        )
        times = np.array([*parts.values()])
        shards = self.storage.shards(_replicas(hybrid)) if self.storage.divides else 1
        parameter, state = self.kept_bytes
        kept = parameter / (shards if self.storage.zero == STAGES[-1] else 1) + state / shards
        if hybrid.data * hybrid.context > 1:  # buffers in which replicas sum gradients
            kept += TYPE_BYTES[self.model.types.accumulation] / (shards if self.storage.zero > 1 else 1)
        for count in counts:
            rows = [self._layer(alike, degrees, count) for alike, degrees, _ in parts]
            each_s, once_s, made, held = (np.array(column) for column in zip(*rows, strict=True))
            busy = count * each_s + once_s / shards
            made = made * [kept for *_, kept in parts] * self.model.graph.element_bytes
            size = float(times @ (kept * held + made))
            yield max(float(times @ busy) / hybrid.pipeline, float(busy.max())), size / hybrid.pipeline

    def _layer(self, i: int, degrees: tuple[tuple[str, int], ...], micro_batches: int) -> _PartCosts:
        """Return the costs of the first part of a layer."""
        key = (i, degrees, micro_batches)
        if key not in self._known:
            graph, layer, split = self.model.graph, self.model.graph.layers[i], dict(degrees)
            part = {
                dim: size / split.get(dim, 1) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)
            }
            part["sample"] /= micro_batches
            slices = split.get(SUMMED, 1)
            sizes = {dim: np.array([size]) for dim, size in (part | ({SUMMED: slices} if slices > 1 else {})).items()}
            inner = graph.has_phase(i, "activation_gradient")
            seconds = {
                phase: min(
                    float(kernel_s(profile, graph.name, layer, phase, sizes, graph.element_bytes, inner=inner)[0])
                    for profile in self.model.profiles
                )
                if graph.has_phase(i, phase)
                else 0.0
                for phase in LAYER_PHASES
            }
            held = sum(
                p.elements / (math.prod(split.get(dim, 1) for dim in p.split) * slices if p.split else 1)
                for p in layer.parameters
            )
            made = math.prod(part.values()) / (slices if layer.operation.completes_sums else 1)
            update_s = seconds.pop("update")
            self._known[key] = _PartCosts(sum(seconds.values()), update_s, made, held)
        return self._known[key]


def _is_kept(graph: ComputationGraph, i: int) -> bool:
    """Return whether the output of a layer surely lies in memory until the backward pass.

    Products keep what they read; what else an imported layer keeps is for its recorded computation to say.
    """

    def keeps(layer: Layer) -> SavedTensors:
        """Return what a built-in layer keeps."""
        sizes = {dim: np.array([float(size)]) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
        return layer.operation.saved_tensors(Part(layer.input_shapes, layer.output, sizes))

    readers = [(graph.layers[edge.consumer], edge.consumer) for edge in graph.consumers[i]]
    products = [layer.summed_size > 0 and graph.has_phase(j, "weight_gradient") for layer, j in readers]
    built_in = [layer for layer, _ in readers if not isinstance(layer.operation, Mapped)]
    own = graph.layers[i]
    return (
        any(products)
        or any(keeps(each).inputs for each in built_in)
        or (not isinstance(own.operation, Mapped) and keeps(own).output)
    )


def _share(candidate: Candidate) -> float:
    """Return the share of the time of one device that a pipeline takes: of S stages (M + S - 1) / (M S).

    Source:
        Huang et al., "GPipe", NeurIPS 2019, for the idle share of a pipeline of M micro-batches.
    """
    count, stages = candidate.micro_batches, candidate.hybrid.pipeline
    return (count + stages - 1) / count / stages


def _estimated(
    model: CostModel, candidates: Sequence[Candidate], request: HybridRequest
) -> list[tuple[float, Candidate, Strategy, MicroBatching]]:
    """Return the candidates that are feasible, in the order of Eq. 1 with stages working in parallel.

    What replicas divide, and what is recomputed, does not change the order enough to lower each of them.
    """
    rows = []
    undivided = model.on(model.cluster, replace(model.conditions, storage=REPLICATED_STORAGE))
    for candidate in candidates:
        try:
            strategy, micro_batching = request.planned(model, candidate)
            on_meshes = any(each.mesh is not None for each in strategy.values())
            add_up = _on_meshes_s if on_meshes else additive_s
            total_s = add_up(undivided, strategy, micro_batching)
        except (ConfigError, InfeasiblePlanError):  # a stage does not fit, or micro-batches do not divide
            continue
        rows.append((total_s * _share(candidate), candidate, strategy, micro_batching))
    return sorted(rows, key=lambda row: (row[0], row[1].text))


def _on_meshes_s(model: CostModel, strategy: Strategy, micro_batching: MicroBatching) -> float:
    """Return Eq. 1 of a strategy on meshes, with all layers in micro-batches, from tables of one configuration each."""
    micro = model.for_batch(model.graph.batch // micro_batching.parts)
    spaces = micro.spaces_of(strategy)
    costs = [micro.node_costs(i, space) for i, space in enumerate(spaces)]
    once_s = sum(float((c.gradient_sync_s - c.statistics_s + c.phase_s["update"])[0]) for c in costs)
    each_s = strategy_cost(mesh_problem(micro, spaces), (0,) * len(spaces)) - once_s
    return micro_batching.parts * each_s + once_s


def _replayed_s(model: CostModel, strategy: Strategy, micro_batching: MicroBatching, recompute: str) -> float:
    """Return the simulated iteration time of a strategy; infinity if it does not fit in memory."""
    again = recompute_of(model.graph, recompute, micro_batching)
    try:
        program = lower_folded(model, model.spaces_of(strategy), micro_batching=micro_batching, recompute=again)
        check_plan_memory(program, peak_memory_bytes(program))
        return replay_that_fits(program).iteration_s
    except InfeasiblePlanError:
        return math.inf
