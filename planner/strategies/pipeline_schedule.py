"""Pipeline schedules: the order in which every group of devices computes its stages and micro-batches.

A stage is a run of consecutive layers; stages that share devices belong to one group.  A schedule gives each group the
published order of its work; ``events`` merges these orders into one in which every event comes after those that it
depends on, and lowering follows it.  A new schedule is a function in ``PIPELINE_SCHEDULES``.

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

from groundwork.errors import ConfigError

FORWARD = ("forward",)
"""Phases of a forward pass."""
BACKWARD = ("activation_gradient", "weight_gradient")
"""Phases of a backward pass that computes both gradients layer by layer."""


class ScheduleEvent(NamedTuple):
    """A stage's work on a micro-batch that no other work of its group interrupts."""

    phases: tuple[str, ...]
    """Phases computed: ``FORWARD``, ``BACKWARD``, or one gradient alone."""
    stage: int
    micro_batch: int


@dataclass(frozen=True, kw_only=True)
class PipelineSchedule:
    """Stages on groups of devices, and the order in which they compute the micro-batches.

    Raises:
        ConfigError: The kind is unknown, or its rule for stages, groups and micro-batches is broken.
    """

    kind: str
    """One of ``PIPELINE_SCHEDULES``."""
    micro_batches: int
    groups: tuple[int, ...] = (0,)
    """Group of devices that each stage runs on: 0, 1, ... in the order in which stages first use them."""

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
        """Number of groups of devices."""
        return max(self.groups) + 1

    @cached_property
    def streams(self) -> tuple[tuple[ScheduleEvent, ...], ...]:
        """Work of each group in the published order."""
        return tuple(tuple(PIPELINE_SCHEDULES[self.kind](self, group)) for group in range(self.group_count))

    @cached_property
    def events(self) -> tuple[ScheduleEvent, ...]:
        """All work in one order: each event after those it depends on and after earlier ones of its group.

        Events are ordered by their start if each took one tick, and those of one tick by their groups.
        """
        rows = [[0] * self.micro_batches for _ in self.groups]
        ended = {phase: [[*row] for row in rows] for phase in (*FORWARD, *BACKWARD)}  # ticks; 0: not yet
        heads, ticks, last = [0] * self.group_count, [0] * self.group_count, len(self.groups) - 1
        order, count = list[tuple[int, int, ScheduleEvent]](), sum(map(len, self.streams))
        while len(order) < count:
            before = len(order)
            for group, stream in enumerate(self.streams):
                while heads[group] < len(stream):
                    event = stream[heads[group]]
                    needs = [ended[phase][stage][batch] for phase, stage, batch in _needs(event, last)]
                    if not all(needs):
                        break
                    ticks[group] = tick = 1 + max([ticks[group], *needs])
                    for phase in event.phases:
                        ended[phase][event.stage][event.micro_batch] = tick
                    order.append((tick, group, event))
                    heads[group] += 1
            assert len(order) > before, f"{self.kind} waits for itself"
        return tuple(event for _, _, event in sorted(order))

    @cached_property
    def in_flight_at_backward(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """Micro-batches in flight on a stage's group during the backward work of that stage, for each stage.

        A micro-batch is in flight on a stage from the start of its forward to the end of its backward work.  Each row
        is one combination that occurs: the micro-batches in flight of each stage of the group.
        """
        combinations: list[set[tuple[int, ...]]] = [set() for _ in self.groups]
        for group, stream in enumerate(self.streams):
            in_flight = dict.fromkeys(self.stages_of(group), 0)
            for phases, stage, _ in stream:
                if phases == FORWARD:
                    in_flight[stage] += 1
                    continue
                combinations[stage].add(tuple(in_flight.values()))
                in_flight[stage] -= phases[-1] == "weight_gradient"
        return tuple(tuple(sorted(rows)) for rows in combinations)

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """Most micro-batches that each stage has in flight at once."""
        columns = (self.stages_of(group).index(stage) for stage, group in enumerate(self.groups))
        stages = zip(columns, self.in_flight_at_backward, strict=True)
        return tuple(max(counts[column] for counts in rows) for column, rows in stages)

    def stages_of(self, group: int) -> list[int]:
        """Return the stages that run on a group."""
        return [stage for stage, other in enumerate(self.groups) if other == group]


def _needs(event: ScheduleEvent, last: int) -> list[tuple[str, int, int]]:
    """Return the phases, with their stage and micro-batch, whose results an event depends on."""
    phases, stage, batch = event
    if phases == FORWARD:
        return [("forward", stage - 1, batch)] if stage else []
    if "activation_gradient" not in phases:
        return [("activation_gradient", stage, batch)]
    return [("forward", stage, batch), *([("activation_gradient", stage + 1, batch)] if stage < last else [])]


def _gpipe(schedule: PipelineSchedule, stage: int) -> list[ScheduleEvent]:
    """Order all forward passes before all backward passes, whose order is reversed."""
    batches = range(schedule.micro_batches)
    return [ScheduleEvent(FORWARD, stage, m) for m in batches] + [
        ScheduleEvent(BACKWARD, stage, m) for m in reversed(batches)
    ]


def _one_forward_one_backward(schedule: PipelineSchedule, stage: int) -> list[ScheduleEvent]:
    """Order as many forward passes first as there are stages behind, then alternate forward and backward passes."""
    batches = range(schedule.micro_batches)
    forward, backward = ([ScheduleEvent(phases, stage, m) for m in batches] for phases in (FORWARD, BACKWARD))
    return _alternating(forward, backward, len(schedule.groups) - 1 - stage)


def _interleaved(schedule: PipelineSchedule, group: int) -> list[ScheduleEvent]:
    """Order as 1F1B, with bundles of as many micro-batches as groups going through the group's stages (chunks) in turn.

    The forward order of a group with two chunks, in a pipeline of two groups, is, as (chunk, micro-batch)::

        (0, 0) (0, 1)  (1, 0) (1, 1)  (0, 2) (0, 3)  (1, 2) (1, 3)
    """
    groups = schedule.group_count
    chunks = len(schedule.groups) // groups
    bundles = [divmod(k, groups * chunks) for k in range(schedule.micro_batches * chunks)]
    units = [(position // groups, bundle * groups + position % groups) for bundle, position in bundles]
    forward = [ScheduleEvent(FORWARD, chunk * groups + group, m) for chunk, m in units]
    backward = [ScheduleEvent(BACKWARD, (chunks - 1 - chunk) * groups + group, m) for chunk, m in units]
    return _alternating(forward, backward, 2 * (groups - 1 - group) + (chunks - 1) * groups)


def _zero_bubble(schedule: PipelineSchedule, stage: int) -> list[ScheduleEvent]:
    """Order as 1F1B with weight gradients as events of their own, delayed by as many micro-batches as stages before.

    No stage then waits for another's weight gradients, which fill the idle time at its end, and no stage has more
    micro-batches in flight than the first.

    Source:
        ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism", 2023, Sec. 2.
    """
    batches = range(schedule.micro_batches)
    forward, back, weights = (
        [ScheduleEvent((phase,), stage, m) for m in batches]
        for phase in ("forward", "activation_gradient", "weight_gradient")
    )
    order = _alternating(forward, back, len(schedule.groups) - 1 - stage)
    events: list[ScheduleEvent] = []
    for event in order:
        events.append(event)
        if event.phases != FORWARD and event.micro_batch >= stage:
            events.append(weights[event.micro_batch - stage])
    return events + weights[max(schedule.micro_batches - stage, 0) :]


def _alternating(forward: list[ScheduleEvent], backward: list[ScheduleEvent], warm_up: int) -> list[ScheduleEvent]:
    """Return ``warm_up`` forward events, then forward and backward events in turn, then the rest of the backward."""
    warm_up = min(warm_up, len(forward))
    pairs = zip(forward[warm_up:], backward, strict=False)
    return [*forward[:warm_up], *(event for pair in pairs for event in pair), *backward[len(forward) - warm_up :]]


PIPELINE_SCHEDULES: Mapping[str, Callable[[PipelineSchedule, int], list[ScheduleEvent]]] = {
    "gpipe": _gpipe,
    "1f1b": _one_forward_one_backward,
    "interleaved": _interleaved,
    "zero-bubble": _zero_bubble,
}
"""Functions that return the work of a group in order, by name.  All but ``interleaved`` have one stage a group."""
