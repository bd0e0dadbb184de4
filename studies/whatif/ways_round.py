"""Ways round failed links: the route that transfers take instead, or the devices that nothing reaches any more."""

from hwprofiles.devices.device_graph import DeviceGraph

_MOST_PAIRS = 20_000
"""Pairs of devices whose routes are looked at for one that used a failed link."""
_MOST_NAMES = 6
"""Devices that are named."""


def way_round(today: DeviceGraph, changed: DeviceGraph, lost: tuple[str, ...]) -> str:
    """Return how transfers go without the links that failed.

    Args:
        today: Cluster before.
        changed: Cluster after.
        lost: Devices that are cut off.

    Returns:
        The new route of the first pair of devices whose route failed, or the devices that are cut off; empty where no
        link between the vertices that are left is gone.
    """
    if lost:
        names = ", ".join(lost[:_MOST_NAMES]) + (f" and {len(lost) - _MOST_NAMES} more" if lost[_MOST_NAMES:] else "")
        verb = "is" if len(lost) == 1 else "are"
        return f"no way round: {names} {verb} cut off, the other {len(changed.devices)} go on"
    left, there = {link.name for link in changed.links}, set(changed.vertices)
    failed = {
        i
        for i, link in enumerate(today.links)
        if link.name not in left and {today.vertices[link.source], today.vertices[link.target]} <= there
    }
    if not failed or set(today.vertices) - there:
        return ""
    count, looked = len(today.devices), 0
    for source in range(count):
        for target in range(count):
            looked += 1
            if looked > _MOST_PAIRS:
                return ""
            if source != target and failed & set(today.route(source, target)):
                return f"way round: {_path(changed, source, target)}"
    return "no route used it"


def _path(cluster: DeviceGraph, source: int, target: int) -> str:
    """Return the vertices of a route in order."""
    names, at = [cluster.vertices[source]], source
    for i in cluster.route(source, target):
        link = cluster.links[i]
        at = link.source if link.both_ways and link.target == at else link.target
        names.append(cluster.vertices[at])
    return " → ".join(names)
