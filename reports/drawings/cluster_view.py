"""View of a cluster for a page: all of it, or one machine in place of many equal ones, and the classes of its links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from groundwork.array_types import Ints
from hwprofiles.devices.columns import ClusterLinks
from hwprofiles.devices.device_graph import DeviceGraph
from reports.drawings.draw_cluster import cluster_drawing, depths_of, machine_prefixes, machines_of

_MANY = 5
"""Machines from which on equal ones are drawn as one."""


def cluster_view(cluster: DeviceGraph) -> dict[str, Any]:
    """Return a drawing, with what each of its links and devices stands for.

    Returns:
        The values of ``cluster_drawing``, where one machine stands for all that are equal to it; ``machines``: names to
        choose from, where one machine stands for all; ``link_sets`` and ``device_sets``: for each link and device
        drawn, those that it stands for, one a machine; ``classes``: classes of links, and ``link_class``: the index
        there of each link of the cluster, shape (L,).
    """
    home, prefixes = machines_of(cluster), machine_prefixes(cluster)
    vertices = _places_of_vertices(cluster, home, prefixes)
    links = _places_of_links(cluster.links, vertices)
    groups = _equal_machines(cluster, vertices, links)
    joined = sum(map(len, groups)) >= max(_MANY, 2 * len(groups))
    shown = _around(cluster, home, [group[0] for group in groups]) if joined else list(range(len(cluster.vertices)))
    drawing = cluster_drawing(cluster, shown)
    group_of = {machine: group if joined else [machine] for group in groups for machine in group}
    classes, link_class = _classes(cluster.links)
    for at, (x, y, wide, high, name) in enumerate(drawing["boxes"]):
        alike = len(groups[at]) - 1 if joined else 0
        drawing["boxes"][at] = (x, y, wide, high, f"{name} and {alike} alike" if alike else name)
    return {
        **drawing,
        "machines": [prefixes[machine] for machine in groups[0]] if joined and len(groups) == 1 else [],
        "link_sets": links.alike(drawing["link_numbers"], group_of),
        "device_sets": vertices.alike(
            [vertex for vertex in drawing["vertex_numbers"] if vertex < len(cluster.devices)], group_of
        ),
        "classes": classes,
        "link_class": link_class,
    }


@dataclass(frozen=True, slots=True)
class _Places:
    """Where each of some things is: its machine, -1 outside all, and its place there; shape (things,) each."""

    machine: Ints
    place: Ints

    def alike(self, things: Sequence[int], group_of: Mapping[int, Sequence[int]]) -> list[list[int]]:
        """Return what stands at the place of each thing in every machine of its group; just itself outside machines."""
        order = np.lexsort((self.machine, self.place))
        order = order[self.machine[order] >= 0]
        places, found = self.place[order], list[list[int]]()
        for thing in things:
            group = group_of.get(int(self.machine[thing]), ())
            here = order[slice(*np.searchsorted(places, [self.place[thing], self.place[thing] + 1]))]
            found.append(here[np.isin(self.machine[here], group)].tolist() if len(group) else [thing])
        return found


def _places_of_vertices(cluster: DeviceGraph, home: Sequence[int], prefixes: Mapping[int, str]) -> _Places:
    """Return the places of vertices, by their names within their machines; one for all that is outside."""
    known = {"": 0}
    names = (name[len(prefixes[at]) :] if at >= 0 else "" for name, at in zip(cluster.vertices, home, strict=True))
    place = [known.setdefault(name, len(known)) for name in names]
    return _Places(np.array(home, dtype=np.int64), np.array(place, dtype=np.int64))


def _places_of_links(links: ClusterLinks, vertices: _Places) -> _Places:
    """Return the places of links, by their ends and class; a link belongs to the machine of either of its ends."""
    machine = np.maximum(vertices.machine[links.source], vertices.machine[links.target])
    (classes, link_class), count = _classes(links), int(vertices.place.max()) + 1
    ends = (vertices.place[links.source] * count + vertices.place[links.target]) * len(classes) + link_class
    # links of a machine that join the same places are numbered in their order
    order = np.lexsort((ends, machine))
    begins = (np.diff(machine[order], prepend=-2) != 0) | (np.diff(ends[order], prepend=-1) != 0)
    at = np.arange(len(order))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = at - np.maximum.accumulate(np.where(begins, at, 0))
    return _Places(machine, ends * (int(number.max(initial=0)) + 1) + number)


def _classes(links: ClusterLinks) -> tuple[list[str], Ints]:
    """Return the classes of links as they first occur, and the index of each link's, shape (L,)."""
    kinds, first = np.unique(links.kind, return_index=True)
    names = [links.kinds[kind].link_class for kind in kinds[np.argsort(first)].tolist()]
    classes = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(classes), links.of_each(lambda link: classes.get(link.link_class, 0)).astype(np.int64)


def _equal_machines(cluster: DeviceGraph, vertices: _Places, links: _Places) -> list[list[int]]:
    """Return the machines in groups of equal devices, switches and links, in order."""
    kinds, kind = cluster.devices.told_apart()
    bandwidths, bandwidth = np.unique(cluster.bandwidth, return_inverse=True)
    parts = vertices.place * (len(kinds) + 1)
    parts[: len(kind)] += kind + 1
    parts = np.concatenate([parts, -1 - (links.place * len(bandwidths) + bandwidth)])
    machine = np.concatenate([vertices.machine, links.machine])
    order = np.lexsort((parts, machine))
    machine, parts = machine[order], parts[order]
    bounds = np.append(np.flatnonzero(np.diff(machine, prepend=-1)), len(machine)).tolist()
    groups: dict[bytes, list[int]] = {}
    for first, end in pairwise(bounds):
        groups.setdefault(parts[first:end].tobytes(), []).append(int(machine[first]))
    return list(groups.values())


def _around(cluster: DeviceGraph, home: Sequence[int], machines: Sequence[int]) -> list[int]:
    """Return the vertices of machines, and the switches above them: those that lead farther from the devices."""
    depth, homes = depths_of(cluster), np.array(home, dtype=np.int64)
    source, target = cluster.links.source, cluster.links.target
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    up = (homes[ends[1]] < 0) & ((homes[ends[0]] >= 0) | (depth[ends[1]] > depth[ends[0]]))
    below, above = ends[0][up], ends[1][up]
    shown, before = np.isin(homes, machines), 0
    while before < (before := int(np.count_nonzero(shown))):
        shown[above[shown[below]]] = True
    return np.flatnonzero(shown).tolist()
