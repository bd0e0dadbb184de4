"""Sweep of compression on a cluster: sub-batches, data types, devices and link speed, by simulation.

Every point is a plan: samples are split in the first part of the network, channels in the fully connected one, which
takes the mini-batch in sub-batches; it is lowered and replayed, and refused where it does not fit, like any other plan.
The mini-batch grows with the devices.

Source:
    Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Tables 1 and 7, whose comparison is
    made here for any cluster and any model.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from groundwork.errors import ConfigError
from groundwork.progress import Progress
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.data_types import compression
from planner.graph.computation_graph import ComputationGraph
from planner.plan.make_plan import make_plan
from studies.eight_bit.compression_points import CompressionPoint, SimulatedPoints
from studies.eight_bit.compression_request import UNCOMPRESSED_TYPE, CompressionRequest
from studies.eight_bit.thresholds import BEST, Crossing, bisected, crossing

AXES = ("sub_batches", "devices", "link_speed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionSweep:
    """All points, and the crossovers at which each type starts and stops to pay."""

    model: str
    cluster: str
    batch_per_device: int
    compress: str
    link_class: str
    link_bytes_per_s: float
    """Speed of the slowest of these links at factor 1."""
    alone_s: float
    sub_batches: tuple[int, ...]
    types: tuple[str, ...]
    devices: tuple[int, ...]
    link_speeds: tuple[float, ...]
    points: tuple[CompressionPoint, ...]
    crossings: tuple[Crossing, ...]
    notes: tuple[str, ...]

    def best(self, kind: str, devices: int, link_speed: float) -> CompressionPoint | None:
        """Return the point with the sub-batches that are best for a type; None where there is no plan."""
        points = [
            point
            for point in self.points
            if (point.type, point.devices, point.link_speed) == (kind, devices, link_speed) and not point.reason
        ]
        return min(points, key=lambda point: point.iteration_s, default=None)

    def values(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return asdict(self)


def sweep_compression(
    graph: ComputationGraph, cluster: DeviceGraph, request: CompressionRequest, progress: Progress | None = None
) -> CompressionSweep:
    """Simulate every point, then compute the crossovers of each type.

    Raises:
        ConfigError: There is no plan for any point, the cluster has too few devices, or no route uses a link of the
            class.
        InfeasiblePlanError: The model does not fit on one device with its batch, so there is nothing to compare with.
    """
    request = request.on(cluster)
    alone = make_plan(graph, cluster.take(1), strategy="data")
    simulated = SimulatedPoints(graph, cluster, request, alone.simulated_s)
    points = []
    settings = product(request.devices, request.link_speeds, request.types, request.sub_batches)
    for done, setting in enumerate(settings):
        if progress:
            progress("simulating plans", done, request.size)
        points.append(simulated.point(*setting))
    if all(point.reason for point in points):
        raise ConfigError(f"none of the {len(points)} points can be had: {points[0].reason}")
    points = _with_gains(points)
    crossings = _crossings(request, points)
    for done, each in enumerate(crossings if request.exact else []):
        if progress:
            progress("bisecting crossovers", done, len(crossings))
        crossings[done] = _exact(each, simulated)
    return CompressionSweep(
        model=graph.name,
        cluster=cluster.spec,
        batch_per_device=graph.batch,
        compress=request.compress,
        link_class=simulated.link_class,
        link_bytes_per_s=simulated.link_bytes_per_s,
        alone_s=alone.simulated_s,
        sub_batches=request.sub_batches,
        types=request.types,
        devices=request.devices,
        link_speeds=request.link_speeds,
        points=tuple(points),
        crossings=tuple(crossings),
        notes=tuple(_notes(request, points)),
    )


def _with_gains(points: Sequence[CompressionPoint]) -> list[CompressionPoint]:
    """Return the points with their gains over the same points with float32."""
    uncompressed = {
        (point.devices, point.link_speed, point.sub_batches): point.iteration_s
        for point in points
        if point.type == UNCOMPRESSED_TYPE
    }
    return [
        replace(point, gain=uncompressed[point.devices, point.link_speed, point.sub_batches] / point.iteration_s - 1)
        for point in points
    ]


def _crossings(request: CompressionRequest, points: Sequence[CompressionPoint]) -> list[Crossing]:
    """Return the crossovers over each axis, for all values of the other two; sub-batches may also be the best."""
    times_s = _times_s(points)
    values: dict[str, tuple[float, ...]] = {
        "sub_batches": request.sub_batches,
        "devices": request.devices,
        "link_speed": request.link_speeds,
    }
    crossings = []
    for axis in AXES:
        # the axis itself stays open, as None
        choices: list[Iterable[Any]] = [
            [None] if axis == name else (BEST, *values[name]) if name == "sub_batches" else values[name]
            for name in AXES
        ]
        for kind, fixed in product(request.types[1:], product(*choices)):
            setting = dict(zip(AXES, fixed, strict=True))
            rows = [(kind, *(value if each is None else each for each in fixed)) for value in values[axis]]
            gains = [
                (value, times_s[UNCOMPRESSED_TYPE, *row[1:]] / times_s[row] - 1)
                for value, row in zip(values[axis], rows, strict=True)
                if row in times_s and (UNCOMPRESSED_TYPE, *row[1:]) in times_s
            ]
            if len(gains) > 1:
                crossings.append(crossing(axis, kind, gains, **{name: setting[name] or 0 for name in AXES}))
    return crossings


def _times_s(points: Sequence[CompressionPoint]) -> dict[tuple[Any, ...], float]:
    """Return iterations by type, sub-batches, devices and link speed; under ``BEST`` those of the best sub-batches."""
    times_s: dict[tuple[Any, ...], float] = {}
    for point in points:
        if not point.reason:
            times_s[point.type, point.sub_batches, point.devices, point.link_speed] = point.iteration_s
            best = (point.type, BEST, point.devices, point.link_speed)
            times_s[best] = min(times_s.get(best, math.inf), point.iteration_s)
    return times_s


def _exact(interpolated: Crossing, simulated: SimulatedPoints) -> Crossing:
    """Return a crossover by bisection, if it is one over link speed with the best sub-batches."""
    if interpolated.axis != "link_speed" or interpolated.sub_batches != BEST or not interpolated.thresholds:
        return interpolated
    return bisected(
        interpolated, lambda speed: simulated.link_speed_gain(interpolated.type, interpolated.devices, speed)
    )


def _notes(request: CompressionRequest, points: Sequence[CompressionPoint]) -> list[str]:
    """Return notes on types that keep a residual, and on points without a plan."""
    notes = []
    if request.compress == "both":
        with_residual = [kind for kind in request.types if compression(kind).feedback]
        notes += [f"{kind} compresses gradients alone: it keeps a residual" for kind in with_residual]
    reasons = Counter(point.reason for point in points if point.reason)
    return [*notes, *(f"{count} of {len(points)} points left out: {reason}" for reason, count in reasons.items())]
