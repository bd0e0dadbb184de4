"""A machine of which only measurements are known: bandwidths of pairs, or collectives."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from groundwork.units import GIGA
from hwprofiles.machines.cluster_content import rounded
from hwprofiles.readers.facts import Card, Collectives, Gpu, PairRates, Topology

_SAME_CLASS = 1.1
_ALIKE = 1.2
"""Factor between the fastest and the slowest pair up to which one switch may join all GPUs."""


def bare_topology(pairs: PairRates | None, collectives: Sequence[Collectives], count: int, origin: str) -> Topology:
    """Return a machine whose GPUs meet at one switch, or each two at a link of their own where pairs differ.

    Args:
        pairs: Rates of pairs of GPUs; None if they are not known.
        collectives: Measured collectives.
        count: Number of GPUs.
        origin: The first file.
    """
    rates = np.array(pairs.bytes_per_s)[~np.eye(count, dtype=bool)] if pairs and count > 1 else np.ones(1)
    alike = float(rates.max() / rates.min()) < _ALIKE
    hosts = max((len(set(each.hosts)) for each in collectives), default=1)
    entries = count + (hosts > 1)
    levels = tuple(
        tuple(None if i == j else 0 if alike or max(i, j) < count else 4 for j in range(entries))
        for i in range(entries)
    )
    single = [[int(i != j and not alike) for j in range(count)] for i in range(count)]
    return Topology(
        origin=origin,
        gpus=(Gpu(),) * count,
        cards=(Card(name="nic0"),) if hosts > 1 else (),
        levels=levels,
        nvlinks=tuple(map(tuple, single)),
    )


def with_bus_bandwidth(content: dict[str, Any], collectives: Sequence[Collectives]) -> dict[str, Any]:
    """Return content whose links have the bus bandwidth that the longest collective reached."""
    found: dict[bool, float] = {}
    for each in collectives:
        ranks, largest = len(each.hosts), int(np.argmax(each.size_bytes))
        share = {"all-reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(each.collective, (ranks - 1) / ranks)
        bus = share * each.size_bytes[largest] / each.time_s[largest]
        across = len(set(each.hosts)) > 1
        found[across] = max(found.get(across, 0.0), bus)
    classes = {name: dict(row) for name, row in content["link_classes"].items()}
    inside = max(found.values())
    for name, row in classes.items():
        rate = found[True] if name.startswith("card") and True in found else inside
        if rate > 0:
            row["bandwidth_gbyte_per_s"] = rounded(rate / GIGA)
    return {**content, "link_classes": classes}


def with_pair_classes(content: dict[str, Any], pairs: PairRates | None) -> dict[str, Any]:
    """Return content whose links are called what is known of them: ports of a switch, or links between two GPUs.

    Links between two GPUs whose rates differ by more than a few per cent are of different classes.

    Args:
        content: Content of a cluster file of a bare machine.
        pairs: Rates of pairs of GPUs; None if they are not known.
    """
    classes = {name: dict(row) for name, row in content["link_classes"].items()}
    old = classes.pop("nvlink", None)
    if "pcie" in classes:
        classes = {"port" if name == "pcie" else name: row for name, row in classes.items()}
    kinds: dict[str, float] = {}
    rules = []
    for rule in content["levels"][0]["links"]:
        kind = "port" if rule["class"] == "pcie" else rule["class"]
        if kind == "nvlink" and pairs is not None:
            a, b = (int(end.removeprefix("GPU")) for end in rule["between"])
            rate = (pairs.bytes_per_s[a][b] * pairs.bytes_per_s[b][a]) ** 0.5
            kind = next(
                (name for name, other in kinds.items() if max(rate / other, other / rate) < _SAME_CLASS),
                f"pair{len(kinds)}",
            )
            kinds.setdefault(kind, rate)
            classes[kind] = {**(old or {}), "bandwidth_gbyte_per_s": rounded(kinds[kind] / GIGA)}
        rules.append({**rule, "class": kind})
    machine = {**content["levels"][0], "links": rules}
    return {**content, "link_classes": classes, "levels": [machine, *content["levels"][1:]]}
