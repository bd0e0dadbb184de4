"""What one file says about a machine or a network, whichever program printed it."""

from dataclasses import dataclass

LEVEL_NAMES = ("plx", "bridge", "host", "socket", "system")
"""Vertices of the PCIe tree from the leaves up: where two entries meet is an index into these."""
BELOW_HOST = 1
"""Highest level at which two entries meet without their host bridge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; what a file does not say is empty or None."""

    model: str = ""
    """Product name, such as ``Tesla V100-SXM2-16GB``."""
    bus: str = ""
    """PCI address, such as ``0000:1a:00.0``."""
    memory_bytes: float | None = None
    capability: int | None = None
    """CUDA's compute capability without its point, such as 80."""
    pcie_bytes_per_s: float | None = None
    """Signalling rate of its PCIe link in one direction."""
    affinity: str = ""
    """Processors that are near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One network card."""

    name: str
    bits_per_s: float | None = None
    """Signalling rate of its port; None if unknown."""
    transport: str = ""
    """Transport that its link layer has; empty where the file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """GPUs and network cards of one machine, and how they are joined."""

    origin: str
    """Kind and path of the file, for messages."""
    gpus: tuple[Gpu, ...]
    cards: tuple[Card, ...]
    levels: tuple[tuple[int | None, ...], ...]
    """Level of the PCIe tree at which two entries meet, GPUs first, then cards; None where the file does not say."""
    nvlinks: tuple[tuple[int, ...], ...] | None
    """NVLinks between each two GPUs; None where the file cannot say."""
    switch_links: tuple[int, ...] = ()
    """NVLinks of each GPU to switches of NVLinks; empty if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRates:
    """Bandwidth and latency between each two GPUs of one machine, each pair measured alone."""

    origin: str
    models: tuple[str, ...]
    """Product names; empty where the file does not say."""
    bytes_per_s: tuple[tuple[float, ...], ...]
    """One way; the diagonal has no meaning."""
    latency_s: tuple[tuple[float, ...], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """Measured times of one collective."""

    origin: str
    collective: str
    """``all-reduce``, ``all-gather``, ``reduce-scatter``, ``broadcast`` or ``all-to-all``."""
    hosts: tuple[str, ...]
    """Machine of each rank."""
    models: tuple[str, ...]
    size_bytes: tuple[float, ...]
    time_s: tuple[float, ...]
    transport: str = ""
    release: str = ""
    """Release of the library, such as ``2.18.3``; empty where the file does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardList:
    """Network cards of one machine that are up, and their rates."""

    origin: str
    cards: tuple[Card, ...]
    down: tuple[str, ...]
    """Cards that are there but not up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuList:
    """GPUs of one machine by name."""

    origin: str
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTree:
    """A tree of network switches: how many machines or switches hang on one, from the leaves up."""

    origin: str
    machines: int
    most_below: tuple[int, ...]
    """Largest number of children of a switch, level by level; the last level has one switch."""
    even: bool
    """Flag that the switches of each level have equally many children."""


Facts = Topology | PairRates | Collectives | CardList | GpuList | SwitchTree
