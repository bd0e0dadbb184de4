"""Reader of the table that ``nvidia-smi topo -m`` prints, as the device graph of one machine.

The table shows, for each pair of GPUs and network cards, the NVLinks between them or else the level of the PCIe
tree at which they meet.  It does not show the PCIe relation of pairs with NVLink; that follows from third devices
where possible, and is taken to be the farthest otherwise.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hwprofiles import ConfigError
from hwprofiles.devices import Device, DeviceGraph, Latency, Link

__all__ = ["TopoRates", "read_topo"]

LEVELS = (
    ("plx", ("PIX",)),
    ("bridge", ("PXB",)),
    ("host", ("PHB",)),
    ("socket", ("NODE",)),
    ("system", ("SYS", "SOC")),
)
"""Names of the PCIe tree's vertices from the leaves up, and the words for pairs that meet there."""
RANK = {word: rank for rank, (_, words) in enumerate(LEVELS) for word in words}
"""Level at which the pairs of each word meet."""
MOST_NVLINKS = 18
"""Largest number of NVLinks of one GPU (H100).  A table with more in a row counts the same links to an NVSwitch once
for each peer."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences of terminals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopoRates:
    """The bandwidths and latencies of links, which the table does not show; by default those that NCCL assumes."""

    nvlink_bytes_per_s: float = 22e9
    """Bandwidth of one NVLink in one direction: 18e9 for P100."""
    pcie_bytes_per_s: float = 12e9
    """Bandwidth of PCIe gen3 x16."""
    inter_socket_bytes_per_s: float = 9e9
    """Bandwidth between sockets."""
    nvlink_latency_s: float = 1.5e-6
    """Latency of an NVLink."""
    pcie_latency_s: float = 1e-6
    """Latency of a PCIe link."""
    inter_socket_latency_s: float = 1.5e-6
    """Latency between sockets."""


def read_topo(
    text: str, *, profile: str, memory_bytes: float, name: str = "topology", rates: TopoRates | None = None
) -> DeviceGraph:
    """Return the device graph of the machine whose table was printed.

    Args:
        text: Output of ``nvidia-smi topo -m``; a legend after the table is ignored.
        profile: Compute profile of every GPU.
        memory_bytes: Memory of every GPU.
        name: Name of the cluster.
        rates: Bandwidths and latencies, all full duplex and fairly shared.

    Raises:
        ConfigError: There is no table, a row is missing or too short, a word is unknown, or the table is
            not symmetric.
    """
    names, cells = _table(text)
    gpus = sorted(range(len(names)), key=lambda i: not names[i].startswith("GPU"))  # devices first, order kept
    names, cells = [names[i] for i in gpus], [[cells[i][j] for j in gpus] for i in gpus]
    count = sum(entry.startswith("GPU") for entry in names)
    builder = _Builder(names, rates or TopoRates())
    builder.add_nvlinks(cells, count)
    builder.add_tree(cells)
    devices = [Device(name=entry, node=0, profile=profile, memory_bytes=memory_bytes) for entry in names[:count]]
    return DeviceGraph(name, devices, builder.vertices[count:], builder.links)


def _table(text: str) -> tuple[list[str], list[list[str]]]:
    """Return the names of the table's rows and its checked entries."""
    lines = [line.split() for line in ANSI.sub("", text).splitlines() if line.strip()]
    if not lines or not lines[0][0].startswith("GPU"):
        raise ConfigError("topology table must start with a line of GPU names, got none")
    # Columns of CPU and NUMA affinities follow the names.
    end = next((i for i, word in enumerate(lines[0]) if word in ("CPU", "NUMA", "GPU")), len(lines[0]))
    names = lines[0][:end]
    rows = {line[0]: line[1 : 1 + end] for line in lines[1:] if line[0] in names}
    for row in names:
        if len(rows.get(row, ())) != end:
            raise ConfigError(f"topology row {row} must have {end} entries, got {len(rows.get(row, ()))}")
    cells = [rows[row] for row in names]
    for i, row in enumerate(names):
        for j, column in enumerate(names):
            _check(row, column, cells[i][j], cells[j][i])
    return names, cells


def _check(row: str, column: str, word: str, mirrored: str) -> None:
    """Raise where an entry is unknown or differs from the mirrored one."""
    known = word == "X" if row == column else word in RANK or re.fullmatch(r"NV[1-9]\d*", word)
    if not known:
        rule = "X" if row == column else f"NV# or one of {', '.join(RANK)}"
        raise ConfigError(f"topology entry {row}, {column} must be {rule}, got {word!r}")
    if word != mirrored:
        raise ConfigError(f"topology entry {row}, {column} must equal {column}, {row}, got {word!r} and {mirrored!r}")


class _Builder:
    """The vertices and links collected so far."""

    def __init__(self, names: Sequence[str], rates: TopoRates) -> None:
        self.vertices = list(names)
        self.links: list[Link] = []
        self._rates = rates

    def add_nvlinks(self, cells: Sequence[Sequence[str]], count: int) -> None:
        """Join GPUs by their NVLinks: pair by pair, or all by one NVSwitch."""
        lanes = [[int(word[2:]) if word.startswith("NV") else 0 for word in row[:count]] for row in cells[:count]]
        if max(sum(row) for row in lanes) > MOST_NVLINKS:
            self.vertices.append("nvswitch")
            for gpu, row in enumerate(lanes):
                self._join(gpu, len(self.vertices) - 1, "nvlink", max(row))
            return
        for a, row in enumerate(lanes):
            for b in range(a):
                if row[b]:
                    self._join(b, a, "nvlink", row[b])

    def add_tree(self, cells: Sequence[Sequence[str]]) -> None:
        """Join all entries by a PCIe tree: at each level, those that meet there get a common vertex.

        With GPU0 and GPU1 at ``PIX``, and GPU2 at ``PHB`` from both::

            level plx     GPU0 -- plx0 -- GPU1
            level host    plx0 -- host0 -- GPU2
        """
        # The highest vertex above each entry so far.
        top = list(range(len(cells)))
        for rank, (level, _) in enumerate(LEVELS):
            last = rank == len(LEVELS) - 1
            made = 0
            for group in [list(range(len(cells)))] if last else _groups(cells, rank):
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


def _groups(cells: Sequence[Sequence[str]], rank: int) -> list[list[int]]:
    """Return the groups of entries that meet at a level or below it, directly or over others, in order."""
    group = list(range(len(cells)))
    for a, row in enumerate(cells):
        for b, word in enumerate(row):
            if RANK.get(word, len(LEVELS)) <= rank and group[a] != group[b]:
                old, new = max(group[a], group[b]), min(group[a], group[b])
                group = [new if entry == old else entry for entry in group]
    return [[i for i, entry in enumerate(group) if entry == first] for first in sorted(set(group))]
