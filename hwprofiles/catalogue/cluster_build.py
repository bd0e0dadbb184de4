"""Construction of the device graph that a checked cluster file describes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from hwprofiles.catalogue.cluster_file import ClusterFile, DeviceGroup, Level, LinkRule, SwitchGroup
from hwprofiles.devices.copy_engines import CopyEngines
from hwprofiles.devices.device import Device
from hwprofiles.devices.device_graph import DeviceGraph, Link

MOST_VERTICES = 200_000
"""Devices and switches of the largest cluster, ten times as many as of the largest that is known."""


@dataclass(slots=True, eq=False)
class _LevelCopy:
    """A copy of a level with all its vertices, those of its children first, by local index."""

    level: str
    """Name of the level."""
    names: list[str] = field(default_factory=list)
    """Paths below this copy, such as ``node3/gpu1``."""
    devices: list[DeviceGroup | None] = field(default_factory=list)
    """Group of each vertex that is a device; None for switches."""
    nodes: list[int] = field(default_factory=list)
    """Machine of each vertex; without meaning for switches."""
    hosts: list[bool] = field(default_factory=list)
    """Flag of each vertex that is a host's memory."""
    node_count: int = 0
    """Number of machines."""
    links: list[tuple[int, int, str, int]] = field(default_factory=list)
    """Links as two vertices, class, number of parallel cables."""
    children: list[tuple[str, int, "_LevelCopy"]] = field(default_factory=list)
    """Name, first vertex and copy of each child; equal children are one object."""
    matches: dict[str, list[int]] = field(default_factory=dict)
    """Vertices that each pattern matched so far: children that are one object are searched once."""

    def find(self, pattern: str) -> list[int]:
        """Return the vertices that a pattern matches, in order."""
        if pattern not in self.matches:
            self.matches[pattern] = self._search(pattern)
        return self.matches[pattern]

    def _search(self, pattern: str) -> list[int]:
        """Return the vertices of children, or of this copy alone, that a pattern matches."""
        head, slash, rest = pattern.partition("/")
        if slash:
            return [
                first + vertex
                for name, first, child in self.children
                if head == child.level or fnmatchcase(name, head)
                for vertex in child.find(rest)
            ]
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
    _add_own(copy, level)
    if level.is_node:
        copy.nodes, copy.node_count = [0] * len(copy.nodes), 1
    for i, rule in enumerate(level.links):
        _add_links(copy, rule, file, f"levels.{index}.links.{i}")
    return copy


def _adopt(copy: _LevelCopy, name: str, child: _LevelCopy) -> None:
    """Add the vertices and links of a child, with its name before theirs."""
    first = len(copy.names)
    copy.children.append((name, first, child))
    copy.names += [f"{name}/{vertex}" for vertex in child.names]
    copy.devices += child.devices
    copy.hosts += child.hosts
    copy.nodes += [copy.node_count + node for node in child.nodes]
    copy.node_count += child.node_count
    copy.links += [(first + a, first + b, kind, count) for a, b, kind, count in child.links]


def _add_own(copy: _LevelCopy, level: Level) -> None:
    """Add the devices and switches of the level itself."""
    base = copy.node_count
    for group in (*level.devices, *level.switches):
        device = group if isinstance(group, DeviceGroup) else None
        node = base + device.node if device else 0
        copy.node_count = max(copy.node_count, node + 1 if device else 0)
        copy.names += group.names
        copy.devices += [device] * len(group.names)
        copy.nodes += [node] * len(group.names)
        copy.hosts += [isinstance(group, SwitchGroup) and group.is_host] * len(group.names)


def _add_links(copy: _LevelCopy, rule: LinkRule, file: ClusterFile, where: str) -> None:
    """Add the links of a rule; ``where`` is its path in the file, for messages."""
    if rule.link_class not in file.link_classes:
        raise ConfigError(
            f"{file.name}: {where}.class: must be one of {', '.join(file.link_classes) or 'link_classes'}, "
            f"got {rule.link_class!r}{did_you_mean(rule.link_class, file.link_classes)}"
        )
    joined: set[tuple[int, int]] = set()
    for i in range(rule.each or 1):
        ends = [_matches(copy, pattern.replace("{i}", str(i)), file, where) for pattern in rule.between]
        for a in ends[0]:
            for b in ends[1]:
                # A rule between vertices of one pattern matches every pair twice.
                pair = (min(a, b), max(a, b))
                if a != b and pair not in joined:
                    joined.add(pair)
                    copy.links.append((a, b, rule.link_class, rule.count))


def _matches(copy: _LevelCopy, pattern: str, file: ClusterFile, where: str) -> list[int]:
    """Return the vertices that a pattern matches, at least one."""
    vertices = copy.find(pattern)
    if not vertices:
        hint = did_you_mean(pattern, copy.names, cutoff=0.4)
        raise ConfigError(f"{file.name}: {where}.between: must match a vertex, got {pattern!r}{hint}")
    return vertices


def _graph(file: ClusterFile, name: str, copy: _LevelCopy) -> DeviceGraph:
    """Return the device graph of the copy of the outermost level: devices first, then switches."""
    devices = [i for i, group in enumerate(copy.devices) if group is not None]
    switches = [i for i, group in enumerate(copy.devices) if group is None]
    vertex = {old: new for new, old in enumerate([*devices, *switches])}
    return DeviceGraph(
        name,
        [
            Device(
                name=copy.names[i],
                node=copy.nodes[i],
                profile=group.profile,
                memory_bytes=group.memory_bytes,
                memory_reserve=group.memory_reserve.in_bytes,
                copy_engines=CopyEngines(**group.copy_engines.model_dump()),
                message_overhead=group.message_overhead.in_seconds,
                communication_channels=group.communication_channels,
                step_spread=group.step_spread,
                board_speed=group.board_speed,
            )
            for i, group in enumerate(copy.devices)
            if group is not None
        ],
        [copy.names[i] for i in switches],
        _links(file, copy, vertex),
        hosts={name: node for name, node, is_host in zip(copy.names, copy.nodes, copy.hosts, strict=True) if is_host},
        library=None if file.library is None else file.library.in_seconds(file.transport),
    )


def _links(file: ClusterFile, copy: _LevelCopy, vertex: dict[int, int]) -> list[Link]:
    """Return the links, one for each direction of a full-duplex one; ``vertex`` renumbers vertices."""
    links = []
    latency = {kind: link_class.latency for kind, link_class in file.link_classes.items()}
    for a, b, kind, count in copy.links:
        link_class = file.link_classes[kind]
        half = link_class.duplex == "half"
        for source, target in [(a, b)] if half else [(a, b), (b, a)]:
            links.append(
                Link(
                    name=f"{copy.names[source]} {'--' if half else '->'} {copy.names[target]}",
                    source=vertex[source],
                    target=vertex[target],
                    both_ways=half,
                    bandwidth_bytes_per_s=link_class.bandwidth_bytes_per_s * count,
                    latency=latency[kind],
                    exclusive=link_class.sharing == "exclusive",
                    link_class=kind,
                )
            )
    return links
