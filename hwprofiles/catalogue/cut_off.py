"""Devices that failed links cut off: those that the largest group which still reaches itself leaves out."""

from collections import deque
from collections.abc import Sequence

from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.link import Link


def cut_off_devices(graph: DeviceGraph, links: Sequence[Link]) -> tuple[str, ...]:
    """Return the names of the devices that must be given up so that routes join all others.

    Args:
        graph: The cluster before the failure.
        links: Links that are left.

    Returns:
        Names in order; none where all still reach each other.
    """
    after: dict[int, list[int]] = {}
    for link in links:
        after.setdefault(link.source, []).append(link.target)
        if link.both_ways:
            after.setdefault(link.target, []).append(link.source)
    count = len(graph.devices)
    reached = [_reached(after, device, count) for device in range(count)]
    both_ways = [sum(device in reached[i] for i in reached[device]) for device in range(count)]
    kept: list[int] = []  # those first that reach, and are reached by, the most others
    for device in sorted(range(count), key=lambda i: (-both_ways[i], i)):
        if all(device in reached[i] and i in reached[device] for i in kept):
            kept.append(device)
    left = set(kept)
    return tuple(device.name for i, device in enumerate(graph.devices) if i not in left)


def _reached(after: dict[int, list[int]], device: int, count: int) -> set[int]:
    """Return the devices that a device reaches over switches; devices forward nothing."""
    seen, queue = {device}, deque([device])
    while queue:
        vertex = queue.popleft()
        if vertex >= count or vertex == device:
            for other in after.get(vertex, []):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
    return {vertex for vertex in seen if vertex < count and vertex != device}
