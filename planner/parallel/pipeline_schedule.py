"""Schedules of a pipeline: the order in which every group of devices works on its stages and micro-batches.

A stage is a run of layers; stages that share devices belong to one group.  A kind of schedule gives each group the
published order of its work; ``events`` merges these into one order in which nothing comes before what it needs, which
lowering follows.  A new kind is a function in ``PIPELINE_SCHEDULES``.

Source:
    ``gpipe``: Huang et al., "GPipe", NeurIPS 2019, Fig. 2c.  ``1f1b``: PipeDream-flush, Narayanan et al.,
    "Memory-Efficient Pipeline-Parallel DNN Training", ICML 2021, Fig. 3.  ``interleaved``: Narayanan et al., "Efficient
    Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, Sec. 2.2 and Fig. 4.
    ``zero-bubble``: ZB-H1, Qi et al., "Zero Bubble Pipeline Parallelism", 2023, Sec. 2 and Fig. 3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from hwprofiles import ConfigError

__all__ = ["BACKWARD", "FORWARD", "PIPELINE_SCHEDULES", "PipelineSchedule", "ScheduleEvent"]

FORWARD = ("forward",)
BACKWARD = ("activation_gradient", "weight_gradient")


class ScheduleEvent(NamedTuple):
    """A stage's work on a micro-batch, in one go."""

    phases: tuple[str, ...]
    """Kinds of tasks done: ``FORWARD``; ``BACKWARD``, both gradients layer by layer; or one gradient alone."""
    stage: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True)
class PipelineSchedule:
    """Stages on groups of devices, and in which order they take the micro-batches.

    Raises:
        ConfigError: The kind is unknown, or its rule for stages, groups and micro-batches is broken.
    """

    kind: str
    """One of ``PIPELINE_SCHEDULES``."""
    micro_batches: int
    groups: tuple[int, ...] = (0,)
    """By stage, the group of devices that it runs on: 0, 1, ... in the order in which stages first use them."""

    def __post_init__(self) -> None:
        if self.kind not in PIPELINE_SCHEDULES:
            raise ConfigError(f"schedule must be one of {', '.join(PIPELINE_SCHEDULES)}, got {self.kind!r}")
        if self.micro_batches < 1:
            raise ConfigError(f"micro_batches must be >= 1, got {self.micro_batches}")
        devices, stages = self.group_count, len(self.groups)
        if self.kind != "interleaved":
            if devices < stages:
                raise ConfigError(f"{self.kind} needs devices of its own for each of {stages} stages, got {devices}")
        elif self.groups != tuple(s % devices for s in range(stages)):
            raise ConfigError(f"interleaved needs its {stages} stages in turn on groups of devices, got {self.groups}")
        elif stages % devices:
            raise ConfigError(f"stages must be a multiple of their {devices} groups of devices, got {stages}")
        elif self.micro_batches % devices:
            raise ConfigError(
                f"micro_batches must be a multiple of the {devices} groups of devices of an interleaved schedule, "
                f"got {self.micro_batches}"
            )

    @property
    def group_count(self) -> int:
        """Groups of devices."""
        return max(self.groups) + 1

    @cached_property
    def streams(self) -> tuple[tuple[ScheduleEvent, ...], ...]:
        """By group, its work in the published order."""
        return tuple(tuple(PIPELINE_SCHEDULES[self.kind](self, group)) for group in range(self.group_count))

    @cached_property
    def events(self) -> tuple[ScheduleEvent, ...]:
        """All work, each event after those it needs and after its group's earlier ones.

        As if every event took one tick: what starts earlier comes first.
        """
        heads, found, last = [0] * self.group_count, list[ScheduleEvent](), len(self.groups) - 1
        done: set[tuple[str, int, int]] = set()
        while len(found) < sum(map(len, self.streams)):
            ready = [
                stream[head]
                for stream, head in zip(self.streams, heads, strict=True)
                if head < len(stream) and all(need in done for need in _needs(stream[head], last))
            ]
            assert ready, f"{self.kind} waits for itself"
            for event in ready:
                heads[self.groups[event.stage]] += 1
                done |= {(phase, event.stage, event.micro_batch) for phase in event.phases}
            found += ready
        return tuple(found)

    @cached_property
    def in_flight_at_backward(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """By stage, all that its group may have in flight while it goes back.

        Each is a row: micro-batches of each stage of the group that have begun their forward and not ended their
        backward work.
        """
        alive = [0] * len(self.groups)
        found: list[set[tuple[int, ...]]] = [set() for _ in self.groups]
        for phases, stage, _ in self.events:
            alive[stage] += phases == FORWARD
            if phases != FORWARD:
                found[stage].add(tuple(alive[s] for s in self.stages_of(self.groups[stage])))
            alive[stage] -= phases[-1] == "weight_gradient"
        return tuple(tuple(sorted(rows)) for rows in found)

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """By stage, most micro-batches that it has in flight at once."""
        places = (self.stages_of(group).index(stage) for stage, group in enumerate(self.groups))
        rows = zip(places, self.in_flight_at_backward, strict=True)
        return tuple(max(counts[place] for counts in found) for place, found in rows)

    def stages_of(self, group: int) -> list[int]:
        """Stages that run on a group."""
        return [stage for stage, other in enumerate(self.groups) if other == group]


def _needs(event: ScheduleEvent, last: int) -> list[tuple[str, int, int]]:
    """Phases, with their stage and micro-batch, that come before an event; those of its group's order aside."""
    phases, stage, batch = event
    if phases == FORWARD:
        return [("forward", stage - 1, batch)] if stage else []
    if "activation_gradient" not in phases:
        return [("activation_gradient", stage, batch)]
    return [("forward", stage, batch), *([("activation_gradient", stage + 1, batch)] if stage < last else [])]


def _gpipe(schedule: PipelineSchedule, stage: int) -> list[ScheduleEvent]:
    """All go forward; then all go back, the last one first."""
    batches = range(schedule.micro_batches)
    return [ScheduleEvent(FORWARD, stage, m) for m in batches] + [
        ScheduleEvent(BACKWARD, stage, m) for m in reversed(batches)
    ]


def _one_forward_one_backward(schedule: PipelineSchedule, stage: int) -> list[ScheduleEvent]:
    """As many go forward as there are stages behind; then one forward, one back."""
    batches = range(schedule.micro_batches)
    forward, backward = ([ScheduleEvent(phases, stage, m) for m in batches] for phases in (FORWARD, BACKWARD))
    return _alternating(forward, backward, len(schedule.groups) - 1 - stage)


def _interleaved(schedule: PipelineSchedule, group: int) -> list[ScheduleEvent]:
    """As 1F1B, with micro-batches in bundles of as many as there are groups, through one stage after another."""
    groups = schedule.group_count
    shares = len(schedule.groups) // groups
    work = [divmod(k, groups * shares) for k in range(schedule.micro_batches * shares)]
    units = [(place // groups, bundle * groups + place % groups) for bundle, place in work]
    forward = [ScheduleEvent(FORWARD, share * groups + group, m) for share, m in units]
    backward = [ScheduleEvent(BACKWARD, (shares - 1 - share) * groups + group, m) for share, m in units]
    return _alternating(forward, backward, 2 * (groups - 1 - group) + (shares - 1) * groups)


def _zero_bubble(schedule: PipelineSchedule, stage: int) -> list[ScheduleEvent]:
    """ZB-H1: as 1F1B, with the gradients of parameters apart, put off by as many micro-batches as stages come before.

    So no stage waits for another's gradients of parameters, and they fill its own end; no stage keeps more
    micro-batches than the first.
    """
    batches = range(schedule.micro_batches)
    forward, back, weights = (
        [ScheduleEvent((phase,), stage, m) for m in batches]
        for phase in ("forward", "activation_gradient", "weight_gradient")
    )
    order = _alternating(forward, back, len(schedule.groups) - 1 - stage)
    found: list[ScheduleEvent] = []
    for event in order:
        found.append(event)
        if event.phases != FORWARD and event.micro_batch >= stage:
            found.append(weights[event.micro_batch - stage])
    return found + weights[max(schedule.micro_batches - stage, 0) :]


def _alternating(forward: list[ScheduleEvent], backward: list[ScheduleEvent], warm_up: int) -> list[ScheduleEvent]:
    """Some forward, then one forward and one back in turn, then the rest back."""
    warm_up = min(warm_up, len(forward))
    pairs = zip(forward[warm_up:], backward, strict=False)
    return [*forward[:warm_up], *(event for pair in pairs for event in pair), *backward[len(forward) - warm_up :]]


PIPELINE_SCHEDULES: Mapping[str, Callable[[PipelineSchedule, int], list[ScheduleEvent]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zero-bubble": _zero_bubble,
}
"""By name, what gives a group of devices its work in order.  All but ``interleaved`` have one stage a group."""
