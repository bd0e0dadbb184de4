"""Search over uniform hybrids: all degrees of pipeline, data, spatial and filter parallelism, and micro-batches.

On a mesh degrees of tensor, sequence, expert and context parallelism stand in the place of spatial and filter ones.
Every hybrid has two lower bounds that need no lowering: arithmetic and memory of the first device of a group, which
holds a part of every layer.  Hybrids whose memory bound does not fit are left out, and those that cannot be faster
than the best one so far are pruned; the others are replayed in the order of an estimate: the additive cost (Eq. 1)
with stages working in parallel.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groundwork.errors import ConfigError, InfeasiblePlanError
from groundwork.progress import Progress
from groundwork.units import MILLI
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Strategy
from planner.lowering.lower_strategy import lower
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.parallel.degrees import Hybrid, check_hybrid, layer_split
from planner.parallel.micro_batches import MicroBatching
from planner.search.pipeline_strategy import Pipeline, strategy_and_micro_batching
from planner.simulation.additive_cost import additive_s
from planner.simulation.memory_over_time import replay_that_fits

HYBRID = "hybrid"
"""Name of the strategy that this search finds."""
REPLAYS = 12
"""Hybrids that are replayed by default."""
_ESTIMATES = 4
"""Hybrids that are estimated for each that may be replayed."""
_ALWAYS_KEPT = 2
"""Copies of a parameter that are allocated throughout: value and momentum."""
_OFF_MESHES = ("pipeline", "data", "spatial", "filter")
_ON_MESHES = ("pipeline", "data", "context", "expert", "tensor")
"""Degrees that are searched."""
_PER_STAGE = (1, 2, 4)
"""Numbers of micro-batches that are tried, per stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A hybrid with its micro-batches, and a lower bound of its time."""

    hybrid: Hybrid
    micro_batches: int
    bound_s: float
    """Lower bound of the simulated iteration time."""

    @property
    def text(self) -> str:
        """Degrees, and micro-batches if there are stages."""
        return self.hybrid.text + (f" with {self.micro_batches} micro-batches" if self.hybrid.pipeline > 1 else "")


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
    model: CostModel,
    *,
    replays: int = REPLAYS,
    stages: bool = True,
    mesh: bool = False,
    progress: Progress | None = None,
) -> FoundHybrid:
    """Return the uniform hybrid with the shortest simulated iteration.

    Args:
        model: Costs of a network on a cluster; a hybrid uses a number of devices that divides the cluster's.
        replays: Most hybrids to replay, >= 1.
        stages: True to include pipelines.
        mesh: True for the axes of meshes in place of splits of positions and output channels.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: ``replays`` < 1.
        InfeasiblePlanError: No hybrid that was replayed fits in memory.
    """
    if replays < 1:
        raise ConfigError(f"replays must be >= 1, got {replays}")
    known = _by_bound(model, stages=stages, mesh=mesh)
    estimated = _estimated(model, known[: _ESTIMATES * replays])
    best: tuple[float, Candidate, Strategy, MicroBatching] | None = None
    tried: set[str] = set()
    for _, candidate, strategy, micro_batching in estimated:
        if len(tried) == replays:
            break
        if best and candidate.bound_s >= best[0]:
            continue
        if progress:
            progress(f"simulating {candidate.text}", len(tried), min(replays, len(estimated)))
        tried.add(candidate.text)
        seconds = _replayed_s(model, strategy, micro_batching)
        if best is None or seconds < best[0]:
            best = seconds, candidate, strategy, micro_batching
    if best is None or not math.isfinite(best[0]):
        raise InfeasiblePlanError(f"none of {len(tried)} hybrids simulated, of {len(known)}, fits in memory")
    impossible = {row.text for row in known[: _ESTIMATES * replays]} - {row[1].text for row in estimated}
    rest = [row.bound_s for row in known if row.text not in tried | impossible and row.bound_s < best[0]]
    return FoundHybrid(
        candidate=best[1],
        strategy=best[2],
        micro_batching=best[3],
        simulated_s=best[0],
        candidates=len(known),
        replayed=len(tried),
        rest_s=min(rest, default=math.inf),
    )


def first_hybrids(model: CostModel) -> list[tuple[Strategy, MicroBatching]]:
    """Return the hybrids that ``search_hybrids`` simulates while none fits: it finds one if one of these fits.

    Args:
        model: Costs of a network on a cluster.
    """
    estimated = _estimated(model, _by_bound(model)[: _ESTIMATES * REPLAYS])
    return [(strategy, micro_batching) for _, _, strategy, micro_batching in estimated[:REPLAYS]]


def _by_bound(model: CostModel, *, stages: bool = True, mesh: bool = False) -> list[Candidate]:
    """Return the hybrids whose memory bound fits, those first that may be the fastest."""
    return sorted(candidates_of(model, stages=stages, mesh=mesh), key=lambda row: (row.bound_s, row.text))


def candidates_of(model: CostModel, *, stages: bool = True, mesh: bool = False) -> list[Candidate]:
    """Return all hybrids that the batch and the layers allow and whose memory bound fits.

    Args:
        model: Costs of a network on a cluster.
        stages: True to include pipelines.
        mesh: True for the axes of meshes in place of splits of positions and output channels.
    """
    bounds, candidates = _Bounds(model), []
    for hybrid in _hybrids(len(model.cluster.devices), _ON_MESHES if mesh else _OFF_MESHES):
        if hybrid.pipeline > (len(model.graph.layers) if stages else 1):
            continue
        try:
            check_hybrid(hybrid, model.graph, len(model.cluster.devices))
        except ConfigError:
            continue
        for micro_batches in _micro_batches(hybrid, model.graph.batch):
            seconds, size = bounds.of(hybrid, micro_batches)
            if size <= bounds.capacity_bytes:
                candidates.append(Candidate(hybrid=hybrid, micro_batches=micro_batches, bound_s=seconds))
    return candidates


def _hybrids(devices: int, words: Sequence[str]) -> Iterator[Hybrid]:
    """Yield all hybrids of these words whose number of parts divides the number of devices."""
    divisors = [d for d in range(1, devices + 1) if devices % d == 0]
    rows: list[tuple[int, ...]] = [()]
    for _ in words:
        rows = [(*row, d) for row in rows for d in divisors if devices % (math.prod(row) * d) == 0]
    for row in rows:
        degrees: dict[str, Any] = dict(zip(words, row, strict=True))
        yield Hybrid(**degrees)
        if degrees.get("tensor", 1) > 1:
            yield Hybrid(**degrees, sequence=True)


def _micro_batches(hybrid: Hybrid, batch: int) -> list[int]:
    """Return the numbers of micro-batches to try; they must divide the samples of each data-parallel replica."""
    if hybrid.pipeline == 1:
        return [1]
    samples = batch // hybrid.sample_parts
    return [n for n in (k * hybrid.pipeline for k in _PER_STAGE) if samples % n == 0]


class _Bounds:
    """Lower bounds from the parts that the first device of every group holds; equal parts are computed once."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self.capacity_bytes = max(device.usable_bytes for device in model.cluster.devices.kinds)
        self._known: dict[tuple[object, ...], tuple[float, float, float]] = {}

    def of(self, hybrid: Hybrid, micro_batches: int) -> tuple[float, float]:
        """Return lower bounds of a device's arithmetic, in seconds, and of its peak memory, in bytes.

        With stages, the bound is the mean over them, which the largest stage is not below.
        """
        group, rows = tuple(range(hybrid.parts // hybrid.pipeline)), []
        split = layer_split(hybrid, self.model.graph)
        for i, layer in enumerate(self.model.graph.layers):
            degrees = split(layer, group).degrees
            rows.append(self._layer(i, tuple(degrees.items()), micro_batches))
        each_s, once_s, size = (np.array(column) for column in zip(*rows, strict=True))
        busy = micro_batches * each_s + once_s
        return max(float(busy.sum()) / hybrid.pipeline, float(busy.max())), float(size.sum()) / hybrid.pipeline

    def _layer(self, i: int, degrees: tuple[tuple[str, int], ...], micro_batches: int) -> tuple[float, float, float]:
        """Return the costs of a layer's part: seconds of a micro-batch, seconds of the update, and bytes allocated.

        The bytes are those of the output of one micro-batch and of parameters with momentum.
        """
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
            held = sum(p.elements / (split.get("channel", 1) * slices if p.split else 1) for p in layer.parameters)
            made = math.prod(part.values()) / (slices if layer.operation.completes_sums else 1)
            size = (made + _ALWAYS_KEPT * held) * graph.element_bytes
            update_s = seconds.pop("update")
            self._known[key] = sum(seconds.values()), update_s, size
        return self._known[key]


def _estimated(
    model: CostModel, candidates: Sequence[Candidate]
) -> list[tuple[float, Candidate, Strategy, MicroBatching]]:
    """Return the candidates that are feasible, in the order of Eq. 1 with stages working in parallel.

    With M micro-batches on S equal stages a pipeline takes (M + S - 1) / (M S) of the time of one device.

    Source:
        Huang et al., "GPipe", NeurIPS 2019, for the idle share of a pipeline.
    """
    rows = []
    for candidate in candidates:
        stages = candidate.hybrid.pipeline
        pipeline = Pipeline(micro_batches=candidate.micro_batches) if stages > 1 else None
        try:
            strategy, micro_batching = strategy_and_micro_batching(model, candidate.hybrid.text, pipeline=pipeline)
            total_s = additive_s(model, strategy, micro_batching)
        except (ConfigError, InfeasiblePlanError):  # a stage does not fit, or micro-batches do not divide
            continue
        share = (candidate.micro_batches + stages - 1) / candidate.micro_batches / stages
        rows.append((total_s * share, candidate, strategy, micro_batching))
    return sorted(rows, key=lambda row: (row[0], row[1].text))


def _replayed_s(model: CostModel, strategy: Strategy, micro_batching: MicroBatching) -> float:
    """Return the simulated iteration time of a strategy; infinity if it does not fit in memory."""
    try:
        program = lower(model, model.spaces_of(strategy), micro_batching=micro_batching)
        check_plan_memory(program, peak_memory_bytes(program))
        return replay_that_fits(program).iteration_s
    except InfeasiblePlanError:
        return math.inf
