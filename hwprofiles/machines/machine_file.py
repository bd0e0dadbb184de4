"""Files that machines print about themselves, made one cluster file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from groundwork.errors import ConfigError
from groundwork.units import GIGA
from hwprofiles.catalogue.cluster_catalogue import cluster_of_content, cluster_path
from hwprofiles.catalogue.cluster_reader import read_tree
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.machines.cluster_content import machine_content, rounded
from hwprofiles.machines.generations import generation_of
from hwprofiles.machines.gpu_names import gpu_of_request
from hwprofiles.machines.merged import (
    check_counts,
    merged_topology,
    named_gpu,
    placed_cards,
    with_cards,
    without_slow_cards,
)
from hwprofiles.machines.refined_network import with_card_rates, with_release, with_switches, with_transport
from hwprofiles.machines.refined_rates import with_measured_rates
from hwprofiles.readers.facts import Card, CardList, Collectives, Facts, Gpu, PairRates, SwitchTree, Topology
from hwprofiles.readers.recognise import is_cluster_file, read_facts

_Kind = TypeVar("_Kind", bound=Facts)


@dataclass(frozen=True, slots=True)
class MachineFile:
    """The content of a cluster file, the cluster, and what was read."""

    content: dict[str, Any]
    cluster: DeviceGraph
    read: tuple[str, ...]
    collectives: tuple[Collectives, ...]


def machine_file(paths: Sequence[Path], *, device: str = "", name: str = "", base: str = "") -> MachineFile:
    """Return the cluster file that files about one machine, and the network around it, make.

    Args:
        paths: Files of any kind that ``read_facts`` knows; or one cluster file among them, which the others refine.
        device: Compute profile, profile file or product name of the GPUs; empty if a file names them.
        name: Name of the cluster; by default that of the first file.
        base: Cluster of the catalogue, or a cluster file, that the files refine; empty if they describe the machine.

    Raises:
        ConfigError: A file breaks a rule, two contradict each other, or nothing says which GPU it is or how many.
        UnreachableError: A cluster file has devices that no route joins.
    """
    clusters = [str(path) for path in paths if is_cluster_file(path)]
    if base:
        clusters.append(base)
    facts = [read_facts(path) for path in paths if str(path) not in clusters]
    if len(clusters) > 1:
        raise ConfigError(f"one cluster file can be refined, got {' and '.join(clusters)}")
    if clusters:
        content = _base_content(clusters[0], facts, device)
    else:
        content = _described(facts, device, name or _plain(paths[0].stem))
    for pairs in _of(facts, PairRates):
        content = with_measured_rates(content, pairs)
        content["assumed"] = [
            text.replace("rates and latencies of links", "rates of links that no measured pair fills")
            for text in content.get("assumed", ())
        ]
    if not clusters and not _of(facts, Topology) and not _of(facts, PairRates):
        content = with_bus_bandwidth(content, _of(facts, Collectives))
    collectives = _of(facts, Collectives)
    content = dict(with_release(with_transport(content, collectives), collectives))
    for tree in _of(facts, SwitchTree):
        content = with_switches(content, tree)
    if name:
        content["name"] = name
    sources = [f"Read: {each.origin}" for each in facts]
    content["sources"] = [*(text for text in content.get("sources", ()) if text not in sources), *sources]
    cluster = cluster_of_content(content, "cluster of these files")
    return MachineFile(content, cluster, tuple(each.origin for each in facts), tuple(_of(facts, Collectives)))


def _of(facts: Sequence[Facts], kind: type[_Kind]) -> list[_Kind]:
    return [each for each in facts if isinstance(each, kind)]


def _plain(text: str) -> str:
    """Return a name of letters, digits, '_', '.' and '-'."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_.-") else "-" for letter in text)


def _base_content(cluster: str, facts: Sequence[Facts], device: str) -> dict[str, Any]:
    """Return the content of a cluster file that measurements refine."""
    if _of(facts, Topology):
        raise ConfigError(
            f"{cluster} and {_of(facts, Topology)[0].origin} both say how GPUs are joined: give one of them"
        )
    if device:
        raise ConfigError(f"--device must not be given with the cluster {cluster}, which names its devices")
    content: Mapping[Any, Any] = read_tree(cluster_path(cluster))
    result = {str(key): value for key, value in content.items()}
    graph = cluster_of_content(result, f"cluster {cluster}")
    machine = sum(each.node == graph.devices[0].node for each in graph.devices)
    check_counts(machine, f"cluster {cluster}", facts)
    for cards in _of(facts, CardList):
        result = with_card_rates(result, cards)
    return result


def _described(facts: Sequence[Facts], device: str, name: str) -> dict[str, Any]:
    """Return the content of a new cluster file."""
    topologies, pairs, collectives = _of(facts, Topology), _of(facts, PairRates), _of(facts, Collectives)
    if topologies:
        topology = merged_topology(topologies)
    elif pairs or collectives:
        count = (
            len(pairs[0].bytes_per_s)
            if pairs
            else max(each.hosts.count(host) for each in collectives for host in each.hosts)
        )
        topology = bare_topology(pairs[0] if pairs else None, collectives, count, facts[0].origin)
    else:
        what = facts[0].origin if facts else "no file"
        raise ConfigError(
            f"{what} does not say how GPUs are joined: give nvidia-smi topo -m too, or a cluster with --cluster"
        )
    check_counts(len(topology.gpus), topology.origin, facts)
    for cards in _of(facts, CardList):
        topology = with_cards(topology, cards)
    machines = max((len(set(each.hosts)) for each in collectives), default=1)
    bare = not topologies and not pairs
    if machines > 1 and not topology.cards:
        topology = placed_cards(topology, (Card(name="nic0"),))
    topology = without_slow_cards(topology)
    kind = gpu_of_request(device) if device else named_gpu(facts)
    if kind is None:
        raise ConfigError(f"{facts[0].origin} does not name its GPUs: name their compute profile with --device")
    content = machine_content(topology, kind, generation_of(kind.generation), name=name, machines=machines)
    if not topologies:
        content = with_pair_classes(content, pairs[0] if pairs else None)
        text = "how GPUs are joined: no file shows it; " + (
            "links carry the bus bandwidth of the longest collective"
            if bare
            else "one switch where all pairs are alike, else a link between each two"
        )
        content["assumed"] = [text, *(each for each in content["assumed"] if "NVLinks:" not in each)]
    return content


_SAME_CLASS = 1.1
_ALIKE = 1.2
"""Factor between the fastest and the slowest pair up to which one switch may join all GPUs."""


def bare_topology(pairs: PairRates | None, collectives: Sequence[Collectives], count: int, origin: str) -> Topology:
    """Return a machine whose GPUs meet at one switch, or each two at a link of their own where pairs differ."""
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
