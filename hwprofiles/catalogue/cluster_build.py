"""Construction of the device graph that a checked cluster file describes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from hwprofiles.catalogue.cluster_file import ClusterFile, DeviceGroup, LinkRule, SwitchGroup
from hwprofiles.catalogue.fabrics import HASHED
from hwprofiles.devices.columns import ClusterDevices, ClusterLinks, LinkNames
from hwprofiles.devices.device import CopyEngines, Device
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.link import Link

MOST_VERTICES = 500_000
"""Devices and switches of the largest cluster: some 150,000 GPUs with a network card each."""


@dataclass(slots=True, eq=False)
class _LevelCopy:
    """A copy of a level with all its vertices, those of its children first, by local index."""

    level: str
    names: list[str] = field(default_factory=list)
    """Paths below this copy, such as ``node3/gpu1``."""
    devices: list[DeviceGroup | None] = field(default_factory=list)
    """Group of each vertex that is a device; None for switches."""
    nodes: list[int] = field(default_factory=list)
    """Machine of each vertex; without meaning for switches."""
    hosts: list[bool] = field(default_factory=list)
    """Flag of each vertex that is a host's memory."""
    node_count: int = 0
    cables: list[Ints] = field(default_factory=list)
    """Blocks of cables as rows of two vertices and the index of their kind, as of ``_cable_kinds``."""
    children: list[tuple[str, int, "_LevelCopy"]] = field(default_factory=list)
    """Name, first vertex and copy of each child; equal children are one object."""
    matches: dict[str, list[int]] = field(default_factory=dict)
    """Vertices that each pattern matched so far: children that are one object are searched once."""
    places: dict[str, int] = field(default_factory=dict)
    """Vertices of this copy alone, and indices of its children, by name; names of children end with a slash."""

    def find(self, pattern: str) -> list[int]:
        """Return the vertices that a pattern matches, in order."""
        if pattern not in self.matches:
            self.matches[pattern] = self._search(pattern)
        return self.matches[pattern]

    def _search(self, pattern: str) -> list[int]:
        """Return the vertices of children, or of this copy alone, that a pattern matches."""
        head, slash, rest = pattern.partition("/")
        # A torus of thousands of machines names each of them, which a look at all of them each time would make slow.
        named = self.places.get(f"{head}{slash}")
        if slash:
            children = self.children if named is None else [self.children[named]]
            return [
                first + vertex
                for name, first, child in children
                if named is not None or head == child.level or fnmatchcase(name, head)
                for vertex in child.find(rest)
            ]
        if named is not None:
            return [named]
        own = sum(len(child.names) for _, _, child in self.children)
        return [i for i in range(own, len(self.names)) if fnmatchcase(self.names[i], head)]


def build_cluster(file: ClusterFile, name: str) -> DeviceGraph:
    """Expand the levels of a file from the inside out.

    Raises:
        ConfigError: A pattern matches no vertex, a link names no class of the file, or two vertices get
            the same name.
        UnreachableError: No route joins two devices.
    """
    _check_size(file, name)
    copies = [_expand(file, 0, [])]
    for i, level in enumerate(file.levels[1:], start=1):
        # Copies are all equal unless an at_most divided them, and then the level above has no count.
        copies = copies * (level.count or 1)
        size = level.at_most or len(copies)
        groups = [copies[start : start + size] for start in range(0, len(copies), size)]
        # All groups are full and equal, except perhaps the last.
        full, last = _expand(file, i, groups[0]), groups[-1]
        partial = full if last == groups[0] else _expand(file, i, last)
        copies = [full] * (len(groups) - 1) + [partial]
    return _graph(file, name, copies[0])


def _check_size(file: ClusterFile, name: str) -> None:
    """Refuse a file of more vertices than anything can be done with, before they are made."""
    copies, vertices = 1, 0
    for level in reversed(file.levels):
        vertices += copies * sum(group.count or 1 for group in (*level.devices, *level.switches))
        copies *= level.count or 1
    if vertices > MOST_VERTICES:
        raise ConfigError(f"{name}: devices and switches must be at most {MOST_VERTICES:,}, got about {vertices:,}")


def _expand(file: ClusterFile, index: int, children: Sequence[_LevelCopy]) -> _LevelCopy:
    """Return a copy of level ``index`` with the given copies of the level below."""
    level = file.levels[index]
    copy = _LevelCopy(level.name)
    for i, child in enumerate(children):
        _adopt(copy, f"{child.level}{i}", child)
    base = copy.node_count
    for group in (*level.devices, *level.switches):
        device = group if isinstance(group, DeviceGroup) else None
        node = base + device.node if device else 0
        copy.node_count = max(copy.node_count, node + 1 if device else 0)
        copy.places |= {name: len(copy.names) + i for i, name in enumerate(group.names)}
        copy.names += group.names
        copy.devices += [device] * len(group.names)
        copy.nodes += [node] * len(group.names)
        copy.hosts += [isinstance(group, SwitchGroup) and group.is_host] * len(group.names)
    if level.is_node:
        copy.nodes, copy.node_count = [0] * len(copy.nodes), 1
    for i, rule in enumerate(level.links):
        _add_links(copy, rule, file, f"levels.{index}.links.{i}")
    return copy


def _adopt(copy: _LevelCopy, name: str, child: _LevelCopy) -> None:
    """Add the vertices and links of a child, with its name before theirs."""
    first = len(copy.names)
    copy.places[f"{name}/"] = len(copy.children)
    copy.children.append((name, first, child))
    copy.names += [f"{name}/{vertex}" for vertex in child.names]
    copy.devices += child.devices
    copy.hosts += child.hosts
    copy.nodes += [copy.node_count + node for node in child.nodes]
    copy.node_count += child.node_count
    copy.cables += [cables + np.array([first, first, 0]) for cables in child.cables]


def _add_links(copy: _LevelCopy, rule: LinkRule, file: ClusterFile, where: str) -> None:
    """Add the links of a rule; ``where`` is its path in the file, for messages."""
    if rule.link_class not in file.link_classes:
        raise ConfigError(
            f"{file.name}: {where}.class: must be one of {', '.join(file.link_classes) or 'link_classes'}, "
            f"got {rule.link_class!r}{did_you_mean(rule.link_class, file.link_classes)}"
        )
    ends = [
        [_matches(copy, pattern.replace("{i}", str(i)), file, where) for pattern in rule.between]
        for i in range(rule.each or 1)
    ]
    pairs = np.concatenate([np.stack(np.meshgrid(*pair, indexing="ij"), axis=-1).reshape(-1, 2) for pair in ends])
    # A rule between vertices of one pattern matches every pair twice.
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    first = np.sort(np.unique(low * len(copy.names) + high, return_index=True)[1])
    pairs = pairs[first[low[first] < high[first]]]
    kind = _cable_kinds(file).index((rule.link_class, rule.count))
    copy.cables.append(np.column_stack([pairs, np.full(len(pairs), kind)]))


def _matches(copy: _LevelCopy, pattern: str, file: ClusterFile, where: str) -> list[int]:
    """Return the vertices that a pattern matches, at least one."""
    vertices = copy.find(pattern)
    if not vertices:
        hint = did_you_mean(pattern, copy.names, cutoff=0.4)
        raise ConfigError(f"{file.name}: {where}.between: must match a vertex, got {pattern!r}{hint}")
    return vertices


def _graph(file: ClusterFile, name: str, copy: _LevelCopy) -> DeviceGraph:
    """Return the device graph of the copy of the outermost level: devices first, then switches."""
    groups = {id(group): group for group in copy.devices if group is not None}
    number = {key: i for i, key in enumerate(groups)}
    kind = np.array([-1 if group is None else number[id(group)] for group in copy.devices], dtype=np.int64)
    order = np.argsort(kind < 0, kind="stable")
    devices = order[: np.count_nonzero(kind >= 0)]
    vertices = [copy.names[i] for i in order.tolist()]
    vertex = np.empty(len(order), dtype=np.int64)
    vertex[order] = np.arange(len(order))
    return DeviceGraph(
        name,
        ClusterDevices(
            [_device(group) for group in groups.values()],
            kind[devices],
            vertices[: len(devices)],
            np.array(copy.nodes, dtype=np.int64)[devices],
        ),
        vertices[len(devices) :],
        _links(file, copy, vertex, vertices),
        hosts={name: node for name, node, is_host in zip(copy.names, copy.nodes, copy.hosts, strict=True) if is_host},
        library=None if file.library is None else file.library.in_seconds(file.transport),
        hashed=file.routing == HASHED,
    )


def _device(group: DeviceGroup) -> Device:
    """Return a device of a group, without its name, in node 0."""
    return Device(
        name="",
        node=0,
        profile=group.profile,
        memory_bytes=group.memory_bytes,
        memory_reserve=group.memory_reserve.in_bytes,
        copy_engines=CopyEngines(**group.copy_engines.model_dump()),
        message_overhead=group.message_overhead.in_seconds,
        communication_channels=group.communication_channels,
        step_spread=group.step_spread,
        board_speed=group.board_speed,
    )


def _cable_kinds(file: ClusterFile) -> list[tuple[str, float]]:
    """Return the class and the number side by side of all kinds of cables of a file."""
    return list(dict.fromkeys((rule.link_class, rule.count) for level in file.levels for rule in level.links))


def _links(file: ClusterFile, copy: _LevelCopy, vertex: Ints, vertices: Sequence[str]) -> ClusterLinks:
    """Return the links, one for each direction of a full-duplex one; ``vertex`` renumbers vertices."""
    cables = np.concatenate([np.empty((0, 3), dtype=np.int64), *copy.cables])
    kinds = []
    for name, count in _cable_kinds(file):
        link_class = file.link_classes[name]
        kinds.append(
            Link(
                name="",
                source=0,
                target=0,
                both_ways=link_class.duplex == "half",
                bandwidth_bytes_per_s=link_class.bandwidth_bytes_per_s * count,
                latency=link_class.latency,
                exclusive=link_class.sharing == "exclusive",
                link_class=name,
            )
        )
    half = np.array([each.both_ways for each in kinds], dtype=np.bool_)[cables[:, 2]]
    row = np.repeat(np.arange(len(cables)), np.where(half, 1, 2))
    back = np.concatenate([[False], row[1:] == row[:-1]])[: len(row)]
    ends = vertex[cables[row, :2]]
    source, target = np.where(back, ends[:, 1], ends[:, 0]), np.where(back, ends[:, 0], ends[:, 1])
    return ClusterLinks(kinds, cables[row, 2], LinkNames(vertices, source, target, half[row]), source, target)
