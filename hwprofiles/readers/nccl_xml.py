"""Reader of the topology that NCCL writes to the file that ``NCCL_TOPO_DUMP_FILE`` names."""

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from groundwork.errors import ConfigError
from hwprofiles.readers.facts import Card, Gpu, Topology
from hwprofiles.readers.pci_tree import PciPlace, check_count, lane_rate, meeting_levels

_MEGABIT = 1e6
_MOST_LINKS = 1024
_SWITCH_CLASS, _DISPLAY_CLASS = "0x0680", "0x03"
"""Beginnings of the PCI classes of an NVSwitch and of a GPU."""


def topology_of_nccl(system: Element, origin: str) -> Topology:
    """Return what NCCL's XML says about the first machine in it; what it does not have is left open.

    Raises:
        ConfigError: There is no GPU, a number is none, or the NVLinks of two GPUs contradict each other.
    """
    found = list(_entries(system))
    gpus = [(place, pci, gpu) for place, pci, gpu in found if gpu.tag == "gpu"]
    gpus.sort(key=lambda entry: (_number(entry[2], "dev", origin), entry[1].get("busid", "").lower()))
    if not gpus:
        raise ConfigError(f"{origin} shows no GPU")
    check_count(gpus, "GPUs", origin)
    nets = list({net.get("name", ""): (place, net) for place, _, net in reversed(found) if net.tag == "net"}.values())
    nets.reverse()
    check_count(nets, "cards", origin)
    buses = [pci.get("busid", "").lower() for _, pci, _ in gpus]
    if twice := [bus for bus in buses if buses.count(bus) > 1]:
        raise ConfigError(f"{origin} contradicts itself: two GPUs have the bus {twice[0]!r}")
    pairs, switched = _nvlinks([gpu for _, _, gpu in gpus], buses, origin)
    return Topology(
        origin=origin,
        gpus=tuple(
            Gpu(
                bus=bus,
                capability=_natural(gpu, "sm", origin) or None,
                pcie_bytes_per_s=lane_rate(pci.get("link_speed", ""), pci.get("link_width", "")),
            )
            for (_, pci, gpu), bus in zip(gpus, buses, strict=True)
        ),
        cards=tuple(
            Card(name=net.get("name", ""), bits_per_s=_natural(net, "speed", origin) * _MEGABIT or None)
            for _, net in nets
        ),
        levels=meeting_levels([place for place, *_ in gpus] + [place for place, _ in nets], bridges_inside=0),
        nvlinks=pairs,
        switch_links=switched if any(switched) else (),
    )


def _entries(system: Element) -> Iterator[tuple[PciPlace, Element, Element]]:
    """Yield the place, PCI device and element of each GPU and each network port of the first machine."""
    cpus = [each for each in system if each.tag == "cpu"]
    first = cpus[0].get("host_hash") if cpus else None
    for number, cpu in enumerate(each for each in cpus if each.get("host_hash") == first):
        socket = cpu.get("numaid", f"socket {number}")
        waiting: list[tuple[Element, tuple[str, ...]]] = [(child, ()) for child in reversed(cpu)]
        while waiting:
            element, above = waiting.pop()
            place = PciPlace(socket, "", above)
            if element.tag == "pci":
                ends = [child for child in element if child.tag in ("gpu", "nic")]
                own = above if ends else (*above, element.get("busid", f"switch {id(element)}"))
                waiting += [(child, own) for child in reversed(element) if child.tag == "pci"]
                yield from ((place, element, each) for end in ends for each in _ends(end))
            elif element.tag == "nic":  # a card outside the tree of buses
                yield from ((place, element, each) for each in _ends(element))


def _ends(element: Element) -> Iterator[Element]:
    """Yield a GPU, or the ports of a network card that lead somewhere."""
    if element.tag == "gpu":
        yield element
    yield from (net for net in element if element.tag == "nic" and net.tag == "net" and net.get("name"))


def _nvlinks(gpus: list[Element], buses: list[str], origin: str) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return the NVLinks between each two GPUs, and those of each GPU to switches."""
    pairs = [[0] * len(gpus) for _ in gpus]
    switched = [0] * len(gpus)
    for a, gpu in enumerate(gpus):
        for link in (child for child in gpu if child.tag == "nvlink"):
            count = _number(link, "count", origin)
            if not 0 <= count <= _MOST_LINKS:
                raise ConfigError(f"{origin}: count of NVLinks must be in 0 .. {_MOST_LINKS}, got {count}")
            target = link.get("target", "").lower()
            if link.get("tclass", _DISPLAY_CLASS).startswith(_SWITCH_CLASS):
                switched[a] += count
            elif target in buses and buses.index(target) != a:
                pairs[a][buses.index(target)] += count
    for a, row in enumerate(pairs):
        for b in range(a):
            if row[b] != pairs[b][a]:
                raise ConfigError(
                    f"{origin} contradicts itself: {row[b]} NVLinks from GPU{a} to GPU{b}, but {pairs[b][a]} back"
                )
    return tuple(map(tuple, pairs)), tuple(switched)


def _number(element: Element, key: str, origin: str) -> int:
    """Return a whole number of an element; 0 where it has none."""
    text = element.get(key, "0").strip()
    if not re.fullmatch(r"-?\d{1,15}", text, re.ASCII):
        raise ConfigError(f"{origin}: {key} of {element.tag} must be a whole number, got {text[:40]!r}")
    return int(text)


def _natural(element: Element, key: str, origin: str) -> int:
    """Return a whole number of an element that is not negative; 0 where it has none."""
    value = _number(element, key, origin)
    if value < 0:
        raise ConfigError(f"{origin}: {key} of {element.tag} must be a whole number >= 0, got {value}")
    return value
