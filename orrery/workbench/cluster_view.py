"""A cluster for the browser: its drawing, and the classes of links and the devices that can be changed."""

from collections import Counter
from typing import Any

from groundwork.units import GIB, GIGA, MICRO
from hwprofiles.devices.device_graph import DeviceGraph
from orrery.workbench.subject import BenchSubject, loaded_cluster
from reports.drawings.cluster_view import cluster_view

_MOST_DRAWN = 6_000
"""Links of the largest drawing, in which one machine stands for all that are equal."""
_MESSAGE_BYTES = 2**20
"""Size of the message whose latency is shown."""


def cluster_values(subject: BenchSubject) -> dict[str, Any]:
    """Return a cluster with the changes of a subject.

    Raises:
        ConfigError: The cluster or a change breaks a rule.
        UnreachableError: No route joins two devices.
    """
    cluster = loaded_cluster(subject)
    drawing = cluster_view(cluster)
    plain = loaded_cluster(subject.model_copy(update={"edits": {}})) if subject.edits else cluster
    return {
        "name": cluster.name,
        "nodes": cluster.node_count,
        "devices": [
            {"name": each.name, "profile": each.profile, "speed": each.speed, "memory_gib": each.memory_bytes / GIB}
            for each in cluster.devices
        ],
        "classes": _classes(cluster, plain),
        "links": [
            {"name": link.name, "class": link.link_class, "gbyte_per_s": link.bandwidth_bytes_per_s / GIGA}
            for link in cluster.links
        ],
        "drawing": drawing if len(drawing["links"]) <= _MOST_DRAWN else None,
    }


def _classes(cluster: DeviceGraph, plain: DeviceGraph) -> list[dict[str, Any]]:
    """Return the classes of links with the fastest link's numbers now, and those without the changes."""
    before = {link.link_class: link for link in reversed(plain.links)}
    counts = Counter(link.link_class for link in cluster.links)
    rows = []
    for link_class, count in counts.items():
        link = max(
            (each for each in cluster.links if each.link_class == link_class),
            key=lambda each: each.bandwidth_bytes_per_s,
        )
        first = before.get(link_class, link)
        rows.append(
            {
                "name": link_class,
                "count": count,
                "exclusive": link.exclusive,
                "gbyte_per_s": link.bandwidth_bytes_per_s / GIGA,
                "was_gbyte_per_s": first.bandwidth_bytes_per_s / GIGA,
                "latency_us": link.latency.at(_MESSAGE_BYTES) / MICRO,
                "was_latency_us": first.latency.at(_MESSAGE_BYTES) / MICRO,
            }
        )
    return rows
