"""Drawing of a device graph: a box for each machine, devices below the switches that connect them to others."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from groundwork.array_types import Ints
from hwprofiles.devices.device_graph import DeviceGraph

_STEP_X, _STEP_Y, _GAP = 46, 44, 22
_APART = 2.2
"""Half the distance between the lines of the two directions of a link, in pixels."""


def cluster_drawing(cluster: DeviceGraph, shown: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the positions of vertices, boxes and links, in pixels.

    Vertices outside all machines stand in bands at the top, those farthest from the devices first; the boxes of the
    machines fill rows below:

        [   core switch   ]
        [ rack ]   [ rack ]
        +------+   +------+
        | node |   | node |
        +------+   +------+

    Returns:
        ``width`` and ``height``, ``boxes`` (place, size and name), ``vertices`` (place, short and whole name, and
        whether it is a device) and ``links`` (path, name and class); ``vertex_numbers`` and ``link_numbers`` tell which
        of the cluster these are.
    """
    numbers = list(range(len(cluster.vertices)) if shown is None else shown)
    at, boxes, size = _places(cluster, numbers)
    placed = np.zeros(len(cluster.vertices), dtype=bool)
    placed[numbers] = True
    drawn = np.flatnonzero(placed[cluster.links.source] & placed[cluster.links.target]).tolist()
    links = [cluster.links[i] for i in drawn]
    return {
        "width": size[0],
        "height": size[1],
        "boxes": boxes,
        "vertices": [
            (*at[v], cluster.vertices[v].rsplit("/", 1)[-1], cluster.vertices[v], v < len(cluster.devices))
            for v in numbers
        ],
        "links": [(_line(at[link.source], at[link.target]), link.name, link.link_class) for link in links],
        "vertex_numbers": numbers,
        "link_numbers": drawn,
    }


def _places(cluster: DeviceGraph, numbers: list[int]) -> tuple[dict[int, tuple[float, float]], list[Any], list[int]]:
    """Return where vertices and the boxes of machines are drawn, and width and height of the drawing."""
    depth, home = depths_of(cluster).tolist(), machines_of(cluster)
    inside: dict[int, list[int]] = {machine: [] for machine in sorted({home[v] for v in numbers} - {-1})}
    for v in numbers:
        if home[v] >= 0:
            inside[home[v]].append(v)
    machines = list(inside)
    wide = max((_widest(inside[machine], depth) for machine in machines), default=1) * _STEP_X + 8
    levels = max((depth[v] for v in numbers if home[v] >= 0), default=0) + 1
    high = levels * _STEP_Y + 8
    columns = max(1, min(len(machines), math.ceil(math.sqrt(len(machines) * 2.2 * high / wide))))
    columns = -(-len(machines) // max(1, -(-len(machines) // columns)))  # as many machines in each row, if possible
    outside = [v for v in numbers if home[v] < 0]
    bands = sorted({depth[v] for v in outside}, reverse=True)
    top = len(bands) * _STEP_Y * 1.4 + (12 if bands else 0)
    total = columns * (wide + _GAP)
    at: dict[int, tuple[float, float]] = {}
    for line, band in enumerate(bands):
        members = [v for v in outside if depth[v] == band]
        for i, v in enumerate(members):
            at[v] = (total * (i + 0.5) / len(members), 22 + line * _STEP_Y * 1.4)
    boxes = []
    for place, machine in enumerate(machines):
        x, y = (place % columns) * (wide + _GAP) + _GAP / 2, top + (place // columns) * (high + _GAP + 14) + 14
        boxes.append((x, y, wide, high, cluster.vertices[inside[machine][0]].rpartition("/")[0]))
        for level in range(levels):
            members = [v for v in inside[machine] if depth[v] == level]
            for i, v in enumerate(members):
                at[v] = (x + wide * (i + 0.5) / len(members), y + high - (level + 0.5) * _STEP_Y - 4)
    rows = -(-len(machines) // columns)
    return at, boxes, [round(total), round(top + rows * (high + _GAP + 14) + 8)]


def depths_of(cluster: DeviceGraph) -> Ints:
    """Return the number of links from the nearest device to each vertex, at least 1 for switches, shape (V,)."""
    source, target = cluster.links.source, cluster.links.target
    depth = np.full(len(cluster.vertices), -1, dtype=np.int64)
    depth[: len(cluster.devices)] = at = 0
    while np.any(depth == at):
        for near, far in ((source, target), (target, source)):
            depth[far[(depth[near] == at) & (depth[far] < 0)]] = at + 1
        at += 1
    depth[len(cluster.devices) :] = np.maximum(depth[len(cluster.devices) :], 1)
    return depth


@lru_cache(maxsize=4)
def machines_of(cluster: DeviceGraph) -> tuple[int, ...]:
    """Return the machine of every vertex, by the prefix that its name shares with the machine's devices; else -1."""
    machines: dict[str, list[int]] = {}
    for node, prefix in machine_prefixes(cluster).items():
        machines.setdefault(prefix, []).append(node)
    homes: list[int] = cluster.devices.node.tolist()
    for name in cluster.vertices[len(homes) :]:
        above = accumulate(name.split("/")[:-1], "{}/{}".format)
        fits = [node for prefix in above for node in machines.get(prefix, ())]
        homes.append(fits[0] if len(fits) == 1 else -1)
    return tuple(homes)


@lru_cache(maxsize=4)
def machine_prefixes(cluster: DeviceGraph) -> Mapping[int, str]:
    """Return what the names of each machine's devices begin with, up to a slash; empty where they share nothing."""
    prefixes: dict[int, str] = {}
    for name, node in zip(cluster.devices.names, cluster.devices.node.tolist(), strict=True):
        parts = name.split("/")[:-1]
        known = prefixes.get(node)
        both = parts if known is None else [a for a, b in zip(parts, known.split("/"), strict=False) if a == b]
        prefixes[node] = "/".join(both)
    return prefixes


def _widest(vertices: list[int], depth: list[int]) -> int:
    return max(sum(depth[v] == level for v in vertices) for level in {depth[v] for v in vertices})


def _line(a: tuple[float, float], b: tuple[float, float]) -> str:
    """Return the SVG path between two vertices, shifted to its right, so that both directions are visible."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy) or 1.0
    nx, ny = -dy / length * _APART, dx / length * _APART
    if abs(dy) < 1 and abs(dx) > _STEP_X * 1.5:  # a bend around other vertices in the same row
        bend = 10 + abs(dx) / 7 + (3 if dx > 0 else 0)
        return f"M{a[0]:.1f} {a[1]:.1f}Q{(a[0] + b[0]) / 2:.1f} {a[1] + bend:.1f} {b[0]:.1f} {b[1]:.1f}"
    return f"M{a[0] + nx:.1f} {a[1] + ny:.1f}L{b[0] + nx:.1f} {b[1] + ny:.1f}"
