"""Measurements written as a cluster file that ``hwprofiles.catalogue.cluster_catalogue.load_cluster`` reads."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from executor.probe.device_probe import DeviceFacts
from executor.probe.link_probe import MeasuredLinks, MessageRow, OverheadRow
from executor.probe.probed_profile import write_yaml
from groundwork.units import GIB, GIGA, KILO, MICRO, NANO
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.machines.topology_graph import read_topo


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """Model of the times of messages: a latency that depends on the size, plus the size over the bandwidth."""

    bandwidth_bytes_per_s: float
    latency: Latency

    def time_s(self, size_bytes: float) -> float:
        """Return the time of one message, in seconds."""
        return self.latency.at(size_bytes) + size_bytes / self.bandwidth_bytes_per_s


def fitted_link(rows: Sequence[MessageRow]) -> LinkFit:
    """Fit bandwidth and latency to the times of messages.

    The bandwidth is the slope of the times over the largest sizes; the rest of a message's time is its latency.  The
    fit meets the times at the measured sizes, except those of messages that were faster than this bandwidth alone.
    """
    rows = sorted(rows, key=lambda row: row.size_bytes)
    last = rows[-1]
    long = [row for row in rows if row.size_bytes >= last.size_bytes / 40]
    grown_s = last.samples.median_s - long[0].samples.median_s
    rate = (last.size_bytes - long[0].size_bytes) / grown_s if grown_s > 0 else 0.0
    # Noise may make long messages faster than shorter ones: the bandwidth is then that of the fastest message.
    rate = rate or max(row.size_bytes / row.samples.median_s for row in rows)
    waits = tuple(max(row.samples.median_s - row.size_bytes / rate, 0.0) for row in rows)
    return LinkFit(bandwidth_bytes_per_s=rate, latency=Latency(tuple(float(row.size_bytes) for row in rows), waits))


def cluster_content(links: MeasuredLinks, profile: str, device: DeviceFacts, name: str) -> dict[str, Any]:
    """Return the content of a cluster file: ranks around a switch on each machine, machines around one switch.

    A message crosses two links inside a machine, and four between two machines; each has its share of the latency::

        rank0 - host0 - rank1          rank0 - host0 - network - host1 - rank2

    Messages of several pairs of one machine share no link but those of their own ranks.
    """
    hosts = list(dict.fromkeys(links.machines))
    inside, between = (_fit_of(links, between=kind) for kind in (False, True))
    classes: dict[str, Any] = {}
    rules: list[dict[str, Any]] = []
    devices = [
        {
            "name": "rank" if len(hosts) == 1 else f"machine{node}-rank",
            "count": links.machines.count(host),
            "profile": profile,
            **_memory(device),
            "node": node,
            **({"message_overhead": overhead} if (overhead := _overhead(links.overheads)) else {}),
        }
        for node, host in enumerate(hosts)
    ]
    switches = [{"name": f"host{node}"} for node in range(len(hosts))]
    if inside or between:
        # A rank that is alone on its machine sends over the network only.
        classes["inside"] = _class(inside, crossings=2) if inside else {"bandwidth_gbyte_per_s": 1e3, "latency_us": 0}
        rules += [
            {"between": [f"{row['name']}*", f"host{node}"], "class": "inside"} for node, row in enumerate(devices)
        ]
    if between:
        inner = inside or LinkFit(bandwidth_bytes_per_s=1.0, latency=Latency.constant(0.0))
        sizes = between.latency.sizes_bytes
        waits = tuple(max(between.latency.at(size) - inner.latency.at(size), 0.0) for size in sizes)
        classes["between"] = _class(replace(between, latency=Latency(sizes, waits)), crossings=2)
        switches.append({"name": "network"})
        rules.append({"between": ["host*", "network"], "class": "between"})
    return _file(name, device, classes, [{"name": "cluster", "devices": devices, "switches": switches, "links": rules}])


def _overhead(rows: Sequence[OverheadRow]) -> dict[str, float]:
    """Return the processor time of messages: of each message, each byte, and each byte that is added.

    In each sample a rank sends one message and receives one, so it counts twice.  In an all-reduce over n ranks by a
    ring a rank sends and receives 2 (n - 1) / n of the buffer, and adds (n - 1) / n of it, which takes the rest of the
    measured time.
    """
    if not rows:
        return {}
    short, long = (row for row in sorted(rows, key=lambda row: row.size_bytes) if not row.adds)
    byte_s = max(long.samples.median_s - short.samples.median_s, 0.0) / (long.size_bytes - short.size_bytes) / 2
    message_s = max(short.samples.median_s / 2 - byte_s * short.size_bytes, 0.0)
    total = next(row for row in rows if row.adds)
    steps = total.ranks - 1
    added_s = total.samples.median_s - 4 * steps * (message_s + byte_s * total.size_bytes / total.ranks)
    return {
        "message_us": message_s / MICRO,
        "byte_ns": byte_s / NANO,
        "add_byte_ns": max(added_s, 0.0) / (total.size_bytes * steps / total.ranks) / NANO,
    }


def _fit_of(links: MeasuredLinks, *, between: bool) -> LinkFit | None:
    """Return the fit of messages between two machines, or inside one; None if there were none."""
    rows = [row for row in links.messages if row.between == between]
    return fitted_link(rows) if rows else None


def _class(fit: LinkFit, *, crossings: int) -> dict[str, Any]:
    """Return a class of links, of which a message crosses several that share its latency."""
    rows = zip(fit.latency.sizes_bytes, fit.latency.seconds, strict=True)
    return {
        "bandwidth_gbyte_per_s": fit.bandwidth_bytes_per_s / GIGA,
        "latency_table": [{"size_kbyte": size / KILO, "latency_us": s / MICRO / crossings} for size, s in rows],
    }


def _memory(device: DeviceFacts) -> dict[str, Any]:
    """Return the keys of a group of devices that say what memory each has."""
    reserve = device.memory_reserve
    return {
        "memory_gib": device.memory_bytes / GIB,
        "memory_reserve": {"fixed_gib": reserve.fixed_bytes / GIB, "share": reserve.share},
    }


def gpu_topology(device: DeviceFacts, profile: str, ranks: int) -> DeviceGraph | None:
    """Return the first ``ranks`` GPUs of the machine and their links, as the driver lists them, None if it does not."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return None
    table = subprocess.run([tool, "topo", "-m"], capture_output=True, text=True, timeout=60, check=False)
    if table.returncode:
        return None
    graph = read_topo(table.stdout, profile=profile, memory_bytes=device.memory_bytes)
    return graph.take(ranks) if ranks <= len(graph.devices) else None


def topology_content(graph: DeviceGraph, links: MeasuredLinks, device: DeviceFacts, name: str) -> dict[str, Any]:
    """Return the content of a cluster file: a device graph with the rates measured between the first two ranks.

    The class of links that bounds their route gets the measured bandwidth, and no class on the route has less.  Classes
    off the route have no more, or the route would be another.  All latencies are scaled by one factor.
    """
    fit = _fit_of(links, between=False)
    rates, factor = _measured_rates(graph, fit) if fit else ({}, 1.0)
    classes: dict[str, Any] = {}
    known: dict[tuple[str, float], str] = {}
    rules = []
    for link in graph.links:
        if link.source > link.target:
            continue  # both directions of a cable are one rule
        key = (link.link_class, link.bandwidth_bytes_per_s)
        if key not in known:
            same = sum(kind == link.link_class for kind, _ in known)
            known[key] = f"{link.link_class}-{same}" if same else link.link_class
            classes[known[key]] = {
                "bandwidth_gbyte_per_s": link.bandwidth_bytes_per_s * rates.get(link.link_class, 1.0) / GIGA,
                "latency_us": link.latency.seconds[0] * factor / MICRO,
            }
        rules.append({"between": [graph.vertices[link.source], graph.vertices[link.target]], "class": known[key]})
    devices = [{"name": row.name, "profile": row.profile, **_memory(device)} for row in graph.devices]
    switches = [{"name": vertex} for vertex in graph.vertices[len(graph.devices) :]]
    level = {"name": "machine", "devices": devices, "switches": switches, "links": rules}
    return _file(name, device, classes, [level])


def _measured_rates(graph: DeviceGraph, fit: LinkFit) -> tuple[dict[str, float], float]:
    """Return the factor of the bandwidth of each class of links, and the factor of all latencies."""
    route = [graph.links[i] for i in graph.route(0, 1)]
    slowest = min(route, key=lambda link: link.bandwidth_bytes_per_s)
    fastest: dict[str, float] = {}
    for link in graph.links:
        fastest[link.link_class] = max(fastest.get(link.link_class, 0.0), link.bandwidth_bytes_per_s)
    rates = {kind: min(fit.bandwidth_bytes_per_s / most, 1.0) for kind, most in fastest.items()}
    for link in route:
        rates[link.link_class] = max(fit.bandwidth_bytes_per_s / link.bandwidth_bytes_per_s, 1.0)
    rates[slowest.link_class] = fit.bandwidth_bytes_per_s / slowest.bandwidth_bytes_per_s
    return rates, fit.latency.seconds[0] / sum(link.latency.seconds[0] for link in route)


def _file(name: str, device: DeviceFacts, classes: dict[str, Any], levels: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": 1,
        "name": name,
        "description": f"Measured here: {device.label}.",
        "sources": [f"Measured {device.measured} with {device.software}"],
        "link_classes": classes,
        "levels": levels,
    }


def write_cluster(path: Path, content: dict[str, Any]) -> None:
    """Write a cluster file; an existing file is replaced as a whole."""
    write_yaml(
        path, "Written by orrery probe; latencies are by message size, a share for each link of a route.", content
    )
