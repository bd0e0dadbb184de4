"""Clusters of every size, and a point of a curve: a network on one of them, planned by the fastest of strategies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from groundwork.errors import ConfigError, InfeasiblePlanError, OrreryError
from hwprofiles.catalogue.cluster_catalogue import cluster_with, describe_cluster, load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from planner.expected.likely_times import TimeParts, expected_s, likely_s
from planner.graph.computation_graph import ComputationGraph
from planner.memory.peak_memory import peak_memory_bytes
from planner.models.registry import load_model
from planner.plan.lowered_plan import lower_plan
from planner.plan.make_plan import SimulatedPlan, request_for, simulated_plan
from planner.plan.pace import Pace, pace_of
from planner.plan.plan import Plan
from planner.plan.plan_request import check_plan_text
from planner.simulation.program_replay import replay

NODES = "nodes"
"""Parameter of a cluster that counts its nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedCluster:
    """A cluster, or the first devices of it."""

    spec: str
    """As for ``load_cluster``."""
    devices: int
    """Devices in use."""
    whole: bool = True
    """False if the cluster has more devices."""
    base: str = ""
    """Cluster whose sizes it is one of."""

    @property
    def name(self) -> str:
        """Specification, with the number of devices where not all of them are in use."""
        return self.spec if self.whole else f"{self.spec} ({self.devices} devices)"

    def load(self) -> DeviceGraph:
        """Return the device graph."""
        graph = load_cluster(self.spec)
        return graph if self.whole else graph.take(self.devices)


def cluster_sizes(spec: str, *, most_devices: int, batch: int = 0) -> tuple[SizedCluster, ...]:
    """Return the sizes of a cluster, the smallest first.

    A cluster whose file has a parameter ``nodes`` has every number of nodes; any other is used device by device.

    Args:
        spec: Cluster; a number of nodes that it sets is passed over.
        most_devices: Largest number of devices.
        batch: Mini-batch that must divide into equal parts for all devices; 0 where it grows with them.

    Raises:
        ConfigError: The cluster is unknown, or no size is left.
    """
    rules = {parameter.name: parameter for parameter in describe_cluster(spec).parameters}
    if NODES in rules:
        one = cluster_with(spec, {NODES: "1"})
        each = len(load_cluster(one).devices)
        most_nodes = int(min(rules[NODES].maximum or most_devices, most_devices // each))
        sizes = [
            SizedCluster(spec=cluster_with(spec, {NODES: f"{nodes}"}), devices=each * nodes, base=spec)
            for nodes in range(1, most_nodes + 1)
        ]
    else:
        one, each = spec, len(load_cluster(spec).devices)
        sizes = [SizedCluster(spec=spec, devices=each, base=spec)] if each <= most_devices else []
    parts = [
        SizedCluster(spec=one, devices=i, whole=False, base=spec) for i in range(1, min(each - 1, most_devices) + 1)
    ]
    left = [size for size in (*parts, *sizes) if not batch or batch % size.devices == 0]
    if not left:
        raise ConfigError(f"most_devices must leave a size of {spec}, got {most_devices}")
    return tuple(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is planned on every cluster."""

    model: str
    batch: int
    """Samples of a mini-batch over all devices; 0 where each device has ``batch_per_device``."""
    batch_per_device: int
    strategies: tuple[str, ...]
    """Strategies, of which the fastest that fits is taken."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of ``planner.plan.plan_request.PlanRequest``."""

    def __post_init__(self) -> None:
        if bool(self.batch) == bool(self.batch_per_device):
            raise ConfigError("needs one of batch and batch_per_device, got " + ("both" if self.batch else "neither"))
        if not self.strategies:
            raise ConfigError("strategies must name at least one, got none")
        for name in self.strategies:
            check_plan_text(name)

    def batch_on(self, devices: int) -> int:
        """Return the mini-batch on so many devices."""
        return self.batch or self.batch_per_device * devices

    def graph(self, batch: int) -> ComputationGraph:
        """Return the network with a batch."""
        return load_model(self.model, batch=batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedPoint:
    """A cluster with its fastest plan, or the reason why there is none."""

    cluster: str
    devices: int
    nodes: int
    batch: int
    profiles: tuple[str, ...]
    """Compute profile of every device."""
    strategy: str = ""
    iteration_s: float = float("inf")
    parts: TimeParts | None = field(default=None, repr=False)
    """What the iteration is made of, for intervals."""
    refusal: str = ""
    """Reason why there is no plan; empty where there is one."""
    needed_bytes: float = 0.0
    """Memory that the refused plan needs on its fullest device; 0 for other refusals."""
    peak_bytes: float = field(default=float("inf"), repr=False)
    """Memory on the fullest device; of a plan that was refused for it what it would need, infinite for others."""
    subject: Subject = field(repr=False)
    sized: SizedCluster = field(repr=False)
    plan: Plan | None = field(default=None, repr=False)

    @property
    def expected_s(self) -> float:
        """Median of the times that an iteration may take; infinite where there is no plan."""
        return float("inf") if self.parts is None else expected_s(self.parts)

    @property
    def likely_s(self) -> tuple[float, float] | None:
        """80 % interval of the iteration; None where there is no plan, or errors are not known."""
        return None if self.parts is None else likely_s(self.parts)

    @property
    def samples_per_s(self) -> float:
        """Samples a second by the expected time; 0 where there is no plan."""
        return self.batch / self.expected_s

    def pace(self) -> Pace | None:
        """Return what sets the pace of the plan, which is replayed for it; None where there is no plan."""
        if self.plan is None:
            return None
        graph = self.subject.graph(self.batch).with_element_bytes(self.plan.element_bytes)
        return pace_of(replay(lower_plan(self.plan, graph, self.sized.load())))


def sized_point(subject: Subject, sized: SizedCluster) -> SizedPoint:
    """Plan a network on a cluster by the fastest of the strategies that fit.

    Raises:
        ConfigError: The model, cluster or options break a rule that does not depend on the cluster's size.
    """
    cluster = sized.load()
    batch = subject.batch_on(len(cluster.devices))
    graph = subject.graph(batch)
    known: dict[str, Any] = {
        "cluster": sized.name,
        "devices": len(cluster.devices),
        "nodes": cluster.node_count,
        "batch": batch,
        "profiles": tuple(device.profile for device in cluster.devices),
        "subject": subject,
        "sized": sized,
    }
    best, refusal, needed_bytes = _fastest(subject, graph, cluster)
    if best is None:
        peak_bytes = needed_bytes or float("inf")
        return SizedPoint(**known, refusal=refusal, needed_bytes=needed_bytes, peak_bytes=peak_bytes)
    return SizedPoint(
        **known,
        strategy=best.plan.strategy,
        iteration_s=best.plan.simulated_s,
        parts=best.replayed.time_parts,
        plan=best.plan,
        peak_bytes=float(peak_memory_bytes(best.replayed.program).max()),
    )


def _fastest(
    subject: Subject, graph: ComputationGraph, cluster: DeviceGraph
) -> tuple[SimulatedPlan | None, str, float]:
    """Return the fastest plan, or the reasons of the refusals and the least memory that one of them needs."""
    best: SimulatedPlan | None = None
    refusals, needed = dict[str, str](), list[float]()
    for name in subject.strategies:
        try:
            request = request_for(graph, cluster, strategy=name, **subject.options)
            found = simulated_plan(graph.with_element_bytes(request.element_bytes), cluster, request)
        except OrreryError as error:  # in brief: advice on what fits would take longer than the point itself
            refusals[name] = error.brief
            needed += [error.needed_bytes] if isinstance(error, InfeasiblePlanError) and error.needed_bytes else []
        else:
            if best is None or found.replayed.expected_s < best.replayed.expected_s:
                best = found
    return (best, "", 0.0) if best else (None, _joined(refusals), min(needed, default=0.0))


def _joined(refusals: Mapping[str, str]) -> str:
    """Return reasons in one line, each once with the strategies that it is of."""
    groups: dict[str, list[str]] = {}
    for name, reason in refusals.items():
        groups.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in groups.items())
