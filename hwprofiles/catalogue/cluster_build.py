"""Builds the device graph that a checked cluster file describes."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from hwprofiles import ConfigError
from hwprofiles.catalogue.cluster_file import ClusterFile, DeviceGroup, Level, LinkRule, SwitchGroup
from hwprofiles.devices import CopyEngines, Device, DeviceGraph, Link

__all__ = ["build_cluster"]


@dataclass(slots=True, eq=False)
class _Part:
    """One copy of a level: all its vertices, its children's first, by local index."""

    level: str
    names: list[str] = field(default_factory=list)
    """Paths below this copy, such as ``node3/gpu1``."""
    devices: list[DeviceGroup | None] = field(default_factory=list)
    """The group of each vertex that is a device."""
    nodes: list[int] = field(default_factory=list)
    """Machine of each vertex (of switches: without meaning)."""
    hosts: list[bool] = field(default_factory=list)
    """Whether each vertex is a host's memory."""
    node_count: int = 0
    links: list[tuple[int, int, str, int]] = field(default_factory=list)
    """Two vertices, class, parallel cables."""
    children: list[tuple[str, int, "_Part"]] = field(default_factory=list)
    """Name and first vertex of each child."""
    found: dict[str, list[int]] = field(default_factory=dict)
    """What patterns matched: copies share their part, so each is searched once."""

    def find(self, pattern: str) -> list[int]:
        """Vertices that a pattern matches, in order."""
        if pattern not in self.found:
            self.found[pattern] = self._search(pattern)
        return self.found[pattern]

    def _search(self, pattern: str) -> list[int]:
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
        UnreachableError: Two devices that no route joins.
    """
    copies = [_expand(file, 0, [])]
    for i, level in enumerate(file.levels[1:], start=1):
        # Copies are all alike unless an at_most split them, and then the level above has no count.
        copies = copies * (level.count or 1)
        size = level.at_most or len(copies)
        groups = [copies[start : start + size] for start in range(0, len(copies), size)]
        # All groups are full and alike but perhaps the last.
        full, last = _expand(file, i, groups[0]), groups[-1]
        partial = full if last == groups[0] else _expand(file, i, last)
        copies = [full] * (len(groups) - 1) + [partial]
    return _graph(file, name, copies[0])


def _expand(file: ClusterFile, index: int, children: Sequence[_Part]) -> _Part:
    level = file.levels[index]
    part = _Part(level.name)
    for i, child in enumerate(children):
        _adopt(part, f"{child.level}{i}", child)
    _add_own(part, level)
    if level.is_node:
        part.nodes, part.node_count = [0] * len(part.nodes), 1
    for i, rule in enumerate(level.links):
        _add_links(part, rule, file, f"levels.{index}.links.{i}")
    return part


def _adopt(part: _Part, name: str, child: _Part) -> None:
    first = len(part.names)
    part.children.append((name, first, child))
    part.names += [f"{name}/{vertex}" for vertex in child.names]
    part.devices += child.devices
    part.hosts += child.hosts
    part.nodes += [part.node_count + node for node in child.nodes]
    part.node_count += child.node_count
    part.links += [(first + a, first + b, kind, count) for a, b, kind, count in child.links]


def _add_own(part: _Part, level: Level) -> None:
    base = part.node_count
    for group in (*level.devices, *level.switches):
        device = group if isinstance(group, DeviceGroup) else None
        node = base + device.node if device else 0
        part.node_count = max(part.node_count, node + 1 if device else 0)
        part.names += group.names
        part.devices += [device] * len(group.names)
        part.nodes += [node] * len(group.names)
        part.hosts += [isinstance(group, SwitchGroup) and group.is_host] * len(group.names)


def _add_links(part: _Part, rule: LinkRule, file: ClusterFile, where: str) -> None:
    if rule.link_class not in file.link_classes:
        near = difflib.get_close_matches(rule.link_class, file.link_classes, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{file.name}: {where}.class: must be one of {', '.join(file.link_classes) or 'link_classes'}, "
            f"got {rule.link_class!r}{hint}"
        )
    joined: set[tuple[int, int]] = set()
    for i in range(rule.each or 1):
        ends = [_matches(part, pattern.replace("{i}", str(i)), file, where) for pattern in rule.between]
        for a in ends[0]:
            for b in ends[1]:
                # A rule between vertices of one pattern meets every pair twice.
                pair = (min(a, b), max(a, b))
                if a != b and pair not in joined:
                    joined.add(pair)
                    part.links.append((a, b, rule.link_class, rule.count))


def _matches(part: _Part, pattern: str, file: ClusterFile, where: str) -> list[int]:
    found = part.find(pattern)
    if not found:
        near = difflib.get_close_matches(pattern, part.names, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{file.name}: {where}.between: must match a vertex, got {pattern!r}{hint}")
    return found


def _graph(file: ClusterFile, name: str, part: _Part) -> DeviceGraph:
    devices = [i for i, group in enumerate(part.devices) if group is not None]
    switches = [i for i, group in enumerate(part.devices) if group is None]
    vertex = {old: new for new, old in enumerate([*devices, *switches])}
    return DeviceGraph(
        name,
        [
            Device(
                name=part.names[i],
                node=part.nodes[i],
                profile=group.profile,
                memory_bytes=group.memory_bytes,
                copy_engines=CopyEngines(**group.copy_engines.model_dump()),
                message_overhead=group.message_overhead.in_seconds,
            )
            for i, group in enumerate(part.devices)
            if group is not None
        ],
        [part.names[i] for i in switches],
        _links(file, part, vertex),
        hosts=[name for name, is_host in zip(part.names, part.hosts, strict=True) if is_host],
    )


def _links(file: ClusterFile, part: _Part, vertex: dict[int, int]) -> list[Link]:
    made = []
    latency = {kind: link_class.latency for kind, link_class in file.link_classes.items()}
    for a, b, kind, count in part.links:
        link_class = file.link_classes[kind]
        half = link_class.duplex == "half"
        for source, target in [(a, b)] if half else [(a, b), (b, a)]:
            made.append(
                Link(
                    name=f"{part.names[source]} {'--' if half else '->'} {part.names[target]}",
                    source=vertex[source],
                    target=vertex[target],
                    both_ways=half,
                    bandwidth_bytes_per_s=link_class.bandwidth_bytes_per_s * count,
                    latency=latency[kind],
                    exclusive=link_class.sharing == "exclusive",
                    link_class=kind,
                )
            )
    return made
