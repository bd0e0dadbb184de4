"""Reader of the XML that hwloc's ``lstopo`` writes; it shows the PCIe tree, not NVLinks."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from groundwork.errors import ConfigError
from hwprofiles.readers.facts import Card, Gpu, Topology
from hwprofiles.readers.pci_tree import PciPlace, check_count, meeting_levels

_SOCKETS = ("Package", "Socket", "NUMANode", "Group")
_KIB = 1024
_NETWORK, _OPENFABRICS = "2", "3"
"""Types of devices of the operating system."""
_GIGABYTE = 1e9


def topology_of_lstopo(root: Element, origin: str) -> Topology:
    """Return what lstopo's XML says about a machine.

    Raises:
        ConfigError: There is no GPU: perhaps it was written without I/O devices (``lstopo --whole-io``).
    """
    found = list(_devices(root))
    gpus = [(place, device) for place, device in found if _is_gpu(device)]
    if not gpus:
        raise ConfigError(f"{origin} shows no GPU; lstopo --whole-io lists all devices")
    check_count(gpus, "GPUs", origin)
    fast = [(place, name) for place, device in found for name in _ports(device, _OPENFABRICS)]
    cards = fast or [(place, name) for place, device in found for name in _ports(device, _NETWORK)]
    check_count(cards, "cards", origin)
    return Topology(
        origin=origin,
        gpus=tuple(_gpu(device) for _, device in gpus),
        cards=tuple(Card(name=name) for _, name in cards),
        levels=meeting_levels([place for place, _ in (*gpus, *cards)], bridges_inside=1),
        nvlinks=None,
    )


def _devices(root: Element) -> Iterator[tuple[PciPlace, Element]]:
    """Yield each PCI device with its place, in the order of the file."""
    waiting = [(each, PciPlace("", "", ())) for each in reversed(root) if each.tag == "object"]
    while waiting:
        element, place = waiting.pop()
        kind = element.get("type", "")
        name = element.get("gp_index") or element.get("os_index") or str(id(element))
        if kind in _SOCKETS and not place.host:
            # A group or a NUMA node inside a package is part of it.
            place = PciPlace(place.socket or f"{kind} {name}", "", ())
        elif kind == "Bridge":
            host = element.get("bridge_type", "").startswith("0")
            own = PciPlace(place.socket, name, ())
            place = own if host else PciPlace(place.socket, place.host, (*place.switches, name))
        elif kind == "PCIDev":
            yield place, element
        waiting += [(child, place) for child in reversed(element) if child.tag == "object"]


def _is_gpu(device: Element) -> bool:
    """Return whether a device is a GPU that computes: a 3D controller, or a display of a maker of such."""
    kind = device.get("pci_type", "")
    return kind.startswith("0302") or (kind.startswith("0300") and ("[10de:" in kind or "[1002:" in kind))


def _ports(device: Element, kind: str) -> Iterator[str]:
    """Yield the names of the network devices of a PCI device."""
    for child in device:
        if child.get("type") == "OSDev" and child.get("osdev_type") == kind and child.get("name"):
            yield child.get("name", "")


def _gpu(device: Element) -> Gpu:
    """Return what is known about a GPU."""
    infos = {
        info.get("name", ""): info.get("value", "") for child in (device, *device) for info in child.findall("info")
    }
    memory = infos.get("CUDAGlobalMemorySize") or infos.get("NVIDIAMemorySize") or ""
    return Gpu(
        model=infos.get("GPUModel", ""),
        bus=device.get("pci_busid", "").lower(),
        memory_bytes=float(memory) * _KIB if memory.isascii() and memory.isdigit() and len(memory) < 16 else None,
        pcie_bytes_per_s=_speed(device.get("pci_link_speed", "")),
    )


def _speed(text: str) -> float | None:
    """Return the signalling rate of a PCIe link that is given in GB/s; None where it is unknown."""
    try:
        speed = float(text) * _GIGABYTE
    except ValueError:
        return None
    return speed if 1e8 < speed < 1e12 else None
