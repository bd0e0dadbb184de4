"""The content of a cluster file for one machine, or several of its kind, from what files say and what is assumed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from groundwork.units import BITS_PER_BYTE, GIB, GIGA, MICRO
from hwprofiles.catalogue.transports import DEFAULT_TRANSPORT
from hwprofiles.machines.generations import Generation, assumed_library
from hwprofiles.machines.gpu_names import GpuKind
from hwprofiles.machines.topology_graph import topology_graph
from hwprofiles.readers.facts import Card, Gpu, Topology
from hwprofiles.readers.nccl_tests import transport_of_cards

MACHINE = "machine"
"""Name of the level that is one machine."""
_PCIE_SHARE = 0.77
"""Payload of PCIe 3 and 4 between GPUs as a share of the rate after the line code: 12 of 15.75 GB/s, 24.5 of 31.5."""
CARD_SHARE = 0.97
"""Payload of InfiniBand: 12.1 of 12.5 GB/s, and 24.3 of 25, in aistabci/abci2.0benchmark."""
_CARD_US = 0.5
_CHANNELS_OF_PCIE, _MOST_CHANNELS = 2, 24
_STEP_SPREAD = 0.02


def rounded(value: float) -> float:
    """Return four significant digits: finer than any measurement of links."""
    return float(f"{value:.4g}")


def machine_content(
    topology: Topology, gpu: GpuKind, generation: Generation, *, name: str, machines: int
) -> dict[str, Any]:
    """Return the content of a cluster file.

    Machines are joined by one switch that every card of theirs reaches; a machine without cards stands alone.
    """
    known = {each.pcie_bytes_per_s for each in topology.gpus}
    rates = generation.rates
    if len(known) == 1 and None not in known:
        rates = replace(rates, pcie_bytes_per_s=float(next(iter(known)) or 0) * _PCIE_SHARE)
    graph = topology_graph(topology, rates, profile=gpu.profile, memory_bytes=gpu.memory_bytes, name=name)
    count = len(topology.gpus)
    classes: dict[str, Any] = {}
    rules = []
    for link in graph.links:
        if link.source > link.target:
            continue  # both directions of a cable are one rule
        cables = round(link.bandwidth_bytes_per_s / rates.nvlink_bytes_per_s) if link.link_class == "nvlink" else 1
        rate = link.bandwidth_bytes_per_s / cables
        kind, own = link.link_class, topology.gpus[link.source].pcie_bytes_per_s if link.source < count else None
        if kind == "pcie" and own and len(known) > 1:
            rate = own * _PCIE_SHARE
            kind = f"pcie-{rate / GIGA:.3g}"
        classes[kind] = {
            "bandwidth_gbyte_per_s": rounded(rate / GIGA),
            "latency_us": rounded(link.latency.seconds[0] / MICRO),
        }
        ends = [graph.vertices[link.source], graph.vertices[link.target]]
        rules.append({"between": ends, "class": kind} | ({"count": cables} if cables > 1 else {}))
    switches = [{"name": vertex} for vertex in graph.vertices[count:]]
    levels: list[dict[str, Any]] = [
        {"name": MACHINE, "devices": [_devices(topology, gpu, count)], "switches": switches, "links": rules}
    ]
    content: dict[str, Any] = {
        "version": 1,
        "name": name,
        "description": f"{count} GPUs ({gpu.profile}) and {len(topology.cards)} network cards a machine.",
        "sources": [],
        "assumed": _assumed(topology, generation, gpu),
    }
    if topology.cards:
        content["parameters"] = {
            "nodes": {"description": "machines", "default": machines, "minimum": 1, "maximum": 1024}
        }
        levels.append(_network(topology, generation, classes))
    content["link_classes"] = classes
    content["library"] = assumed_library(generation, switched=any(topology.switch_links))
    content["levels"] = levels
    return content


def _devices(topology: Topology, gpu: GpuKind, count: int) -> dict[str, Any]:
    """Return the group of devices."""
    links = max((sum(row) for row in topology.nvlinks or ()), default=0)
    links = max(links, *topology.switch_links, 0) if topology.switch_links else links
    return {
        "name": "GPU",
        "count": count,
        "profile": gpu.profile,
        "memory_gib": rounded(_memory(topology.gpus, gpu) / GIB),
        "communication_channels": min(2 * links, _MOST_CHANNELS) or _CHANNELS_OF_PCIE,
        "step_spread": _STEP_SPREAD,
    }


def _memory(gpus: Sequence[Gpu], gpu: GpuKind) -> float:
    """Return the least memory that a file states, else that of the data sheet."""
    return min((each.memory_bytes for each in gpus if each.memory_bytes), default=gpu.memory_bytes)


def _network(topology: Topology, generation: Generation, classes: dict[str, Any]) -> dict[str, Any]:
    """Return the level that joins machines, and enter the classes of its links."""
    rules, transport = [], transport_between(topology.cards)
    for card in topology.cards:
        gbit = (card.bits_per_s or generation.card_gbit_per_s * GIGA) / GIGA
        kind = f"card-{gbit:g}"
        classes[kind] = {"bandwidth_gbyte_per_s": rounded(gbit / BITS_PER_BYTE * CARD_SHARE), "latency_us": _CARD_US}
        if transport:
            classes[kind]["transport"] = transport
        rules.append({"between": [f"{MACHINE}/{card.name}", "fabric"], "class": kind})
    return {"name": "cluster", "count": "nodes", "switches": [{"name": "fabric"}], "links": rules}


def transport_between(cards: Sequence[Card]) -> str:
    """Return the transport of cards: what their link layer or their names show; empty where these show none."""
    layers = {card.transport for card in cards if card.transport}
    return layers.pop() if len(layers) == 1 else transport_of_cards([card.name for card in cards])


def _assumed(topology: Topology, generation: Generation, gpu: GpuKind) -> list[str]:
    """Return what no file says."""
    nvlinks = any(map(any, topology.nvlinks or ())) or any(topology.switch_links)
    told = all(each.pcie_bytes_per_s for each in topology.gpus)
    pcie = "PCIe's payload 77 % of its rate" if told else f"PCIe {generation.pcie_gbyte_per_s:g} GB/s"
    links = [f"NVLinks {generation.nvlink_gbyte_per_s:g} GB/s each"] if nvlinks else []
    links += [pcie, f"between sockets {generation.inter_socket_gbyte_per_s:g} GB/s"]
    found = [f"rates and latencies of links, usual for machines with {gpu.profile}: {', '.join(links)}"]
    if topology.nvlinks is None:
        found.append("no NVLinks: no file shows whether there are any")
    if any(level is None for i, row in enumerate(topology.levels) for j, level in enumerate(row) if i != j):
        found.append("PCIe ways of GPUs that NVLinks join: no file shows them; as far apart as the rest allows")
    unknown = [card.name for card in topology.cards if not card.bits_per_s]
    if unknown:
        found.append(f"rate of {', '.join(unknown)}: {generation.card_gbit_per_s:g} Gbit/s; ibstat shows it")
    if topology.cards and not transport_between(topology.cards):
        found.append(f"transport: {DEFAULT_TRANSPORT}; the log of nccl-tests with NCCL_DEBUG=INFO shows it")
    found.append(
        "network: one switch that blocks nothing; a topology.conf shows more"
        if topology.cards
        else "one machine: no network card is known"
    )
    found.append(f"library: constants of NCCL on {generation.kin}; orrery calibrate fits them to nccl-tests")
    found.append("communication_channels: two for each NVLink, or two over PCIe; step_spread: 0.02")
    return found
