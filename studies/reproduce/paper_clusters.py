"""Machines of DeePa and of the layer-wise paper, as the papers describe them and as they price them."""

from dataclasses import replace

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link

BUS_BYTES_PER_S = {"k80": 4.5e9, "p100": 18e9, "p100-4": 18e9}
"""The one bandwidth of the papers' form.  K80: the one that Table 2 of DeePa implies, 2 x 16 x 9216 x 4096 x 4 B /
1.075 s.  P100: payload of an NVLink 1.0.  Neither paper prints its bandwidth, and this is a choice among several: notes
of the rows that depend on it give the value for another."""
_EDR_BYTES_PER_S = 12.1e9
_HOST_BYTES_PER_S = 50e9
"""Four channels of DDR4 in a Xeon E5 v4, sustained; no result depends on it, because every path to it is narrower."""

_SPECS = {"k80": "k80-16", "p100": "p100-4x4:nodes=1", "p100-4": "p100-4x4:nodes=4"}


def cluster_of(name: str) -> DeviceGraph:
    """Return a cluster of the papers.

    Args:
        name: ``k80``, ``p100`` (one node) or ``p100-4`` (four).  ``bus NAME`` applies ``bus_of`` to it, ``edr-bus
            NAME`` too, with an EDR card's bandwidth; ``host NAME`` applies ``with_host_server``; ``one NAME`` keeps
            its first device.
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
    """Return the same devices around one link that all transfers share.

    Args:
        cluster: Devices.
        bytes_per_s: Bandwidth of the link: the time of all transfers is the papers' total bytes over one bandwidth.

    Source: Jia et al. (anonymous), "Exploring the hidden dimension ...", Eq. 1, functions xfer and update.
    """
    count = len(cluster.devices)
    bus, port = _link("bus", count, count + 1, bytes_per_s), 1e6 * bytes_per_s
    ends = [
        link
        for i in range(count)
        for link in (_link(f"from {i}", i, count, port), _link(f"to {i}", count + 1, i, port))
    ]
    return DeviceGraph(f"{cluster.name} as one bus", cluster.devices, ("entry", "exit"), [bus, *ends])


def with_host_server(cluster: DeviceGraph) -> DeviceGraph:
    """Return the same cluster with the parameter server in the memory of the first socket.

    A central server is the first replica; here that replica is attached to the root of its socket, so that the other
    replicas' gradients take the route to the host.  Its own gradients do not: 15 of 16 replicas push.

    Source: Jia et al. (anonymous), "Exploring the hidden dimension ...", Sec. 5: parameter servers are located in CPU
    memory in TensorFlow and PyTorch.
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
