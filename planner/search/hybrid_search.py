"""Search over uniform hybrids: all degrees of pipeline, data, spatial and filter parallelism, and micro-batches.

On a mesh degrees of tensor, sequence, expert and context parallelism stand in the place of spatial and filter ones, and
gradients may be added up over micro-batches.  What replicas divide and what is recomputed is given, not searched.
Every hybrid has two lower bounds that need no lowering: arithmetic and memory of the first device of a group, which
holds a part of every layer.  Hybrids whose memory bound does not fit are left out, and those that cannot be faster
than the best one so far are pruned; the others are replayed in the order of an estimate, up to a number and an amount
of work: the additive cost (Eq. 1) with stages working in parallel, on meshes less what the backward pass may hide.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, starmap
from typing import Any, NamedTuple

import numpy as np

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.progress import Progress
from groundwork.units import MILLI
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES, ComputationGraph, Layer
from planner.graph.operation import SavedTensors
from planner.graph.shapes import SUMMED
from planner.graph.type_roles import TYPE_BYTES
from planner.layouts.configurations import Strategy, space_of
from planner.layouts.storage import REPLICATED_STORAGE, STAGES
from planner.lowering.alike_replicas import lower_folded
from planner.lowering.program import Program
from planner.memory.memory_policy import MemoryPolicy
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.operations.base import Part
from planner.operations.mapped import Mapped
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.simulation.additive_cost import additive_s
from planner.simulation.memory_over_time import replay_that_fits
from planner.strategies.degrees import Hybrid, check_hybrid, hybrid_of, layer_split, mesh_splits, stage_groups
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.recomputation import drops_most, recompute_of, segments_of
from planner.strategies.zigzag import in_zigzag

REPLAYS = 12
"""Hybrids that are replayed by default."""
_ESTIMATES = 4
"""Hybrids that are estimated for each that may be replayed."""
_OFF_MESHES = ("pipeline", "data", "spatial", "filter")
_ON_MESHES = ("tensor", "expert", "context", "data", "pipeline")
"""Degrees that are searched; on meshes those that decide how layers are split vary last."""
_BESIDE = {"sequence": "tensor", "slicing": "tensor", "ulysses": "context", "zigzag": "context"}
"""Words that are searched beside a degree on meshes."""
_MOST_WORK = 3_000_000
"""Parts of layers in micro-batches that all replays together may compute, but for the first one: about a minute."""
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
        model, count = in_order_of(model, candidate.hybrid), candidate.micro_batches
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
    bounds, at_once = _Bounds(model, request.recompute, request.schedule), _ESTIMATES * request.replays
    known = _by_bound(model, request, bounds)
    best: tuple[float, Candidate, Strategy, MicroBatching] | None = None
    replayed, work, open_s = 0, 0, math.inf
    for first in range(0, len(known), at_once):
        chunk = known[first : first + at_once]
        for candidate in _estimated(model, chunk, request, bounds):
            if best and candidate.bound_s >= best[0]:
                continue
            own = _work(model, candidate)
            if replayed == request.replays or (best and work + own > _MOST_WORK):
                open_s = min(open_s, candidate.bound_s)
                continue
            if progress:
                progress(f"simulating {candidate.text}", replayed, request.replays)
            try:
                strategy, micro_batching = request.planned(model, candidate)
            except (ConfigError, InfeasiblePlanError):  # a stage does not fit, or micro-batches do not divide
                continue
            ordered = in_order_of(model, candidate.hybrid)
            seconds, work = _replayed_s(ordered, strategy, micro_batching, request.recompute), work + own
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
    request, bounds = HybridRequest(), _Bounds(model)
    estimated = _estimated(model, _by_bound(model, request, bounds)[: _ESTIMATES * REPLAYS], request, bounds)
    return [request.planned(model, candidate) for candidate in estimated[:REPLAYS]]


def _by_bound(model: CostModel, request: HybridRequest, bounds: "_Bounds") -> list[Candidate]:
    """Return the hybrids whose memory bound fits, those first that may be the fastest."""
    return sorted(
        candidates_of(model, request, bounds),
        key=lambda row: (row.bound_s * row.hybrid.pipeline * _share(row), row.text),
    )


def candidates_of(
    model: CostModel, request: HybridRequest | None = None, bounds: "_Bounds | None" = None
) -> list[Candidate]:
    """Return all hybrids that the batch and the layers allow and whose memory bound fits.

    Args:
        model: Costs of a network on a cluster.
        request: What is searched; None: what the defaults say.
        bounds: Those of the model for this request, with the parts that are priced already; None: new ones.
    """
    request = request or HybridRequest()
    bounds = bounds or _Bounds(model, request.recompute, request.schedule)
    hybrids = list[tuple[Hybrid, list[int]]]()
    for hybrid in _hybrids(model.graph, len(model.cluster.devices), request):
        if hybrid.pipeline > (len(model.graph.layers) if request.stages else 1):
            continue
        try:
            check_hybrid(hybrid, model.graph, len(model.cluster.devices))
        except ConfigError:
            continue
        if hybrids and hybrids[-1][0] == replace(hybrid, zigzag=False):
            hybrids.pop()  # the order of the positions makes work equal, and messages are the same
        hybrids.append((hybrid, _micro_batches(hybrid, model.graph.batch, request)))
    bounds.price(hybrids)
    return [
        Candidate(hybrid=hybrid, micro_batches=micro_batches, bound_s=seconds)
        for hybrid, counts in hybrids
        for micro_batches, (seconds, size) in zip(counts, bounds.of(hybrid, counts), strict=True)
        if size <= bounds.capacity_bytes
    ]


def _hybrids(graph: ComputationGraph, devices: int, request: HybridRequest) -> Iterator[Hybrid]:
    """Yield all hybrids of the words of a request whose number of parts divides the number of devices."""
    experts = any(layer.operation.has_experts for layer in graph.layers)
    words = [word for word in (_ON_MESHES if request.mesh else _OFF_MESHES) if word != "expert" or experts]
    beside = {word: axis for word, axis in _BESIDE.items() if word != "slicing" or experts}
    divisors = [d for d in range(1, devices + 1) if devices % d == 0]
    rows: list[tuple[int, ...]] = [()]
    for _ in words:
        rows = [(*row, d) for row in rows for d in divisors if devices % (math.prod(row) * d) == 0]
    stored = hybrid_of(request.words) if request.words else Hybrid()
    for row in rows:
        degrees: dict[str, Any] = dict(zip(words, row, strict=True))
        for flags in product(*((False, True) if degrees.get(axis, 1) > 1 else (False,) for axis in beside.values())):
            values = degrees | dict(zip(beside, flags, strict=True))
            hybrid = Hybrid(**values)
            yield replace(stored, **values) if _replicas(hybrid) > 1 else hybrid


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


_Priced = tuple[int, tuple[tuple[str, int], ...], int, int]
"""A layer, its degrees, the number of micro-batches, and parts in whose zigzag order positions lie."""


class _Bounds:
    """Lower bounds from the parts that the first device of every group holds; equal parts are computed once.

    Args:
        model: Costs of a network on a cluster.
        recompute: As for ``planner.strategies.recomputation.recompute_of``.
        schedule: That of pipelines.
    """

    def __init__(self, model: CostModel, recompute: str = "none", schedule: str = "1f1b") -> None:
        self.schedule = schedule
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
        self._layers: dict[Hybrid, tuple[int, ...]] = {}
        self._known: dict[_Priced, _PartCosts] = {}

    def _parts(self, hybrid: Hybrid) -> Counter[tuple[int, tuple[tuple[str, int], ...], bool]]:
        """Return how many layers have each part: the first layer that is alike, its degrees, whether it is kept."""
        group, split = tuple(range(hybrid.parts // hybrid.pipeline)), layer_split(hybrid, self.model.graph)
        parts = Counter[tuple[int, tuple[tuple[str, int], ...], bool]]()
        for (i, kept), count in Counter(zip(self.split_alike(hybrid), self._kept, strict=True)).items():
            parts[self._alike[i], tuple(split(self.model.graph.layers[i], group).degrees.items()), kept] += count
        return parts

    def split_alike(self, hybrid: Hybrid) -> tuple[int, ...]:
        """Return the first layer that is alike and split alike, by layer: the same for any number of replicas."""
        inner = replace(hybrid, data=1, pipeline=1, zero=0, hsdp=0, fsdp=False, gathered=False)
        if inner not in self._layers:
            graph, first = self.model.graph, dict[object, int]()
            splits = mesh_splits(inner, graph).values() if inner.on_mesh else ()
            keys = (
                (alike, layer.reads_data, *(split[layer.name] for split in splits))
                for alike, layer in zip(self._alike, graph.layers, strict=True)
            )
            self._layers[inner] = tuple(first.setdefault(key, i) for i, key in enumerate(keys))
        return self._layers[inner]

    def _prices(self, hybrid: Hybrid, count: int) -> Iterator[_Priced]:
        """Yield what the parts of a hybrid are priced by, in the order of ``_parts``."""
        parts = hybrid.context if hybrid.zigzag else 1
        return ((i, degrees, count, parts) for i, degrees, _ in self._parts(hybrid))

    def price(self, hybrids: Iterable[tuple[Hybrid, Sequence[int]]]) -> None:
        """Price the parts of hybrids with numbers of micro-batches: those of a layer at once.

        Args:
            hybrids: The hybrids, each with its numbers of micro-batches.
        """
        keys = (key for hybrid, counts in hybrids for count in counts for key in self._prices(hybrid, count))
        unpriced = defaultdict[tuple[int, int], list[_Priced]](list)
        for key in dict.fromkeys(keys):
            if key not in self._known:
                unpriced[key[0], key[-1]].append(key)
        for layer, rows in unpriced.items():
            self._known |= zip(rows, self._costs(*layer, rows), strict=True)

    def of(self, hybrid: Hybrid, counts: Sequence[int]) -> Iterator[tuple[float, float]]:
        """Yield lower bounds of a device's arithmetic, in seconds, and of its peak memory, in bytes.

        With stages, the bound is the mean over them, which the largest stage is not below.

        Args:
            hybrid: The degrees.
            counts: Numbers of micro-batches.
        """
        self.price([(hybrid, counts)])
        parts = self._parts(hybrid)
        times = np.array([*parts.values()])
        shards = self.storage.shards(_replicas(hybrid)) if self.storage.divides else 1
        parameter, state = self.kept_bytes
        kept = parameter / (shards if self.storage.zero == STAGES[-1] else 1) + state / shards
        if hybrid.data * hybrid.context > 1:  # buffers in which replicas sum gradients
            kept += TYPE_BYTES[self.model.types.accumulation] / (shards if self.storage.zero > 1 else 1)
        for count in counts:
            rows = [self._known[key] for key in self._prices(hybrid, count)]
            each_s, once_s, made, held = (np.array(column) for column in zip(*rows, strict=True))
            busy = count * each_s + once_s / shards
            made = made * [kept for *_, kept in parts] * self.model.graph.element_bytes
            sizes = float(times @ (kept * held)), float(times @ made)
            size = _fullest_stage(*sizes, self._in_flight(hybrid.pipeline, count))
            yield max(float(times @ busy) / hybrid.pipeline, float(busy.max())), size

    def _in_flight(self, stages: int, count: int) -> list[int]:
        """Return micro-batches whose tensors the device of each stage surely holds at once, with gradients."""
        if self.schedule == "gpipe":
            return [max(count - 1, 1)] * stages
        known = self.schedule == "1f1b"
        return [max(min(count - 1, stages - stage), 1) if known else 1 for stage in range(stages)]

    def _costs(self, i: int, zigzag: int, rows: Sequence[_Priced]) -> Iterator[_PartCosts]:
        """Yield the costs of the first part of a layer for each of some degrees and numbers of micro-batches."""
        graph = in_zigzag(self.model.graph, zigzag)
        layer, given = graph.layers[i], [dict(degrees) for _, degrees, *_ in rows]
        split = {dim: np.array([degrees.get(dim, 1) for degrees in given]) for dim in (*layer.output.dims, SUMMED)}
        part = {dim: size / split[dim] for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
        part["sample"] /= np.array([count for *_, count, _ in rows])
        slices = split[SUMMED]
        sizes = part | ({SUMMED: slices} if (slices > 1).any() else {})
        inner = graph.has_phase(i, "activation_gradient")
        seconds = {
            phase: np.min(
                [
                    kernel_s(profile, graph.name, layer, phase, sizes, graph.element_bytes, inner=inner)
                    for profile in self.model.profiles
                ],
                axis=0,
            )
            if graph.has_phase(i, phase)
            else np.zeros(len(rows))
            for phase in LAYER_PHASES
        }
        held = np.zeros(len(rows))
        for p in layer.parameters:
            divided = math.prod((split.get(dim, 1) for dim in p.split), start=slices) if p.split else 1
            held += p.elements / divided
        made = math.prod(part.values()) / (slices if layer.operation.completes_sums else 1)
        update_s = seconds.pop("update")
        each_s = sum(seconds.values(), np.zeros(len(rows)))
        return starmap(_PartCosts, zip(each_s, update_s, np.asarray(made), held, strict=True))


def _fullest_stage(parameters: float, tensors: float, in_flight: Sequence[int]) -> float:
    """Return a lower bound of the bytes of the fullest stage, wherever stages begin.

    The bytes of stage k are p_k + n_k a_k.  Whatever the weights w_k > 0, the mean of the stages with these weights is
    not above the fullest one, and not below (min(w) P + min(w n) A) / sum(w): 1 / n_k, but no less than some 1 / n, is
    tried for all n.

    Args:
        parameters: Bytes P of parameters, gradients and optimizer state of all stages.
        tensors: Bytes A that a micro-batch keeps for the backward pass, of all stages.
        in_flight: Micro-batches n_k that each stage holds.
    """
    held = np.array(in_flight, dtype=np.float64)
    weights = np.maximum(1 / held, 1 / np.unique(held)[:, None])
    least = weights.min(axis=1) * parameters + (weights * held).min(axis=1) * tensors
    return float((least / weights.sum(axis=1)).max())


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


def in_order_of(model: CostModel, hybrid: Hybrid) -> CostModel:
    """Return the costs of a network with its positions in the order that a hybrid gives them."""
    return model.in_zigzag(hybrid.context) if hybrid.zigzag else model


def _work(model: CostModel, candidate: Candidate) -> int:
    """Return the parts of layers that a replay computes, in all micro-batches, of one of the replicas."""
    hybrid = candidate.hybrid
    return len(model.graph.layers) * candidate.micro_batches * (hybrid.parts // hybrid.pipeline // hybrid.data)


def _estimated(
    model: CostModel, candidates: Sequence[Candidate], request: HybridRequest, bounds: "_Bounds"
) -> list[Candidate]:
    """Return the candidates that may be feasible, in the order of Eq. 1 with stages working in parallel.

    What replicas divide, and what is recomputed, does not change the order enough to lower each of them.
    """
    rows = []
    undivided = model.on(model.cluster, replace(model.conditions, storage=REPLICATED_STORAGE))
    for candidate in candidates:
        try:
            if request.mesh:
                alike = bounds.split_alike(candidate.hybrid)
                total_s = mesh_estimate_s(in_order_of(undivided, candidate.hybrid), candidate, alike)
            else:
                total_s = additive_s(undivided, *request.planned(model, candidate))
        except (ConfigError, InfeasiblePlanError):  # a stage does not fit, or micro-batches do not divide
            continue
        rows.append((total_s * _share(candidate), candidate.text, candidate))
    return [candidate for *_, candidate in sorted(rows, key=lambda row: row[:2])]


def mesh_estimate_s(model: CostModel, candidate: Candidate, alike: Sequence[int]) -> float:
    """Return an estimate of the time of a candidate on meshes, as if all layers were in the first stage.

    It is Eq. 1 with all layers in micro-batches, but for the synchronisation of gradients that the backward pass of the
    last micro-batch may hide.

    Args:
        model: Costs of a network on a cluster.
        candidate: The hybrid.
        alike: First layer that is alike and split alike, by layer.
    """
    micro, hybrid = model.for_batch(model.graph.batch // candidate.micro_batches), candidate.hybrid
    graph, count, split = micro.graph, len(model.cluster.devices), layer_split(hybrid, model.graph)
    devices, *_ = stage_groups(hybrid, model.graph, count, model.cluster)
    spaces = {i: space_of(graph.layers[i], split(graph.layers[i], devices), count) for i in set(alike)}
    each_s = sync_s = update_s = hides_s = 0.0
    for i, times in Counter(alike).items():
        costs = micro.node_costs(i, spaces[i])
        synced_s, updated_s = costs.gradient_sync_s - costs.statistics_s, costs.phase_s["update"]
        sync_s, update_s = sync_s + times * float(synced_s[0]), update_s + times * float(updated_s[0])
        each_s += times * float((costs.total_s - synced_s - updated_s)[0])
        hides_s += times * float((costs.compute_s - costs.phase_s["forward"])[0])
    first = dict[object, int]()
    tensors = Counter(
        first.setdefault((alike[i], *((alike[edge.consumer], edge.slot) for edge in edges)), i)
        for i, edges in enumerate(graph.outgoing)
        if edges
    )
    for (i, times), backward in product(tensors.items(), (False, True)):
        needed = dict[int, float]()  # one transfer for readers of one layout
        for edge in graph.outgoing[i]:
            ends = spaces[alike[i]], spaces[alike[edge.consumer]]
            table = micro.transfer_times.layout_table(edge, *ends, backward=backward)
            needed[int(table.layout[0])] = float(table.seconds[0, 0])
        each_s += times * sum(needed.values())
    return candidate.micro_batches * each_s + update_s + max(sync_s - hides_s, 0.0)


def _replayed_s(model: CostModel, strategy: Strategy, micro_batching: MicroBatching, recompute: str) -> float:
    """Return the simulated iteration time of a strategy; infinity if it does not fit in memory."""

    def lowered(parts: int) -> Program:
        """Return the program of so many micro-batches, which fits in memory."""
        priced = model.for_batch(model.graph.batch // micro_batching.parts * parts)
        divided = replace(micro_batching, parts=parts)
        again = recompute_of(priced.graph, recompute, divided)
        program = lower_folded(priced, priced.spaces_of(strategy), micro_batching=divided, recompute=again)
        check_plan_memory(program, peak_memory_bytes(program))
        return program

    few = 2 * len(micro_batching.starts)
    try:
        if micro_batching.parts > 2 * few:  # few micro-batches of this size need no more memory, and are soon lowered
            lowered(few)
        return replay_that_fits(lowered(micro_batching.parts)).iteration_s
    except InfeasiblePlanError:
        return math.inf
