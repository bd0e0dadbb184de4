"""What compression would bring on a cluster: sub-batches, data types, devices and link speed swept by simulation.

Every point is a plan: samples are split in the first part of the network, channels in the fully connected one, which
takes the mini-batch in sub-batches; it is lowered, replayed, and refused where it does not fit, like any other.  The
mini-batch grows with the devices.

Source:
    The question is that of Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Tables 1
    and 7, on any cluster and any model.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from hwprofiles import ConfigError, InfeasiblePlanError, Progress
from hwprofiles.devices import DeviceGraph
from planner.compression import UNCOMPRESSED, Compressed, compressed_of, compression
from planner.graph import ComputationGraph
from planner.parallel import WHOLE_BATCH, micro_batching_of
from planner.plan import make_plan
from studies.eight_bit.thresholds import BEST, Crossing, bisected, crossing

__all__ = ["COMPRESS", "PLAIN_TYPE", "CompressionPoint", "CompressionRequest", "CompressionSweep", "sweep_compression"]


COMPRESS = ("both", "activations", "gradients")
PLAIN_TYPE = "float32"
"""What every type is compared with: messages as they are."""
AXES = ("sub_batches", "devices", "link_speed")
_EXCHANGE = "auto"
_MOST_DEVICES = 8
"""Of the numbers of devices that are swept where none are given: simulations grow with their square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRequest:
    """What is swept.

    Raises:
        ConfigError: A list is empty, a value breaks its rule, or a data type is unknown or keeps a residual where
            activations alone are compressed.
    """

    graph: ComputationGraph
    """With the batch of one device."""
    cluster: DeviceGraph
    sub_batches: tuple[int, ...]
    types: tuple[str, ...]
    """As ``planner.compression.data_types.compression`` reads them; float32 is always beside them."""
    devices: tuple[int, ...] = ()
    """Empty: 2, 4, ... up to all, at most 8."""
    link_speeds: tuple[float, ...] = (1.0,)
    """Factors of the speed of a class of links."""
    link_class: str = ""
    """Which class, of those that the devices' routes use; empty: the slowest."""
    compress: str = "both"
    """One of ``COMPRESS``."""

    def __post_init__(self) -> None:
        count = len(self.cluster.devices)
        doubling = [2**power for power in range(1, 1 + int(math.log2(min(count, _MOST_DEVICES))))] if count > 1 else []
        set_field = object.__setattr__  # the class is frozen
        set_field(self, "devices", tuple(sorted(set(self.devices or doubling))))
        for name in ("sub_batches", "link_speeds"):
            set_field(self, name, tuple(sorted(set(getattr(self, name)))))
        set_field(self, "types", tuple(dict.fromkeys([PLAIN_TYPE, *(compression(text).text for text in self.types)])))
        if len(self.types) == 1:
            raise ConfigError(f"types must name a data type other than {PLAIN_TYPE}, got none")
        if not self.sub_batches or self.sub_batches[0] < 1:
            raise ConfigError(f"sub_batches must be >= 1, got {list(self.sub_batches)}")
        if not self.link_speeds or not all(0 < factor < math.inf for factor in self.link_speeds):
            raise ConfigError(f"link_speeds must be finite and > 0, got {list(self.link_speeds)}")
        if not self.devices or self.devices[0] < 1 or not 2 <= self.devices[-1] <= count:
            given = list(self.devices) or "one device"
            raise ConfigError(
                f"devices must be at most the {count} of {self.cluster.name}, and 2 or more of them, got {given}"
            )
        if self.compress not in COMPRESS:
            raise ConfigError(f"compress must be one of {', '.join(COMPRESS)}, got {self.compress!r}")
        kept = [text for text in self.types if compression(text).feedback]
        if kept and self.compress == "activations":
            raise ConfigError(f"types must keep no residual where activations alone are compressed, got {kept[0]!r}")

    @property
    def size(self) -> int:
        """Points of the sweep."""
        return len(self.sub_batches) * len(self.types) * len(self.devices) * len(self.link_speeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionPoint:
    """One plan, simulated, or the reason why there is none."""

    sub_batches: int
    type: str
    devices: int
    link_speed: float
    batch: int
    """Of all devices."""
    iteration_s: float = math.nan
    speedup: float = math.nan
    """Samples a second, over those of one device alone."""
    gain: float = math.nan
    """Share by which it is faster than the same with float32; below 0 where it is slower."""
    reason: str = ""
    """Why it cannot be had; empty where it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionSweep:
    """All points, and where each type starts and stops to pay."""

    model: str
    cluster: str
    batch_per_device: int
    compress: str
    link_class: str
    """The class of links whose speed is varied."""
    link_bytes_per_s: float
    """At factor 1."""
    alone_s: float
    """Iteration of one device."""
    sub_batches: tuple[int, ...]
    types: tuple[str, ...]
    devices: tuple[int, ...]
    link_speeds: tuple[float, ...]
    points: tuple[CompressionPoint, ...]
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...]

    def best(self, kind: str, devices: int, link_speed: float) -> CompressionPoint | None:
        """The point with the sub-batches that suit a type best; None where it has none."""
        found = [
            point
            for point in self.points
            if (point.type, point.devices, point.link_speed) == (kind, devices, link_speed) and not point.reason
        ]
        return min(found, key=lambda point: point.iteration_s, default=None)

    def values(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)


def sweep_compression(
    question: CompressionRequest, *, exact: bool = False, progress: Progress | None = None
) -> CompressionSweep:
    """Simulate every point, then find where each type pays.

    Args:
        question: What is swept.
        exact: Find the crossovers over link speed, each type with its best sub-batches, by bisection on simulations
            between the two points that they lie between; all others are interpolated.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: No point can be had, or no route uses a link of the class.
        InfeasiblePlanError: The model does not fit on one device with its batch, so there is nothing to compare with.
    """
    alone = make_plan(question.graph, question.cluster.take(1), strategy="data")
    runs = _Runs(question, alone.simulated_s)
    points = []
    for done, place in enumerate(product(question.devices, question.link_speeds, question.types, question.sub_batches)):
        if progress:
            progress("simulating plans", done, question.size)
        points.append(runs.point(*place))
    if all(point.reason for point in points):
        raise ConfigError(f"none of the {len(points)} points can be had: {points[0].reason}")
    points = _with_gains(points)
    crossings = _crossings(question, points)
    for done, each in enumerate(crossings if exact else []):
        if progress:
            progress("bisecting crossovers", done, len(crossings))
        crossings[done] = runs.exact(each)
    return CompressionSweep(
        model=question.graph.name, cluster=question.cluster.spec, batch_per_device=question.graph.batch,
        compress=question.compress, link_class=runs.link_class, link_bytes_per_s=runs.link_bytes_per_s,
        alone_s=alone.simulated_s, sub_batches=question.sub_batches, types=question.types, devices=question.devices,
        link_speeds=question.link_speeds, points=tuple(points), crossings=tuple(crossings),
        notes=tuple(_notes(question, points)),
    )  # fmt: skip


class _Runs:
    """Simulations, each made once."""

    def __init__(self, question: CompressionRequest, alone_s: float) -> None:
        self.question, self.alone_s = question, alone_s
        cluster = question.cluster.take(question.devices[-1])
        pairs = product(range(len(cluster.devices)), repeat=2)
        used = [cluster.links[link] for link in sorted({link for pair in pairs for link in cluster.route(*pair)})]
        speeds: dict[str, float] = {}  # of the slowest link of each class
        for link in used:
            speeds[link.link_class] = min(link.bandwidth_bytes_per_s, speeds.get(link.link_class, math.inf))
        if question.link_class not in ("", *speeds):
            raise ConfigError(
                f"link_class must be one that {len(cluster.devices)} devices of {question.cluster.name} use, "
                f"{', '.join(sorted(speeds))}, got {question.link_class!r}"
            )
        self.link_class = question.link_class or min(speeds, key=lambda name: speeds[name])
        self.link_bytes_per_s = speeds[self.link_class]
        self._clusters: dict[tuple[int, float], DeviceGraph] = {}
        self._points: dict[tuple[int, float, str, int], CompressionPoint] = {}

    def cluster(self, devices: int, link_speed: float) -> DeviceGraph:
        """The first devices, with faster or slower links of the class."""
        if (devices, link_speed) not in self._clusters:
            taken = self.question.cluster.take(devices)
            self._clusters[devices, link_speed] = taken.with_links(
                [
                    replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * link_speed)
                    if link.link_class == self.link_class
                    else link
                    for link in taken.links
                ]
            )
        return self._clusters[devices, link_speed]

    def point(self, devices: int, link_speed: float, kind: str, sub_batches: int) -> CompressionPoint:
        """A point, simulated when it is asked for first."""
        place = (devices, link_speed, kind, sub_batches)
        if place not in self._points:
            self._points[place] = self._simulated(*place)
        return self._points[place]

    def _simulated(self, devices: int, link_speed: float, kind: str, sub_batches: int) -> CompressionPoint:
        batch = self.question.graph.batch * devices
        place = CompressionPoint(
            sub_batches=sub_batches, type=kind, devices=devices, link_speed=link_speed, batch=batch
        )
        try:
            graph = self.question.graph.with_batch(batch)
            plan = make_plan(
                graph,
                self.cluster(devices, link_speed),
                strategy="owt",
                gradient_sync=_EXCHANGE,
                micro_batching=micro_batching_of(graph, sub_batches) if sub_batches > 1 else WHOLE_BATCH,
                compressed=_compressed(graph, kind, self.question.compress),
            )
        except (ConfigError, InfeasiblePlanError) as error:
            return replace(place, reason=str(error))
        return replace(place, iteration_s=plan.simulated_s, speedup=devices * self.alone_s / plan.simulated_s)

    def exact(self, found: Crossing) -> Crossing:
        """The same crossover by bisection, if it is one over link speed with the best sub-batches."""
        if found.axis != "link_speed" or found.sub_batches != BEST or not found.thresholds:
            return found

        def gain(link_speed: float) -> float:
            times_s = [self._least_s(kind, found.devices, link_speed) for kind in (PLAIN_TYPE, found.type)]
            return times_s[0] / times_s[1] - 1

        return bisected(found, gain)

    def _least_s(self, kind: str, devices: int, link_speed: float) -> float:
        points = [self.point(devices, link_speed, kind, parts) for parts in self.question.sub_batches]
        return min((point.iteration_s for point in points if not point.reason), default=math.inf)


def _compressed(graph: ComputationGraph, kind: str, compress: str) -> Compressed:
    """What a type compresses; of types that keep a residual the gradients alone, unless activations are asked for."""
    if kind == PLAIN_TYPE:
        return UNCOMPRESSED
    activations = compress == "activations" or (compress == "both" and not compression(kind).feedback)
    return compressed_of(
        graph, _EXCHANGE, gradients=kind if compress != "activations" else "", activations=kind if activations else ""
    )


def _with_gains(points: Sequence[CompressionPoint]) -> list[CompressionPoint]:
    plain = {
        (point.devices, point.link_speed, point.sub_batches): point.iteration_s
        for point in points
        if point.type == PLAIN_TYPE
    }
    return [
        replace(point, gain=plain[point.devices, point.link_speed, point.sub_batches] / point.iteration_s - 1)
        for point in points
    ]


def _crossings(question: CompressionRequest, points: Sequence[CompressionPoint]) -> list[Crossing]:
    """Over each axis with more than one value, for all values of the other two; sub-batches may also be the best."""
    times_s: dict[tuple[str, int, int, float], float] = {}
    for point in points:
        if not point.reason:
            times_s[point.type, point.sub_batches, point.devices, point.link_speed] = point.iteration_s
            best = (point.type, BEST, point.devices, point.link_speed)
            times_s[best] = min(times_s.get(best, math.inf), point.iteration_s)
    values: dict[str, tuple[float, ...]] = {
        "sub_batches": question.sub_batches, "devices": question.devices, "link_speed": question.link_speeds
    }  # fmt: skip
    found = []
    for axis in AXES:
        choices: list[Iterable[Any]] = [
            [None] if axis == name else (BEST, *values[name]) if name == "sub_batches" else values[name]
            for name in AXES
        ]
        for kind, fixed in product(question.types[1:], product(*choices)):
            place = dict(zip(AXES, fixed, strict=True))
            rows = [(kind, *(value if each is None else each for each in fixed)) for value in values[axis]]
            gains = [
                (value, times_s[PLAIN_TYPE, *row[1:]] / times_s[row] - 1)
                for value, row in zip(values[axis], rows, strict=True)
                if row in times_s and (PLAIN_TYPE, *row[1:]) in times_s
            ]
            if len(gains) > 1:
                found.append(crossing(axis, kind, gains, **{name: place[name] or 0 for name in AXES}))
    return found


def _notes(question: CompressionRequest, points: Sequence[CompressionPoint]) -> list[str]:
    notes = []
    if question.compress == "both":
        kept = [kind for kind in question.types if compression(kind).feedback]
        notes += [f"{kind} compresses gradients alone: it keeps a residual" for kind in kept]
    reasons = Counter(point.reason for point in points if point.reason)
    return [*notes, *(f"{count} of {len(points)} points left out: {reason}" for reason, count in reasons.items())]
