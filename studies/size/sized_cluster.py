"""Clusters of every size that a specification can have: the first devices of one node, then whole nodes."""

from dataclasses import dataclass

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_with, describe_cluster, load_cluster
from hwprofiles.devices.device_graph import DeviceGraph

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
        most_nodes = int(min(rules[NODES].maximum, most_devices // each))
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
