"""The strategy ``pipeline``: a run of layers a device, micro-batches, and a schedule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hwprofiles import ConfigError
from planner.cost import CostModel
from planner.graph import ComputationGraph, Layer
from planner.parallel import (
    PIPELINE,
    PIPELINE_SCHEDULES,
    SUFFIXES,
    WHOLE_BATCH,
    Configuration,
    Hybrid,
    MicroBatching,
    PipelineSchedule,
    Strategy,
    hybrid_of,
    is_hybrid,
    named_strategy,
    split_layer,
    stage_groups,
)
from planner.search.pipeline_stages import Layout, stage_bounds

__all__ = [
    "Pipeline",
    "has_stages",
    "micro_batch_parts",
    "pipeline_strategy",
    "strategy_and_micro_batching",
]

_A_STAGE = 4
"""Micro-batches for every stage: with so many, little time is lost in the bubble (GPipe, NeurIPS 2019, Sec. 2.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What is asked of a pipeline."""

    schedule: str = "1f1b"
    """One of ``planner.parallel.pipeline_schedule.KINDS``."""
    stages: int = 0
    """Stages; 0: as many as ``stage_at`` says, else one a device as far as there are layers, and two a device for
    ``interleaved``."""
    micro_batches: int = 0
    """Must divide the batch; 0: the most that does, up to four for every device that is used."""
    stage_at: tuple[str, ...] = ()
    """First layers of the second and later stages; none: where the slowest stage takes least time."""


def has_stages(name: str) -> bool:
    """Whether a strategy of that name or degrees is a pipeline, which cuts the mini-batch itself."""
    return name == PIPELINE or (is_hybrid(name) and not name.endswith(SUFFIXES) and hybrid_of(name).pipeline > 1)


def strategy_and_micro_batching(
    model: CostModel, name: str, *, micro_batching: MicroBatching = WHOLE_BATCH, pipeline: Pipeline | None = None
) -> tuple[Strategy, MicroBatching]:
    """A strategy of any name but ``layerwise``, and how it cuts the mini-batch.

    Args:
        model: Prices of a model on a cluster.
        name: ``pipeline``, degrees with a pipeline among them, or what ``planner.parallel.strategies.named_strategy``
            knows.
        cut: Of other strategies.
        pipeline: What is asked of ``pipeline``.

    Raises:
        ConfigError: As ``named_strategy`` and ``pipeline_strategy``.
        InfeasiblePlanError: As ``pipeline_strategy``.
    """
    if name == PIPELINE:
        return pipeline_strategy(model, pipeline or Pipeline())
    if has_stages(name):
        return _hybrid(model, hybrid_of(name), pipeline or Pipeline())
    return named_strategy(name, model.graph, len(model.cluster.devices), model.cluster), micro_batching


def micro_batch_parts(graph: ComputationGraph, name: str, devices: int) -> tuple[ComputationGraph, Strategy]:
    """What the stages of a pipeline compute at once, wherever they begin and lie, if only its name is said.

    Args:
        graph: The network with its batch.
        name: A strategy that ``has_stages``.
        devices: Devices there are.

    Returns:
        The network with the batch of a micro-batch, and a configuration for every layer, all as in the first stage.

    Raises:
        ConfigError: The strategy cannot be had for this batch or so many devices.
    """
    schedule = Pipeline().schedule
    if name == PIPELINE:
        stages = _stages(graph, Pipeline(), devices)
        small = graph.with_batch(graph.batch // _micro_batches(graph.batch, stages, schedule))
        return small, {layer.name: _whole(layer, (0,)) for layer in small.layers}
    hybrid = hybrid_of(name)
    first = stage_groups(hybrid, graph, devices)[0]
    small = graph.with_batch(graph.batch // _micro_batches(graph.batch // hybrid.data, hybrid.pipeline, schedule))
    return small, {layer.name: split_layer(layer, hybrid, first) for layer in small.layers}


def _hybrid(model: CostModel, hybrid: Hybrid, asked: Pipeline) -> tuple[Strategy, MicroBatching]:
    """A pipeline whose stages are split by the other degrees."""
    graph, stages = model.graph, hybrid.pipeline
    groups = stage_groups(hybrid, graph, len(model.cluster.devices), model.cluster)
    if asked.schedule != "interleaved":
        if asked.stages not in (0, stages):
            raise ConfigError(f"stages must be those of {hybrid.text}, {stages}, got {asked.stages}")
        asked = replace(asked, stages=stages)
    if not asked.micro_batches:  # each is split over the samples in turn
        samples = graph.batch // hybrid.data
        asked = replace(asked, micro_batches=_micro_batches(samples, stages, asked.schedule))
    return pipeline_strategy(
        model, asked, groups=groups, layout=lambda layer, devices: split_layer(layer, hybrid, devices)
    )


def pipeline_strategy(
    model: CostModel, asked: Pipeline, *, groups: Sequence[Sequence[int]] = (), layout: Layout | None = None
) -> tuple[Strategy, MicroBatching]:
    """Give every stage a group of devices: the first ones, in order; under ``interleaved`` all, in turn.

    Args:
        model: Prices of a model on a cluster.
        asked: Stages, micro-batches and schedule.
        groups: Devices of each group; none: every device is one.
        layout: How a layer is split over the devices of its stage; None: it is whole on the first.

    Returns:
        A configuration for every layer, and the cut with the stages.

    Raises:
        ConfigError: An unknown schedule or layer, more stages than layers or groups, stages that the groups of an
            interleaved schedule do not divide, or micro-batches that do not divide the batch.
        InfeasiblePlanError: No cut into so many stages fits in memory.
    """
    graph, places = model.graph, groups or [(device,) for device in range(len(model.cluster.devices))]
    split = layout or _whole
    if asked.schedule not in PIPELINE_SCHEDULES:
        raise ConfigError(f"schedule must be one of {', '.join(PIPELINE_SCHEDULES)}, got {asked.schedule!r}")
    stages = _stages(graph, asked, len(places))
    group_of = tuple(stage % len(places) for stage in range(stages))
    micro_batches = asked.micro_batches or _micro_batches(graph.batch, max(group_of) + 1, asked.schedule)
    if micro_batches < 1 or graph.batch % micro_batches:
        raise ConfigError(f"micro_batches must be >= 1 and divide the batch of {graph.batch}, got {micro_batches}")
    schedule = PipelineSchedule(kind=asked.schedule, micro_batches=micro_batches, groups=group_of)
    if asked.stage_at:
        starts: tuple[int, ...] = (0, *(_index(graph, name) for name in asked.stage_at))
        if any(a >= b for a, b in pairwise(starts)):
            raise ConfigError(f"stage_at must name later layers one after another, got {', '.join(asked.stage_at)}")
    else:
        starts = stage_bounds(model, places, split, schedule)[:-1]
    micro_batching = MicroBatching(parts=micro_batches, order=asked.schedule, stages=starts)
    return {
        layer.name: split(layer, places[group_of[micro_batching.stage_of(i)]]) for i, layer in enumerate(graph.layers)
    }, micro_batching


def _stages(graph: ComputationGraph, asked: Pipeline, devices: int) -> int:
    """How many on so many devices, or groups of them; checked."""
    interleaved, layers = asked.schedule == "interleaved", len(graph.layers)
    named = len(asked.stage_at) + 1 if asked.stage_at else 0
    if named and asked.stages not in (0, named):
        raise ConfigError(f"stages must be the {named} that stage_at begins, got {asked.stages}")
    stages = asked.stages or named or (2 * devices if interleaved else min(devices, layers))
    if not 1 <= stages <= layers:
        raise ConfigError(f"stages must be 1 to the {layers} layers of {graph.name}, got {stages}")
    if interleaved and stages % devices:
        raise ConfigError(
            f"stages must be a multiple of the {devices} devices of an interleaved pipeline, got {stages}"
        )
    if not interleaved and stages > devices:
        raise ConfigError(f"stages must be at most the {devices} devices for {asked.schedule}, got {stages}")
    return stages


def _micro_batches(batch: int, devices: int, schedule: str) -> int:
    """The most that the batch divides into, up to some for every device."""
    step = devices if schedule == "interleaved" else 1
    fitting = [count for count in range(step, _A_STAGE * devices + 1, step) if batch % count == 0]
    if not fitting:
        raise ConfigError(f"batch must be a multiple of the {devices} devices for an interleaved pipeline, got {batch}")
    return fitting[-1]


def _index(graph: ComputationGraph, name: str) -> int:
    if name not in graph.index:
        raise ConfigError(f"stage_at must name layers of {graph.name}, got {name!r}")
    return graph.index[name]


def _whole(layer: Layer, devices: Sequence[int]) -> Configuration:
    return Configuration(dict.fromkeys(layer.parallel_dims, 1), (devices[0],))
