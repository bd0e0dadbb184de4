"""The two papers' machines, as they describe them and as they price them."""

from dataclasses import replace

from hwprofiles.catalogue import load_cluster
from hwprofiles.devices import DeviceGraph, Latency, Link

__all__ = ["BUS_BYTES_PER_S", "bus_of", "cluster_of", "with_host_server"]

BUS_BYTES_PER_S = {"k80": 4.5e9, "p100": 18e9, "p100-4": 18e9}
"""The one bandwidth of the papers' form.  K80: what Table 2 of DeePa is computed with, 2 x 16 x 9216 x 4096 x 4 B /
1.075 s.  P100: payload of an NVLink 1.0.  Neither paper prints theirs, and this one is a choice among several: rows
that depend on it say what another gives."""
_EDR_BYTES_PER_S = 12.1e9
_HOST_BYTES_PER_S = 50e9
"""Four channels of DDR4 in a Xeon E5 v4, sustained; no result depends on it, for every path to it is narrower."""

_SPECS = {"k80": "k80-16", "p100": "p100-4x4:nodes=1", "p100-4": "p100-4x4:nodes=4"}


def cluster_of(name: str) -> DeviceGraph:
    """A cluster of the papers.

    Args:
        name: ``k80``, ``p100`` (one node) or ``p100-4`` (four); ``bus NAME`` and ``host NAME`` change it as
            ``bus_of`` and ``with_host_server`` say, ``edr-bus NAME`` takes an EDR card's bandwidth for the bus;
            ``one NAME`` keeps its first device.
    """
    change, _, base = name.rpartition(" ")
    cluster = load_cluster(_SPECS[base])
    if change == "bus":
        return bus_of(cluster, BUS_BYTES_PER_S[base])
    if change == "edr-bus":
        return bus_of(cluster, _EDR_BYTES_PER_S)
    if change == "host":
        return with_host_server(cluster)
    return cluster.take(1) if change == "one" else cluster


def bus_of(cluster: DeviceGraph, bytes_per_s: float) -> DeviceGraph:
    """The same devices around one link that all transfers share: the papers' total bytes over one bandwidth."""
    count = len(cluster.devices)
    bus, port = _link("bus", count, count + 1, bytes_per_s), 1e6 * bytes_per_s
    ends = [
        link
        for i in range(count)
        for link in (_link(f"from {i}", i, count, port), _link(f"to {i}", count + 1, i, port))
    ]
    return DeviceGraph(f"{cluster.name} as one bus", cluster.devices, ("entry", "exit"), [bus, *ends])


def with_host_server(cluster: DeviceGraph) -> DeviceGraph:
    """The same cluster with what the first device exchanges held in the memory of the first socket.

    Parameter servers are located in CPU memory in TensorFlow and PyTorch (DeePa, Sec. 5).  A central server
    is the first replica; here that replica sits at the root of its socket, so that the others' gradients
    take the way to the host.  Its own does not: 15 of 16 replicas push.
    """
    server = cluster.devices[0]
    root = next(i for i, name in enumerate(cluster.vertices) if name.endswith(("socket0/root", "node0/root0")))
    links = [link for link in cluster.links if 0 not in (link.source, link.target)]
    ends = [_link("host out", 0, root, _HOST_BYTES_PER_S), _link("host in", root, 0, _HOST_BYTES_PER_S)]
    devices = [replace(server, name="host server"), *cluster.devices[1:]]
    switches = cluster.vertices[len(devices) :]
    return DeviceGraph(f"{cluster.name} with a host server", devices, switches, [*links, *ends])


def _link(name: str, source: int, target: int, bandwidth_bytes_per_s: float) -> Link:
    return Link(
        name=name,
        source=source,
        target=target,
        both_ways=False,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency=Latency((0.0,), (0.0,)),
        exclusive=False,
        link_class=name.split()[0],
    )
