"""Time of what layers on meshes exchange beside regions: redistributions, sums that layers complete, rows they gather.

Every collective runs among all groups of devices along an axis at the same time, as the program has it.
"""

import math
from functools import lru_cache

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.cost.library_rounds import collective_rounds
from planner.graph.shapes import Shape
from planner.layouts.configurations import ConfigSpace
from planner.layouts.mesh import Mesh
from planner.layouts.redistribution import Placements, RedistributionStep, group_elements, row_gathers, steps_between
from planner.layouts.regions import completed_sums
from planner.topology.network_routes import ClusterRoutes


def collective_s(network: ClusterRoutes, collective: str, groups: Ints, size_bytes: Floats) -> float:
    """Return the time of a collective among groups of devices that run at once, nothing else running.

    A round takes the time of its busiest link, for all groups together, and the longest latency of a group.

    Args:
        network: Routes of the cluster.
        collective: ``all-gather``, ``reduce-scatter``, ``all-reduce`` or ``all-to-all``.
        groups: Shape (groups, p): devices.
        size_bytes: Bytes of the whole buffer of each group, or of each device of an all-to-all, shape (groups,).
    """
    seconds, sizes = 0.0, np.broadcast_to(size_bytes, len(groups)).tolist()
    for steps in zip(*collective_rounds(network, collective, groups, float(np.max(size_bytes))), strict=True):
        loads, longest_s = np.zeros(len(network.seconds_per_byte)), 0.0
        for devices, step, size in zip(groups, steps, sizes, strict=True):
            traffic = step.traffic
            loads += network.link_loads(devices[traffic.source], devices[traffic.target], traffic.taken * size)
            if traffic.latency_s is not None:
                longest_s = max(longest_s, traffic.latency_s + traffic.copied_s_per_byte * size)
                continue
            classes = np.unique(network.latency_classes(devices[step.source], devices[step.target]))
            latencies_s = network.class_latencies(classes, np.full(len(classes), step.share * size))
            longest_s = max(longest_s, step.repeats * float(latencies_s.max()))
        seconds += float((loads * network.seconds_per_byte).max()) + longest_s
    return seconds


@lru_cache(maxsize=65536)
def step_s(network: ClusterRoutes, step: RedistributionStep, mesh: Mesh, source: Shape, element_bytes: int) -> float:
    """Return the time of a step of a redistribution; none of a slice.

    Args:
        network: Routes of the cluster.
        step: The step.
        mesh: The mesh.
        source: Shape of the tensor.
        element_bytes: Bytes of one element.
    """
    if not step.sends:
        return 0.0
    sizes = group_elements(step.buffer, step.axis, mesh, source) * element_bytes
    return collective_s(network, step.collective, mesh.groups(step.axis), sizes)


@lru_cache(maxsize=65536)
def steps_s(
    network: ClusterRoutes, mesh: Mesh, made: Placements, read: Placements, source: Shape, element_bytes: int
) -> float:
    """Return the time of the steps between two layouts on one mesh; NaN where regions travel one by one.

    Args:
        network: Routes of the cluster.
        mesh: The mesh.
        made: Placements in which a tensor is made.
        read: Placements in which it is read.
        source: Shape of the tensor.
        element_bytes: Bytes of one element.
    """
    steps = steps_between(made, read, mesh, source)
    return math.nan if steps is None else sum(step_s(network, step, mesh, source, element_bytes) for step in steps)


def completions_s(network: ClusterRoutes, space: ConfigSpace, element_bytes: int, *, backward: bool) -> Floats:
    """Return the time in which each configuration completes its sums, and with ``backward`` gathers their gradient.

    Args:
        network: Routes of the cluster.
        space: C configurations.
        element_bytes: Bytes of one element.
        backward: Whether there is a gradient.

    Returns:
        Seconds, shape (C,).
    """
    seconds = np.zeros(space.size)
    for c in np.flatnonzero(space.completed > 1).tolist():
        groups, elements = completed_sums(space.alone(c))
        for collective in ("reduce-scatter", "all-gather")[: 1 + backward]:
            seconds[c] += collective_s(network, collective, groups, elements * element_bytes)
    return seconds


def row_gathers_s(network: ClusterRoutes, space: ConfigSpace, row_bytes: float) -> Floats:
    """Return the time in which each configuration gathers what its parts of the channels know of their rows.

    Args:
        network: Routes of the cluster.
        space: C configurations.
        row_bytes: Bytes of what one part knows of one row; 0: nothing is gathered.

    Returns:
        Seconds, shape (C,).
    """
    seconds = np.zeros(space.size)
    for c in range(space.size) if row_bytes else ():
        for groups, rows in row_gathers(space.alone(c)):
            seconds[c] += collective_s(network, "all-gather", groups, rows * row_bytes)
    return seconds
