"""The level of a cluster file that joins machines, with the switches that Slurm's ``topology.conf`` lists."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from groundwork.errors import ConfigError
from groundwork.units import BITS_PER_BYTE, GIGA
from hwprofiles.catalogue.changes import changed_classes, read_change
from hwprofiles.machines.cluster_content import CARD_SHARE, rounded, transport_between
from hwprofiles.readers.facts import CardList, Collectives, SwitchTree


def _machine_level(content: Mapping[str, Any]) -> int:
    return next((i for i, level in enumerate(content["levels"]) if level.get("is_node")), 0)


def _card_rules(content: Mapping[str, Any], origin: str) -> list[dict[str, Any]]:
    """Return the rules that join cards of machines to the network.

    Raises:
        ConfigError: The level above the machines is missing or has no such rule, and there is no fabric.
    """
    at = _machine_level(content)
    below = content["levels"][at]["name"]
    if "fabric" in content:
        joined = content["fabric"]
        ends = [f"{below}/{joined['cards']}", "fabric"]
        return [{"between": ends, "class": joined["class"], "each": joined.get("each", 1)}]
    above = content["levels"][at + 1] if len(content["levels"]) > at + 1 else {}
    rules = [rule for rule in above.get("links", ()) if str(rule["between"][0]).startswith(f"{below}/")]
    if not rules:
        raise ConfigError(
            f"{origin} needs a machine with network cards: give its topology too, or a cluster of more than one machine"
        )
    return rules


def with_switches(content: Mapping[str, Any], tree: SwitchTree) -> dict[str, Any]:
    """Return the content of a cluster file with the switches of a network in place of what joined its machines.

    Switches are filled one after the other.  Uplinks carry what all cards below a full switch can send.

    Raises:
        ConfigError: Machines have no cards.
    """
    at = _machine_level(content)
    rules = _card_rules(content, tree.origin)
    names = ["leaf", *(f"spine{i}" if i > 1 else "spine" for i in range(1, len(tree.most_below)))]
    links = [{**rule, "between": [rule["between"][0], "leaf"]} for rule in rules]
    levels = [*content["levels"][: at + 1]]
    single = len(tree.most_below) == 1
    first: dict[str, Any] = {"name": "network" if single else "rack", "count": "nodes"}
    first |= {} if single else {"at_most": tree.most_below[0]}
    levels.append({**first, "switches": [{"name": "leaf"}], "links": links})
    cables = _cards(content["levels"][at], rules) * tree.most_below[0]
    for i, name in enumerate(names[1:], start=1):
        last = i == len(names) - 1
        level: dict[str, Any] = {"name": "network" if last else f"{name}-group"}
        level |= {} if last else {"at_most": tree.most_below[i]}
        uplink = {
            "between": [f"{levels[-1]['name']}/{names[i - 1]}", name],
            "class": rules[0]["class"],
            "count": cables,
        }
        levels.append({**level, "switches": [{"name": name}], "links": [uplink]})
        cables *= tree.most_below[i]
    assumed = [text for text in content.get("assumed", ()) if not text.startswith("network:")]
    assumed.append("network: uplinks of switches carry what all cards below can send")
    if not tree.even:
        assumed.append("network: switches are full one after the other, the last one partly; in truth they differ")
    nodes = {"description": "machines", "default": tree.machines, "minimum": 1, "maximum": tree.machines}
    return {
        **{key: part for key, part in content.items() if key != "fabric"},
        "assumed": assumed,
        "parameters": {**content.get("parameters", {}), "nodes": nodes},
        "levels": levels,
    }


def _cards(machine: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> int:
    """Return how many cables leave a machine."""
    names = [
        f"{group['name']}{i}" if "count" in group else str(group["name"])
        for group in (*machine.get("devices", ()), *machine.get("switches", ()))
        for i in range(int(group.get("count", 1)))
    ]
    total = 0
    for rule in rules:
        pattern = rule["between"][0].partition("/")[2]
        found = [fnmatch.filter(names, pattern.replace("{i}", str(i))) for i in range(int(rule.get("each", 1)))]
        total += int(rule.get("count", 1)) * sum(map(len, found))
    return total


def with_transport(content: Mapping[str, Any], measured: Sequence[Collectives]) -> Mapping[str, Any]:
    """Return the content of a cluster file whose links between machines have the transport of measured collectives.

    Raises:
        ConfigError: They name two, or machines have no cards.
    """
    named = {each.transport: each.origin for each in measured if each.transport and len(set(each.hosts)) > 1}
    if len(named) > 1:
        both = " and ".join(f"{name} ({origin})" for name, origin in sorted(named.items()))
        raise ConfigError(f"measurements must be of one transport, got {both}")
    for name, origin in named.items():
        kinds = sorted({rule["class"] for rule in _card_rules(content, origin)})
        changes = [read_change(f"link.{kind}.transport", name) for kind in kinds]
        content = changed_classes(content, changes)
        assumed = [text for text in content.get("assumed", ()) if not text.startswith("transport:")]
        content = {**content, "assumed": assumed} if "assumed" in content else content
    return content


def with_release(content: Mapping[str, Any], measured: Sequence[Collectives]) -> Mapping[str, Any]:
    """Return the content of a cluster file whose library is of the release of measured collectives between machines.

    Raises:
        ConfigError: They name two.
    """
    named = {each.release: each.origin for each in measured if each.release and len(set(each.hosts)) > 1}
    if len(named) > 1:
        both = " and ".join(f"{release} ({origin})" for release, origin in sorted(named.items()))
        raise ConfigError(f"measurements must be of one release of NCCL, got {both}")
    if not named or not isinstance(content.get("library"), Mapping):
        return content
    return {**content, "library": {**content["library"], "release": next(iter(named))}}


def with_card_rates(content: Mapping[str, Any], cards: CardList) -> dict[str, Any]:
    """Return the content of a cluster file whose cards have the rates that ``ibstat`` prints.

    Raises:
        ConfigError: The cards differ in their rates, or machines have no cards.
    """
    rates = {card.bits_per_s for card in cards.cards}
    rules = _card_rules(content, cards.origin)
    kinds = {rule["class"] for rule in rules}
    if len(rates) > 1 or len(kinds) > 1:
        raise ConfigError(f"{cards.origin} has cards of different rates: give a topology, not a cluster file")
    rate = float(next(iter(rates)) or 0)
    classes = {name: dict(row) for name, row in content["link_classes"].items()}
    row = classes[kinds.pop()]
    row.pop("bandwidth_gbit_per_s", None)
    row["bandwidth_gbyte_per_s"] = rounded(rate / BITS_PER_BYTE / GIGA * CARD_SHARE)
    transport = transport_between(cards.cards)
    if transport:
        row["transport"] = transport
    return {**content, "link_classes": classes}
