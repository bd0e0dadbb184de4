"""Writes what was measured as a cluster file that ``hwprofiles.catalogue.cluster_catalogue.load_cluster`` reads."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from executor.probe.device_probe import DeviceFacts
from executor.probe.link_probe import MeasuredLinks, MessageRow, OverheadRow
from executor.probe.probed_profile import write_yaml
from hwprofiles import GIB, GIGA, KILO, MICRO, NANO
from hwprofiles.catalogue import read_topo
from hwprofiles.devices import DeviceGraph, Latency

__all__ = ["LinkFit", "cluster_content", "fitted", "gpu_topology", "topology_content", "write_cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFit:
    """Times of messages as latency by size plus size over bandwidth."""

    bandwidth_bytes_per_s: float
    latency: Latency

    def time_s(self, size_bytes: float) -> float:
        """Time of one message."""
        return self.latency.at(size_bytes) + size_bytes / self.bandwidth_bytes_per_s


def fitted(rows: Sequence[MessageRow]) -> LinkFit:
    """Bandwidth from how times grow over the largest sizes; what a message takes beyond that is its latency.

    Times at the measured sizes are met, but for sizes that went faster than the bandwidth of the largest.
    """
    rows = sorted(rows, key=lambda row: row.size_bytes)
    last = rows[-1]
    long = [row for row in rows if row.size_bytes >= last.size_bytes / 40]
    grown_s = last.samples.median_s - long[0].samples.median_s
    rate = (last.size_bytes - long[0].size_bytes) / grown_s if grown_s > 0 else 0.0
    # Noise may even let long messages gain on short ones: no faster than the best whole message then.
    rate = rate or max(row.size_bytes / row.samples.median_s for row in rows)
    waits = tuple(max(row.samples.median_s - row.size_bytes / rate, 0.0) for row in rows)
    return LinkFit(
        bandwidth_bytes_per_s=rate, latency=Latency(tuple(float(row.size_bytes) for row in rows), waits)
    )  # fmt: skip


def cluster_content(links: MeasuredLinks, profile: str, device: DeviceFacts, name: str) -> dict[str, Any]:
    """A file's content: ranks around a switch on each machine, machines around one switch.

    A message crosses two links of its class inside a machine, and four between two; each holds its share of the
    latency.  What several pairs of one machine can send at once is not bounded but by their own links.
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
            "memory_gib": device.memory_bytes / GIB,
            "node": node,
            **({"message_overhead": overhead} if (overhead := _overhead(links.overheads)) else {}),
        }
        for node, host in enumerate(hosts)
    ]
    switches = [{"name": f"host{node}"} for node in range(len(hosts))]
    if inside or between:
        # Alone on its machine, a rank has nobody to send to but over the network.
        classes["inside"] = _class(inside, crossings=2) if inside else {"bandwidth_gbyte_per_s": 1e3, "latency_us": 0}
        rules += [
            {"between": [f"{row['name']}*", f"host{node}"], "class": "inside"} for node, row in enumerate(devices)
        ]
    if between:
        less = inside or LinkFit(bandwidth_bytes_per_s=1.0, latency=Latency.constant(0.0))
        sizes = between.latency.sizes_bytes
        waits = tuple(max(between.latency.at(size) - less.latency.at(size), 0.0) for size in sizes)
        classes["between"] = _class(replace(between, latency=Latency(sizes, waits)), crossings=2)
        switches.append({"name": "network"})
        rules.append({"between": ["host*", "network"], "class": "between"})
    return _file(name, device, classes, [{"name": "cluster", "devices": devices, "switches": switches, "links": rules}])


def _overhead(rows: Sequence[OverheadRow]) -> dict[str, float]:
    """What messages take from arithmetic: of a message and of a byte by how times grow with the size.

    A rank passes a message on and takes one in each sample, so it pays twice.  In a sum over n ranks by a ring it
    sends and takes 2 (n - 1) / n of the buffer, and adds (n - 1) / n of it, which is what the rest is for.
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
    rows = [row for row in links.messages if row.between == between]
    return fitted(rows) if rows else None


def _class(fit: LinkFit, *, crossings: int) -> dict[str, Any]:
    rows = zip(fit.latency.sizes_bytes, fit.latency.seconds, strict=True)
    return {
        "bandwidth_gbyte_per_s": fit.bandwidth_bytes_per_s / GIGA,
        "latency_table": [{"size_kbyte": size / KILO, "latency_us": s / MICRO / crossings} for size, s in rows],
    }


def gpu_topology(device: DeviceFacts, profile: str, ranks: int) -> DeviceGraph | None:
    """The machine's GPUs and their links as the driver tells, the first ``ranks`` of them; None where it does not."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return None
    table = subprocess.run([tool, "topo", "-m"], capture_output=True, text=True, timeout=60, check=False)
    if table.returncode:
        return None
    graph = read_topo(table.stdout, profile=profile, memory_bytes=device.memory_bytes)
    return graph.take(ranks) if ranks <= len(graph.devices) else None


def topology_content(graph: DeviceGraph, links: MeasuredLinks, device: DeviceFacts, name: str) -> dict[str, Any]:
    """A file's content: the device graph with the rate and latency that were measured between the first two ranks.

    The class of links that bounds their route gets the measured bandwidth, and no class on the way has less.  Classes
    off the route have no more, or the route would be another.  All latencies change by one factor.
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
    devices = [
        {"name": row.name, "profile": row.profile, "memory_gib": row.memory_bytes / GIB} for row in graph.devices
    ]
    switches = [{"name": vertex} for vertex in graph.vertices[len(graph.devices) :]]
    level = {"name": "machine", "devices": devices, "switches": switches, "links": rules}
    return _file(name, device, classes, [level])


def _measured_rates(graph: DeviceGraph, fit: LinkFit) -> tuple[dict[str, float], float]:
    """By class of links what bandwidths, and for all classes what latencies, are to be multiplied with."""
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
    """Write a cluster file; one that is there is replaced whole."""
    write_yaml(
        path, "Written by orrery probe; latencies are by message size, a share for each link of a route.", content
    )
