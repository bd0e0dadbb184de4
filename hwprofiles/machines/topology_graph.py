"""The device graph of one machine, from what a file says about its NVLinks and its PCIe tree.

The PCIe relation of pairs with NVLink, where it is not known, follows from third devices where possible, and is taken
to be the farthest otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hwprofiles.devices.device import GPU_RESERVE, Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link
from hwprofiles.readers.facts import LEVEL_NAMES, Topology
from hwprofiles.readers.topology_table import topology_of_table


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRates:
    """The bandwidths and latencies of links where files do not show them; by default those that NCCL assumes."""

    nvlink_bytes_per_s: float = 22e9
    """Bandwidth of one NVLink in one direction: 18e9 for P100."""
    pcie_bytes_per_s: float = 12e9
    """Bandwidth of PCIe gen3 x16."""
    inter_socket_bytes_per_s: float = 9e9
    nvlink_latency_s: float = 1.5e-6
    pcie_latency_s: float = 1e-6
    inter_socket_latency_s: float = 1.5e-6


def topology_graph(
    topology: Topology, rates: LinkRates, *, profile: str, memory_bytes: float, name: str
) -> DeviceGraph:
    """Return the device graph of a machine; network cards are vertices without links to other machines."""
    count = len(topology.gpus)
    names = [*(f"GPU{i}" for i in range(count)), *(card.name for card in topology.cards)]
    builder = _Builder(names, rates)
    builder.add_nvlinks(topology)
    builder.add_tree(topology.levels)
    devices = [
        Device(name=entry, node=0, profile=profile, memory_bytes=memory_bytes, memory_reserve=GPU_RESERVE)
        for entry in names[:count]
    ]
    return DeviceGraph(name, devices, builder.vertices[count:], builder.links)


def read_topo(
    text: str, *, profile: str, memory_bytes: float, name: str = "topology", rates: LinkRates | None = None
) -> DeviceGraph:
    """Return the device graph of the machine whose table was printed.

    Args:
        text: Output of ``nvidia-smi topo -m``; a legend after the table is ignored.
        profile: Compute profile of every GPU.
        memory_bytes: Memory of every GPU.
        name: Name of the cluster.
        rates: Bandwidths and latencies, all full duplex and fairly shared.

    Raises:
        ConfigError: There is no table, a row is missing or too short, a word is unknown, or the table contradicts
            itself.
    """
    topology = topology_of_table(text, "topology table")
    return topology_graph(topology, rates or LinkRates(), profile=profile, memory_bytes=memory_bytes, name=name)


class _Builder:
    """The vertices and links collected so far."""

    def __init__(self, names: Sequence[str], rates: LinkRates) -> None:
        self.vertices = list(names)
        self.links: list[Link] = []
        self._rates = rates

    def add_nvlinks(self, topology: Topology) -> None:
        """Join GPUs by their NVLinks: pair by pair, and by one switch."""
        if any(topology.switch_links):
            self.vertices.append("nvswitch")
            for gpu, lanes in enumerate(topology.switch_links):
                if lanes:
                    self._join(gpu, len(self.vertices) - 1, "nvlink", lanes)
        for a, row in enumerate(topology.nvlinks or ()):
            for b in range(a):
                if row[b]:
                    self._join(b, a, "nvlink", row[b])

    def add_tree(self, levels: Sequence[Sequence[int | None]]) -> None:
        """Join all entries by a PCIe tree: at each level, those that meet there get a common vertex.

        With GPU0 and GPU1 below one switch, and GPU2 below the same host bridge::

            level plx     GPU0 -- plx0 -- GPU1
            level host    plx0 -- host0 -- GPU2
        """
        # The highest vertex above each entry so far.
        top = list(range(len(levels)))
        for rank, level in enumerate(LEVEL_NAMES):
            last = rank == len(LEVEL_NAMES) - 1
            made = 0
            for group in [list(range(len(levels)))] if last else _groups(levels, rank):
                below = sorted({top[entry] for entry in group})
                if len(below) > 1:
                    self.vertices.append(f"{level}{made}")
                    made += 1
                    for vertex in below:
                        self._join(vertex, len(self.vertices) - 1, "inter-socket" if last else "pcie", 1)
                    top = [len(self.vertices) - 1 if entry in group else top[entry] for entry in range(len(top))]

    def _join(self, a: int, b: int, link_class: str, count: int) -> None:
        """Add the two directions of a link of ``count`` cables."""
        key = link_class.replace("-", "_")
        for source, target in ((a, b), (b, a)):
            self.links.append(
                Link(
                    name=f"{self.vertices[source]} -> {self.vertices[target]}",
                    source=source,
                    target=target,
                    both_ways=False,
                    bandwidth_bytes_per_s=getattr(self._rates, f"{key}_bytes_per_s") * count,
                    latency=Latency.constant(getattr(self._rates, f"{key}_latency_s")),
                    exclusive=False,
                    link_class=link_class,
                )
            )


def _groups(levels: Sequence[Sequence[int | None]], rank: int) -> list[list[int]]:
    """Return the groups of entries that meet at a level or below it, directly or over others, in order."""
    group = list(range(len(levels)))
    for a, row in enumerate(levels):
        for b, level in enumerate(row):
            if level is not None and level <= rank and group[a] != group[b]:
                old, new = max(group[a], group[b]), min(group[a], group[b])
                group = [new if entry == old else entry for entry in group]
    return [[i for i, entry in enumerate(group) if entry == first] for first in sorted(set(group))]
