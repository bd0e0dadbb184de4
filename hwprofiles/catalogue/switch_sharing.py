"""Devices moved to other switches of their node, so that more of them, or fewer, share a switch's port."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.link import Link


def with_devices_per_port(graph: DeviceGraph, pattern: str, count: int) -> DeviceGraph:
    """Return a cluster in whose nodes ``count`` devices at a time share a switch.

    The devices of a node are dealt to its switches in order.  Switches are the vertices that join devices of one node
    to the rest of it: those that join devices only, as an NVSwitch does, stay as they are.

        three a port     gpu0 gpu1 | gpu2        gpu0 gpu1 gpu2 |
                            plx0   | plx1   ->        plx0      | plx1

    Args:
        graph: Device graph.
        pattern: Numbers of nodes, such as ``*``, ``3`` or ``1?``.
        count: Devices on one switch, >= 1.

    Raises:
        ConfigError: No node matches, a node has no such switches or too few, or a device is joined to several.
    """
    nodes = [node for node in range(graph.node_count) if fnmatchcase(str(node), pattern)]
    if not nodes:
        raise ConfigError(f"nodes must match one of 0 .. {graph.node_count - 1}, got {pattern!r}")
    moved: dict[tuple[int, int], tuple[int, int]] = {}
    for node in nodes:
        devices = [i for i, device in enumerate(graph.devices) if device.node == node]
        moved.update(_moves(graph, devices, count, f"nodes.{node}"))
    links = [_moved(graph, link, moved) for link in graph.links]
    return graph.with_links(links)


def _moves(
    graph: DeviceGraph, devices: Sequence[int], count: int, where: str
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the new ends of the links between the devices of a node and its switches, in both directions."""
    joined = _switches(graph, devices)
    switches = sorted({switch for found in joined.values() for switch in found})
    several = [graph.vertices[device] for device, found in joined.items() if len(found) != 1]
    if several or not switches:
        raise ConfigError(f"{where}: gpus_per_port needs one switch with a port for each device, {several[0]} has not")
    least = -(-len(devices) // len(switches))
    if count < least:
        raise ConfigError(
            f"{where}: gpus_per_port must be >= {least} for {len(devices)} devices on {len(switches)} switches, "
            f"got {count}"
        )
    moves = {}
    for at, device in enumerate(devices):
        old, new = joined[device][0], switches[at // count]
        moves[device, old], moves[old, device] = (device, new), (new, device)
    return moves


def _switches(graph: DeviceGraph, devices: Sequence[int]) -> dict[int, list[int]]:
    """Return for each device the vertices that join it, and no device of another node, to vertices beyond devices."""
    first = len(graph.devices)
    neighbours: dict[int, set[int]] = {}
    for link in graph.links:
        neighbours.setdefault(link.source, set()).add(link.target)
        neighbours.setdefault(link.target, set()).add(link.source)
    own = set(devices)
    ports = {
        vertex
        for vertex, others in neighbours.items()
        if vertex >= first and any(other >= first for other in others) and {i for i in others if i < first} <= own
    }
    return {device: sorted(neighbours.get(device, set()) & ports) for device in devices}


def _moved(graph: DeviceGraph, link: Link, moves: dict[tuple[int, int], tuple[int, int]]) -> Link:
    """Return a link with its new ends and the name that follows from them."""
    ends = moves.get((link.source, link.target))
    if ends is None or ends == (link.source, link.target):
        return link
    sign = "--" if link.both_ways else "->"
    name = f"{graph.vertices[ends[0]]} {sign} {graph.vertices[ends[1]]}"
    return replace(link, source=ends[0], target=ends[1], name=name)
