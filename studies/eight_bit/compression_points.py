"""Points of a compression sweep: plans with one setting each, simulated once."""

import math
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from groundwork.errors import ConfigError, InfeasiblePlanError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.data_types import compression
from planner.graph.computation_graph import ComputationGraph
from planner.plan.make_plan import make_plan
from studies.eight_bit.compression_request import UNCOMPRESSED_TYPE, CompressionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionPoint:
    """One plan, simulated, or the reason why there is none."""

    sub_batches: int
    type: str
    devices: int
    link_speed: float
    batch: int
    iteration_s: float = math.nan
    speedup: float = math.nan
    """Samples a second, over those of one device alone."""
    gain: float = math.nan
    """Speedup over the same point with float32, less 1; below 0 where it is slower."""
    reason: str = ""
    """Reason why there is no plan; empty where there is one."""


class SimulatedPoints:
    """Simulations of the points, each made once.

    Raises:
        ConfigError: No route among the devices uses a link of the requested class.
    """

    def __init__(
        self, graph: ComputationGraph, cluster: DeviceGraph, request: CompressionRequest, alone_s: float
    ) -> None:
        self.graph, self.whole_cluster, self.request, self.alone_s = graph, cluster, request, alone_s
        taken = cluster.take(request.devices[-1])
        pairs = product(range(len(taken.devices)), repeat=2)
        used = [taken.links[link] for link in sorted({link for pair in pairs for link in taken.route(*pair)})]
        speeds: dict[str, float] = {}  # bandwidth of the slowest link of each class
        for link in used:
            speeds[link.link_class] = min(link.bandwidth_bytes_per_s, speeds.get(link.link_class, math.inf))
        if request.link_class not in ("", *speeds):
            raise ConfigError(
                f"link_class must be one that {len(taken.devices)} devices of {cluster.name} use, "
                f"{', '.join(sorted(speeds))}, got {request.link_class!r}"
            )
        self.link_class = request.link_class or min(speeds, key=lambda name: speeds[name])
        self.link_bytes_per_s = speeds[self.link_class]
        self._clusters: dict[tuple[int, float], DeviceGraph] = {}
        self._points: dict[tuple[int, float, str, int], CompressionPoint] = {}

    def cluster(self, devices: int, link_speed: float) -> DeviceGraph:
        """Return the first devices of the cluster, with faster or slower links of the class."""
        if (devices, link_speed) not in self._clusters:
            taken = self.whole_cluster.take(devices)
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
        """Return a point, which is simulated on first use."""
        key = (devices, link_speed, kind, sub_batches)
        if key not in self._points:
            self._points[key] = self._simulated(*key)
        return self._points[key]

    def _simulated(self, devices: int, link_speed: float, kind: str, sub_batches: int) -> CompressionPoint:
        batch = self.graph.batch * devices
        point = CompressionPoint(
            sub_batches=sub_batches, type=kind, devices=devices, link_speed=link_speed, batch=batch
        )
        try:
            plan = make_plan(
                self.graph.with_batch(batch),
                self.cluster(devices, link_speed),
                strategy="owt",
                gradient_sync="auto",
                sub_batches=sub_batches,
                **_compressed_types(kind, self.request.compress),
            )
        except (ConfigError, InfeasiblePlanError) as error:
            return replace(point, reason=str(error))
        return replace(point, iteration_s=plan.simulated_s, speedup=devices * self.alone_s / plan.simulated_s)

    def link_speed_gain(self, kind: str, devices: int, link_speed: float) -> float:
        """Return the gain of a type over float32 at a link speed, each with its best sub-batches."""
        times_s = [self._least_s(each, devices, link_speed) for each in (UNCOMPRESSED_TYPE, kind)]
        return times_s[0] / times_s[1] - 1

    def _least_s(self, kind: str, devices: int, link_speed: float) -> float:
        points = [self.point(devices, link_speed, kind, parts) for parts in self.request.sub_batches]
        return min((point.iteration_s for point in points if not point.reason), default=math.inf)


def _compressed_types(kind: str, compress: str) -> dict[str, Any]:
    """Return the options of a plan that compress messages with a type.

    A type that keeps a residual compresses gradients alone, because activations have none to keep.
    """
    if kind == UNCOMPRESSED_TYPE:
        return {}
    activations = compress == "activations" or (compress == "both" and not compression(kind).feedback)
    return {
        "compress_gradients": kind if compress != "activations" else "",
        "compress_activations": kind if activations else "",
    }
