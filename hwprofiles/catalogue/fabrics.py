"""Networks between machines by name: a cluster file says what cards its machines have, a fabric joins them.

Each fabric is a function that returns levels of a cluster file, and the parameters that it adds to those of the file.
Cables from one switch to another count as one link with the sum of their bandwidths where packets are spread over all
of them (adaptive routing).  Where a hash of the two devices picks a way, each way is a switch of its own, so that flows
that meet on one get less than their share.
"""

import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from groundwork.errors import ConfigError

ADAPTIVE, HASHED = ROUTINGS = ("adaptive", "hashed")
"""Traffic takes all shortest ways evenly, or one of them by a hash of the two devices."""
_MOST = 100_000


class FabricSection(BaseModel):
    """The section ``fabric`` of a cluster file: the cards of a machine that a network joins."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    kind: str
    """Fabric where the user names none."""
    nodes: Annotated[int, Field(ge=1)]
    """Number of machines."""
    cards: Annotated[str, Field(min_length=1)]
    """Pattern of the cards of a machine, such as ``nic{i}`` with ``{i}`` as 0 to ``each`` - 1."""
    each: Annotated[int, Field(ge=1)] = 1
    side_by_side: Annotated[int, Field(ge=1)] = 1
    """Cards of a machine that the pattern matches for each number."""
    link_class: Annotated[str, Field(alias="class")]


class FabricParameter(NamedTuple):
    """A number that the user may choose; a whole one where its default is one."""

    description: str
    default: float
    minimum: float
    maximum: float


class Network(NamedTuple):
    """What a fabric joins, with the values of its parameters."""

    section: FabricSection
    machine: str
    """Name of the level that is joined."""
    values: Mapping[str, Any]

    @property
    def cards(self) -> int:
        """Number of cards of a machine."""
        return self.section.each * self.section.side_by_side

    def to_cards(self, switch: str) -> dict[str, Any]:
        """Return the rule that joins cards to switches: all to one, or those of a number to that of the number."""
        cards, each = f"{self.machine}/{self.section.cards}", self.section.each
        if "{i}" in switch:
            return self.link(cards, switch) | {"each": each}
        return self.link(cards.replace("{i}", "*"), switch)

    def link(self, one: str, other: str, cables: float = 1.0) -> dict[str, Any]:
        """Return a rule for links of so many cables."""
        return {"between": [one, other], "class": self.section.link_class, "count": cables}

    def machines(self, most: str) -> int:
        """Return how many machines one switch joins, by the parameter that says how many it may."""
        return int(min(self.values[most] or math.inf, self.section.nodes))

    def ways(self, name: str, cables: float) -> tuple[dict[str, Any], float]:
        """Return switches over which so many cables from each switch below go, and the cables to each of them."""
        if self.values["routing"] == ADAPTIVE:
            return {"name": name}, cables
        count = max(1, round(cables))
        return {"name": name, "count": count}, cables / count


Levels = list[dict[str, Any]]


def _full(network: Network) -> Levels:
    """Join all cards by one switch that never blocks."""
    return [
        {
            "name": "cluster",
            "count": network.section.nodes,
            "switches": [{"name": "fabric"}],
            "links": [network.to_cards("fabric")],
        }
    ]


def _rails(network: Network) -> Levels:
    """Join the cards of each number, of some machines, by a leaf switch, and the leaves by spines."""
    machines = network.machines("leaf_nodes")
    cables = machines * network.section.side_by_side / network.values["oversubscription"]
    below: dict[str, Any] = {"count": network.section.nodes}
    leaves, cards = {"name": "leaf", "count": network.section.each}, network.to_cards("leaf{i}")
    spines, each = network.ways("spine", cables)
    if machines == network.section.nodes:
        links = [cards, network.link("leaf*", "spine*", each)]
        return [{"name": "cluster", **below, "switches": [leaves, spines], "links": links}]
    joined = {"switches": [spines], "links": [network.link("unit/leaf*", "spine*", each)]}
    unit = {"name": "unit", "at_most": machines, **below, "switches": [leaves], "links": [cards]}
    return [unit, {"name": "cluster", **joined}]


def _fat_tree(network: Network) -> Levels:
    """Join all cards of some machines by a leaf switch, and the leaves by spines."""
    machines = network.machines("leaf_nodes")
    spines, each = network.ways("spine", machines * network.cards / network.values["oversubscription"])
    return [
        _leaves(network, machines),
        {"name": "cluster", "switches": [spines], "links": [network.link("rack/leaf", "spine*", each)]},
    ]


def _fat_tree_3(network: Network) -> Levels:
    """Join leaf switches to pods by aggregation switches, and the pods by cores."""
    machines, leaves = network.machines("leaf_nodes"), int(network.values["pod_leaves"])
    cables = machines * network.cards / network.values["oversubscription"]
    middle, each = network.ways("aggregation", cables)
    links = [network.link("rack/leaf", "aggregation*", each)]
    pod = {"name": "pod", "at_most": leaves, "switches": [middle], "links": links}
    if network.values["routing"] == ADAPTIVE:
        cores: list[dict[str, Any]] = [{"name": "core"}]
        links = [network.link("pod/aggregation", "core", cables * leaves)]
    else:  # the switches of one number in all pods share cores, as many as have a cable for each
        cores = [{"name": f"core{i}-", "count": leaves} for i in range(middle["count"])]
        links = [network.link("pod/aggregation{i}", "core{i}-*", each) | {"each": middle["count"]}]
    return [
        _leaves(network, machines),
        pod,
        {"name": "cluster", "switches": cores, "links": links},
    ]


def _dragonfly(network: Network) -> Levels:
    """Join each switch to each in its group, and each group to each; routes are the shortest.

    Cables are those of a balanced network, in which a switch has as many to machines as to other groups, and twice as
    many to the switches of its group.

    Source:
        Kim, Dally, Scott and Abts, "Technology-Driven, Highly-Scalable Dragonfly Topology", ISCA 2008.
    """
    machines, leaves = network.machines("leaf_nodes"), int(network.values["group_leaves"])
    switches = -(-network.section.nodes // machines)
    sizes = [min(leaves, switches - first) for first in range(0, switches, leaves)]
    cables = machines * network.cards / network.values["oversubscription"]
    ends = (
        [f"group{of}/rack{other % sizes[of]}/leaf" for of, other in (pair, pair[::-1])]
        for pair in combinations(range(len(sizes)), 2)
    )
    links = [network.link(one, other, cables * leaves / (len(sizes) - 1)) for one, other in ends]
    return [
        _leaves(network, machines),
        {"name": "group", "at_most": leaves, "links": [network.link("rack/leaf", "rack/leaf", 2 * cables / leaves)]},
        {"name": "cluster", "links": links},
    ]


def _torus(network: Network) -> Levels:
    """Join a switch at each machine to its neighbours in up to three dimensions, and the last one to the first."""
    nodes, cards = network.section.nodes, network.section.cards.replace("{i}", "*")
    x, y = int(network.values["x"]), int(network.values["y"])
    if nodes % ((x or 1) * (y or 1)):
        sizes = " and ".join(f"{name}={size}" for name, size in (("x", x), ("y", y)) if size)
        raise ConfigError(f"sizes of a torus must divide its {nodes} nodes, got {sizes}")
    x = x or _nearest_divisor(nodes // (y or 1), nodes ** (1 / 3))
    y = y or _nearest_divisor(nodes // x, (nodes / x) ** 0.5)
    links = [network.link(f"{network.machine}{i}/{cards}", f"switch{i}") for i in range(nodes)]
    for size, stride in ((x, 1), (y, x), (nodes // (x * y), x * y)):
        for i in range(nodes):
            place = i // stride % size
            if place + 1 < size or size > 2:  # two are joined once
                after = i + stride if place + 1 < size else i - place * stride
                links.append(network.link(f"switch{i}", f"switch{after}", network.cards))
    return [{"name": "cluster", "count": nodes, "switches": [{"name": "switch", "count": nodes}], "links": links}]


def _nearest_divisor(number: int, wanted: float) -> int:
    """Return the divisor of a number that is nearest to a wanted one."""
    return min((each for each in range(1, number + 1) if number % each == 0), key=lambda each: abs(each - wanted))


def _leaves(network: Network, machines: int) -> dict[str, Any]:
    """Return the level of leaf switches for all cards of some machines."""
    below = {"count": network.section.nodes, "at_most": machines}
    return {"name": "rack", **below, "switches": [{"name": "leaf"}], "links": [network.to_cards("leaf")]}


_SHARE = FabricParameter("cables to machines for each cable of a leaf switch to others", 1.0, 0.05, 1000.0)
_BELOW = "machines below a leaf switch"


class _Fabric(NamedTuple):
    levels: Callable[[Network], Levels]
    parameters: Mapping[str, FabricParameter] = {}
    has_ways: bool = False
    """Flag that several equal ways may lead from one leaf switch to another."""


_FABRICS = {
    "full": _Fabric(_full),
    "rails": _Fabric(
        _rails,
        {
            "leaf_nodes": FabricParameter("machines whose cards of a number share a leaf switch; 0: all", 0, 0, _MOST),
            "oversubscription": _SHARE,
        },
        has_ways=True,
    ),
    "fat-tree": _Fabric(
        _fat_tree, {"leaf_nodes": FabricParameter(_BELOW, 4, 1, _MOST), "oversubscription": _SHARE}, has_ways=True
    ),
    "fat-tree-3": _Fabric(
        _fat_tree_3,
        {
            "leaf_nodes": FabricParameter(_BELOW, 4, 1, _MOST),
            "pod_leaves": FabricParameter("leaf switches of a pod", 8, 1, _MOST),
            "oversubscription": _SHARE,
        },
        has_ways=True,
    ),
    "dragonfly": _Fabric(
        _dragonfly,
        {
            "leaf_nodes": FabricParameter(_BELOW, 2, 1, _MOST),
            "group_leaves": FabricParameter("switches of a group", 8, 1, _MOST),
            "oversubscription": _SHARE,
        },
    ),
    "torus": _Fabric(
        _torus,
        {
            "x": FabricParameter("machines along the first axis; 0: as even as can be", 0, 0, _MOST),
            "y": FabricParameter("machines along the second axis, as x; the others lie along the third", 0, 0, _MOST),
        },
    ),
}
FABRICS = tuple(_FABRICS)


def fabric_parameters(kind: str) -> Mapping[str, FabricParameter]:
    """Return the numbers that the user of a fabric may choose."""
    return _FABRICS[kind].parameters


def has_ways(kind: str) -> bool:
    """Return whether the user of a fabric may choose how traffic is spread over equal ways."""
    return _FABRICS[kind].has_ways


def fabric_levels(kind: str, network: Network) -> Levels:
    """Return the levels of a cluster file that join its machines.

    Raises:
        ConfigError: The parameters do not fit the number of machines.
    """
    return _FABRICS[kind].levels(network)
