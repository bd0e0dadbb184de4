"""View of a cluster for a page: all of it, or one machine in place of many equal ones, and the classes of its links."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

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
        there of each link of the cluster.
    """
    home, prefixes = machines_of(cluster), machine_prefixes(cluster)
    groups = _equal_machines(cluster, home)
    joined = sum(map(len, groups)) >= max(_MANY, 2 * len(groups))
    shown = _around(cluster, home, [group[0] for group in groups]) if joined else list(range(len(cluster.vertices)))
    drawing = cluster_drawing(cluster, shown)
    group_of = {machine: group if joined else [machine] for group in groups for machine in group}
    links, devices = _by_place(cluster, home)
    link_class = cluster.links.classes.tolist()
    classes = list(dict.fromkeys(link_class))
    for at, (x, y, wide, high, name) in enumerate(drawing["boxes"]):
        alike = len(groups[at]) - 1 if joined else 0
        drawing["boxes"][at] = (x, y, wide, high, f"{name} and {alike} alike" if alike else name)
    return {
        **drawing,
        "machines": [prefixes[machine] for machine in groups[0]] if joined and len(groups) == 1 else [],
        "link_sets": [_alike(link, links, group_of) for link in drawing["link_numbers"]],
        "device_sets": [
            _alike(vertex, devices, group_of) for vertex in drawing["vertex_numbers"] if vertex < len(cluster.devices)
        ],
        "classes": classes,
        "link_class": [classes.index(each) for each in link_class],
    }


Places = tuple[dict[int, tuple[int, str]], dict[tuple[int, str], int]]
"""Machine of each thing and its place there, and back; things outside machines are missing."""


def _alike(thing: int, places: Places, group_of: Mapping[int, Sequence[int]]) -> list[int]:
    """Return what stands at the same place in every machine of the group; just itself outside machines."""
    if thing not in places[0]:
        return [thing]
    machine, place = places[0][thing]
    return [places[1][each, place] for each in group_of[machine]]


def _by_place(cluster: DeviceGraph, home: Sequence[int]) -> tuple[Places, Places]:
    """Return the places of links and of devices; a link belongs to the machine of either of its ends."""
    prefixes = machine_prefixes(cluster)

    def inside(vertex: int) -> str:
        """Return the name of a vertex within its machine; one word for all that is outside."""
        return cluster.vertices[vertex][len(prefixes[home[vertex]]) :] if home[vertex] >= 0 else "outside"

    links, devices = dict[int, tuple[int, str]](), dict[int, tuple[int, str]]()
    seen: Counter[tuple[int, str]] = Counter()
    for number, link in enumerate(cluster.links):
        machine = max(home[link.source], home[link.target])
        if machine < 0:
            continue
        ends = f"{inside(link.source)} {inside(link.target)} {link.link_class}"
        links[number] = machine, f"{ends} {seen[machine, ends]}"
        seen[machine, ends] += 1
    for device in range(len(cluster.devices)):
        if home[device] >= 0:
            devices[device] = home[device], inside(device)
    return (links, {place: link for link, place in links.items()}), (
        devices,
        {place: device for device, place in devices.items()},
    )


def _equal_machines(cluster: DeviceGraph, home: Sequence[int]) -> list[list[int]]:
    """Return the machines in groups of equal devices, switches and links, in order."""
    links, _ = _by_place(cluster, home)
    prefixes = machine_prefixes(cluster)
    parts: dict[int, list[object]] = {machine: [] for machine in sorted(set(home) - {-1})}
    for vertex, machine in enumerate(home):
        if machine >= 0:
            device = replace(cluster.devices[vertex], name="", node=0) if vertex < len(cluster.devices) else None
            values = [getattr(device, field.name) for field in fields(device)] if device else []
            parts[machine].append((cluster.vertices[vertex][len(prefixes[machine]) :], *values))
    for number, (machine, place) in links[0].items():
        link = cluster.links[number]
        parts[machine].append((place, str(link.bandwidth_bytes_per_s)))
    groups: dict[tuple[object, ...], list[int]] = {}
    for machine, found in parts.items():
        groups.setdefault(tuple(sorted(found, key=str)), []).append(machine)
    return list(groups.values())


def _around(cluster: DeviceGraph, home: Sequence[int], machines: Sequence[int]) -> list[int]:
    """Return the vertices of machines, and the switches above them: those that lead farther from the devices."""
    depth = depths_of(cluster)
    shown = {vertex for vertex, machine in enumerate(home) if machine in machines}
    before = 0
    while before < len(shown):
        before = len(shown)
        ways = list(zip(cluster.links.source.tolist(), cluster.links.target.tolist(), strict=True))
        ends = [each for a, b in ways for each in ((a, b), (b, a))]
        shown |= {b for a, b in ends if a in shown and home[b] < 0 and (home[a] >= 0 or depth[b] > depth[a])}
    return sorted(shown)
