"""Pipeline strategies: each stage is a run of layers on devices of its own, micro-batches follow a schedule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.layouts.configurations import Configuration, Strategy
from planner.search.pipeline_stages import Layout, stage_bounds
from planner.strategies.degrees import Hybrid, hybrid_of, is_hybrid, layer_split, stage_groups
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.named_strategies import PIPELINE, named_strategy
from planner.strategies.pipeline_schedule import PIPELINE_SCHEDULES, PipelineSchedule
from planner.strategies.strategy_file import SUFFIXES

_PER_STAGE = 4
"""Micro-batches for every stage, with which the bubble is small (Huang et al., "GPipe", NeurIPS 2019, Sec. 2.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Request for a pipeline: its schedule, stages and micro-batches."""

    schedule: str = "1f1b"
    """One of ``planner.strategies.pipeline_schedule.PIPELINE_SCHEDULES``."""
    stages: int = 0
    """Number of stages; 0: as many as ``stage_at`` begins, else one a device, at most one a layer, and two a device
    for ``interleaved``."""
    micro_batches: int = 0
    """Number of micro-batches, which must divide the batch; 0: the most that do, up to four for every device in use."""
    stage_at: tuple[str, ...] = ()
    """First layers of the second and later stages; empty: stages are chosen so that the slowest takes least time."""
    recomputes: bool = False
    """Whether the backward pass computes activations again, so that stages do not hold those of all micro-batches."""


def has_stages(name: str) -> bool:
    """Return True if a strategy of that name or degrees is a pipeline, which has micro-batches of its own."""
    return name == PIPELINE or (is_hybrid(name) and not name.endswith(SUFFIXES) and hybrid_of(name).pipeline > 1)


def strategy_and_micro_batching(
    model: CostModel, name: str, *, micro_batching: MicroBatching = WHOLE_BATCH, pipeline: Pipeline | None = None
) -> tuple[Strategy, MicroBatching]:
    """Return a strategy that is not searched, by its name or degrees, and its micro-batching.

    Args:
        model: Costs of a network on a cluster.
        name: ``pipeline``, degrees with a pipeline among them, or a name for ``named_strategy``.
        micro_batching: Micro-batches of strategies that are not pipelines.
        pipeline: Request for a pipeline; None: defaults.

    Raises:
        ConfigError: As ``named_strategy`` and ``pipeline_strategy``.
        InfeasiblePlanError: As ``pipeline_strategy``.
    """
    if name == PIPELINE:
        return pipeline_strategy(model, pipeline or Pipeline())
    if has_stages(name):
        return _hybrid(model, hybrid_of(name), pipeline or Pipeline())
    return named_strategy(name, model.graph, len(model.cluster.devices), model.cluster), micro_batching


def micro_batch_parts(
    graph: ComputationGraph, name: str, devices: int, request: Pipeline | None = None
) -> tuple[ComputationGraph, Strategy]:
    """Return the parts that are computed for a micro-batch, in a pipeline wherever its stages begin.

    Args:
        graph: The network with its batch.
        name: Strategy that ``has_stages``, or another one whose micro-batches the request says.
        devices: Devices of the cluster.
        request: Stages, micro-batches and schedule; None: defaults.

    Returns:
        The network with the batch of a micro-batch, and a configuration for every layer as if all were in the first
        stage.

    Raises:
        ConfigError: The strategy cannot be had for this batch or so many devices.
    """
    request = request or Pipeline()
    count = request.micro_batches
    if count and graph.batch % count:
        raise ConfigError(f"micro_batches must be >= 1 and divide the batch of {graph.batch}, got {count}")
    if not has_stages(name):
        small = graph.with_batch(graph.batch // max(count, 1))
        return small, named_strategy(name, small, devices)
    if name == PIPELINE:
        groups = min(_stages(graph, request, devices), devices)
        small = graph.with_batch(graph.batch // (count or _micro_batches(graph.batch, groups, request.schedule)))
        return small, {layer.name: _whole(layer, (0,)) for layer in small.layers}
    hybrid = hybrid_of(name).filled(devices)
    first = stage_groups(hybrid, graph, devices)[0]
    count = count or _micro_batches(graph.batch // hybrid.sample_parts, hybrid.pipeline, request.schedule)
    small = graph.with_batch(graph.batch // count)
    split = layer_split(hybrid, graph)
    return small, {layer.name: split(layer, first) for layer in small.layers}


def _hybrid(model: CostModel, hybrid: Hybrid, request: Pipeline) -> tuple[Strategy, MicroBatching]:
    """Return a pipeline whose stages are split by the other degrees of a hybrid."""
    hybrid = hybrid.filled(len(model.cluster.devices))
    graph, stages = model.graph, hybrid.pipeline
    groups = stage_groups(hybrid, graph, len(model.cluster.devices), model.cluster)
    if request.schedule != "interleaved":
        if request.stages not in (0, stages):
            raise ConfigError(f"stages must be those of {hybrid.text}, {stages}, got {request.stages}")
        request = replace(request, stages=stages)
    if not request.micro_batches:  # each is split over the samples in turn
        samples = graph.batch // hybrid.sample_parts
        request = replace(request, micro_batches=_micro_batches(samples, stages, request.schedule))
    return pipeline_strategy(model, request, groups=groups, layout=layer_split(hybrid, graph))


def pipeline_strategy(
    model: CostModel, request: Pipeline, *, groups: Sequence[Sequence[int]] = (), layout: Layout | None = None
) -> tuple[Strategy, MicroBatching]:
    """Assign stages to groups of devices: one stage to each of the first groups, or, interleaved, to all in turn.

    Args:
        model: Costs of a network on a cluster.
        request: Stages, micro-batches and schedule.
        groups: Devices of each group; empty: every device is a group.
        layout: Split of a layer over the devices of its stage; None: the layer is whole on the first device.

    Returns:
        A configuration for every layer, and micro-batching with the stages.

    Raises:
        ConfigError: An unknown schedule or layer, more stages than layers or groups, stages that the groups of an
            interleaved schedule do not divide, or micro-batches that do not divide the batch.
        InfeasiblePlanError: No partition into so many stages fits in memory.
    """
    graph, stage_devices = model.graph, groups or [(device,) for device in range(len(model.cluster.devices))]
    split = layout or _whole
    if request.schedule not in PIPELINE_SCHEDULES:
        hint = did_you_mean(request.schedule, PIPELINE_SCHEDULES)
        raise ConfigError(f"schedule must be one of {', '.join(PIPELINE_SCHEDULES)}, got {request.schedule!r}{hint}")
    stages = _stages(graph, request, len(stage_devices))
    group_of = tuple(stage % len(stage_devices) for stage in range(stages))
    micro_batches = request.micro_batches or _micro_batches(graph.batch, max(group_of) + 1, request.schedule)
    if micro_batches < 1 or graph.batch % micro_batches:
        raise ConfigError(f"micro_batches must be >= 1 and divide the batch of {graph.batch}, got {micro_batches}")
    schedule = PipelineSchedule(kind=request.schedule, micro_batches=micro_batches, groups=group_of)
    if request.stage_at:
        starts: tuple[int, ...] = (0, *(_index(graph, name) for name in request.stage_at))
        if any(a >= b for a, b in pairwise(starts)):
            raise ConfigError(f"stage_at must name later layers one after another, got {', '.join(request.stage_at)}")
    else:
        starts = stage_bounds(model, stage_devices, split, schedule, recomputes=request.recomputes)[:-1]
    micro_batching = MicroBatching(parts=micro_batches, order=request.schedule, stages=starts)
    return {
        layer.name: split(layer, stage_devices[group_of[micro_batching.stage_of(i)]])
        for i, layer in enumerate(graph.layers)
    }, micro_batching


def _stages(graph: ComputationGraph, request: Pipeline, devices: int) -> int:
    """Return the number of stages on ``devices`` devices or groups, after checking the request."""
    interleaved, layers = request.schedule == "interleaved", len(graph.layers)
    named = len(request.stage_at) + 1 if request.stage_at else 0
    if named and request.stages not in (0, named):
        raise ConfigError(f"stages must be the {named} that stage_at begins, got {request.stages}")
    stages = request.stages or named or (2 * devices if interleaved else min(devices, layers))
    if not 1 <= stages <= layers:
        raise ConfigError(f"stages must be 1 to the {layers} layers of {graph.name}, got {stages}")
    if interleaved and stages % devices:
        raise ConfigError(
            f"stages must be a multiple of the {devices} devices of an interleaved pipeline, got {stages}"
        )
    if not interleaved and stages > devices:
        raise ConfigError(f"stages must be at most the {devices} devices for {request.schedule}, got {stages}")
    return stages


def _micro_batches(batch: int, devices: int, schedule: str) -> int:
    """Return the most micro-batches that divide the batch, up to ``_PER_STAGE`` for every device."""
    step = devices if schedule == "interleaved" else 1
    fitting = [count for count in range(step, _PER_STAGE * devices + 1, step) if batch % count == 0]
    if not fitting:
        raise ConfigError(f"batch must be a multiple of the {devices} devices for an interleaved pipeline, got {batch}")
    return fitting[-1]


def _index(graph: ComputationGraph, name: str) -> int:
    """Return the index of a layer that begins a stage."""
    if name not in graph.index:
        raise ConfigError(f"stage_at must name layers of {graph.name}, got {name!r}")
    return graph.index[name]


def _whole(layer: Layer, devices: Sequence[int]) -> Configuration:
    """Return the configuration of an undivided layer on the first device."""
    return Configuration(dict.fromkeys(layer.parallel_dims, 1), (devices[0],))
