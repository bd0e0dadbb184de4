"""Changes to a cluster: other link speeds, slower devices, failures, as assignments next to its parameters."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Bools
from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from groundwork.units import GIB
from hwprofiles.catalogue.transports import FarSteps, load_transport
from hwprofiles.devices.columns import ClusterLinks
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.latency import Latency
from hwprofiles.devices.link import Link

_EXCLUDES = {
    "bandwidth_gbyte_per_s": "bandwidth_gbit_per_s",
    "bandwidth_gbit_per_s": "bandwidth_gbyte_per_s",
    "latency_us": "latency_table",
}
"""Keys of a link class that may be set, with the key that each replaces."""
_TRANSPORT = "transport"
"""Key of a link class that names a transport."""
_RELEASE = "release"
"""Key of a library whose release is changed."""
_RELEASE_FORM = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}")
_FACTORS = ("bandwidth_factor", "latency_factor")
"""Quantities that multiply those of links."""
_LEAST, _MOST = 1e-9, 1e9
"""Range of values: whatever is beyond it is no machine, and its products with others overflow."""
QUANTITIES = {
    "link": (*_EXCLUDES, *_FACTORS, _TRANSPORT, "failed"),
    "device": ("speed", "memory_gib", "profile", "failed"),
    "node": ("failed",),
    "nodes": ("gpus_per_port",),
    "library": (_RELEASE,),
}
"""Quantities that may be set, by the kind of component."""
_SWITCHES = ".switches"
"""End of a pattern of nodes whose switches are changed: ``nodes.*.switches.gpus_per_port``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """One assignment, such as ``link.ib.bandwidth_gbyte_per_s=25`` or ``device.node0/gpu1.speed=0.5``."""

    of: str
    """Kind of component: ``link``, ``device``, ``node``, ``nodes`` or ``library``."""
    which: str
    """Components: links by class or name pattern, devices by profile or name pattern, a node by number, and
    the switches of nodes by a pattern of numbers: ``*.switches``, a library by its name."""
    quantity: str
    """One of ``QUANTITIES``: a factor multiplies, ``speed`` is relative to the profile's, ``failed=1`` removes."""
    value: float
    word: str = ""
    """Right side where it is no number: a compute profile, a transport or a release."""

    @property
    def text(self) -> str:
        """Text of the assignment."""
        return f"{self.of}.{self.which}.{self.quantity}={self.word or f'{self.value:g}'}"


def read_change(name: str, text: str) -> ClusterChange:
    """Parse an assignment.

    Args:
        name: Left side: ``link.CLASS.QUANTITY``, ``device.PATTERN.QUANTITY``, ``node.NUMBER.failed``,
            ``nodes.PATTERN.switches.gpus_per_port`` or ``library.NAME.release``.
        text: Right side, a number; of ``device.PATTERN.profile`` a compute profile, of ``link.CLASS.transport`` a
            transport, of ``library.NAME.release`` such as ``2.18``.

    Raises:
        ConfigError: The name has another form, or the value breaks the quantity's rule.
    """
    of, _, rest = name.partition(".")
    which, _, quantity = rest.rpartition(".")
    if of not in QUANTITIES or not which:
        raise ConfigError(
            "change must look like link.CLASS.QUANTITY=number, device.NAME.QUANTITY or node.NAME.QUANTITY, where * is "
            f"all names, got {name!r}"
        )
    if quantity not in QUANTITIES[of]:
        known = ", ".join(QUANTITIES[of])
        raise ConfigError(
            f"change of a {of} must be one of {known}, got {quantity!r}{did_you_mean(quantity, QUANTITIES[of])}"
        )
    if quantity in (_TRANSPORT, _RELEASE, "profile"):
        _check_word(name, quantity, text)
        return ClusterChange(of=of, which=which, quantity=quantity, value=math.nan, word=text)
    if of == "nodes" and not which.endswith(_SWITCHES):
        raise ConfigError(f"change of nodes must look like nodes.PATTERN.switches.{quantity}=number, got {name!r}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    rule, holds = f"a number from {_LEAST:g} to {_MOST:g}", _LEAST <= value <= _MOST
    if quantity == "failed":
        rule, holds = "1", value == 1
    elif quantity == "gpus_per_port":
        rule, holds = f"a whole number from 1 to {_MOST:g}", 1 <= value <= _MOST and value == int(value)
    elif quantity.startswith("latency"):
        rule, holds = f"a number from 0 to {_MOST:g}", 0 <= value <= _MOST
    if not holds:
        raise ConfigError(f"{name} must be {rule}, got {text!r}")
    return ClusterChange(of=of, which=which, quantity=quantity, value=value)


def _check_word(name: str, quantity: str, text: str) -> None:
    """Raise where the right side of an assignment is no transport, release or compute profile."""
    if quantity == _TRANSPORT:
        load_transport(text)
    elif quantity == _RELEASE and not _RELEASE_FORM.fullmatch(text):
        raise ConfigError(f"{name} must be numbers with points between, such as 2.18, got {text!r}")
    elif not text:
        raise ConfigError(f"{name} must be a compute profile, got {text!r}")


def changed_classes(tree: Any, changes: Iterable[ClusterChange]) -> Any:
    """Return the content of a cluster file with what changes set of link classes, and of its library.

    With another transport goes what the file's library says of its own about steps between machines.

    All other changes are left to ``changed_graph``.
    """
    classes = tree.get("link_classes") if isinstance(tree, Mapping) else None
    if not isinstance(classes, Mapping):
        return tree
    rows = {name: dict(row) for name, row in classes.items() if isinstance(row, Mapping)}
    changed = dict(tree)
    for change in changes:
        if change.of == "library" and isinstance(changed.get("library"), Mapping):
            changed["library"] = {**changed["library"], change.quantity: change.word}
        if _sets_class(change, rows):
            rows[change.which].pop(_EXCLUDES.get(change.quantity), None)
            rows[change.which][change.quantity] = change.word or change.value
            if change.quantity == _TRANSPORT:
                changed["library"] = _without_far_steps(changed.get("library"))
    return {**changed, "link_classes": {**classes, **rows}}


def _without_far_steps(library: Any) -> Any:
    """Return the section ``library`` without what it says of its own about steps between machines."""
    if not isinstance(library, Mapping) or not isinstance(library.get("protocols"), list):
        return library
    far = {*FarSteps.model_fields} - {"near_only"}
    rows = [
        {key: value for key, value in row.items() if key not in far} if isinstance(row, Mapping) else row
        for row in library["protocols"]
    ]
    return {**library, "protocols": rows}


def _sets_class(change: ClusterChange, classes: Iterable[str]) -> bool:
    """Return whether a change sets a key of a link class."""
    return change.of == "link" and change.quantity in (*_EXCLUDES, _TRANSPORT) and change.which in classes


def changed_graph(graph: DeviceGraph, changes: Iterable[ClusterChange]) -> DeviceGraph:
    """Return the device graph with all changes except those that ``changed_classes`` has applied.

    Raises:
        ConfigError: A change matches nothing, sets a key of link classes for single links, or leaves no device.
        UnreachableError: No route joins two devices any more.
    """
    classes = list(dict.fromkeys(link.link_class for link in graph.links.kinds))
    failed: set[str] = set()  # by name, because removing one renumbers the others
    for change in changes:
        if change.of == "library":
            if graph.library is None or graph.library.name != change.which:
                known = [] if graph.library is None else [graph.library.name]
                raise _unknown(change, f"library of the cluster ({', '.join(known) or 'it has none'})", known)
        elif change.of == "link" and not _sets_class(change, classes):
            graph = _with_links(graph, change, classes)
        elif change.of == "nodes":
            graph = with_devices_per_port(graph, change.which.removesuffix(_SWITCHES), int(change.value))
        elif change.of != "link":
            chosen = _devices(graph, change)
            if change.quantity == "failed":
                failed.update(device.name for device, hit in zip(graph.devices, chosen, strict=True) if hit)
            else:
                graph = _with_devices(graph, change, chosen)
    if not failed:
        return graph
    left = [i for i, name in enumerate(graph.devices.names) if name not in failed]
    if not left:
        raise ConfigError(f"failed devices must leave one of {graph.name!r}, got all {len(failed)}")
    return graph.only(left)


def links_left(graph: DeviceGraph, failures: Iterable[ClusterChange]) -> ClusterLinks:
    """Return the links of a graph that failures of links leave."""
    links, patterns = graph.links, [change.which for change in failures]
    classes = links.classes
    failed = [_chosen(which, links.names, classes) for which in patterns]
    return links.some(np.flatnonzero(~np.logical_or.reduce(failed)) if failed else np.arange(len(links)))


def _with_links(graph: DeviceGraph, change: ClusterChange, classes: list[str]) -> DeviceGraph:
    names, links = graph.links.names, graph.links
    chosen = _chosen(change.which, names, links.classes)
    if not chosen.any():
        raise _unknown(change, f"class of links ({', '.join(classes)}) or pattern of their names", [*classes, *names])
    if change.quantity in (*_EXCLUDES, _TRANSPORT):
        raise ConfigError(f"{change.text}: of single links set {' or '.join(_FACTORS)}, or name a class of {classes}")
    if change.quantity == "failed":
        return graph.with_links(links_left(graph, [change]))
    return graph.with_links(links.changed(chosen, lambda link: _scaled(link, change)))


def _scaled(link: Link, change: ClusterChange) -> Link:
    """Return a link with its bandwidth or latency multiplied."""
    if change.quantity == "bandwidth_factor":
        return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * change.value)
    seconds = tuple(second * change.value for second in link.latency.seconds)
    return replace(link, latency=Latency(link.latency.sizes_bytes, seconds))


def _devices(graph: DeviceGraph, change: ClusterChange) -> Bools:
    """Return flags of the devices that a change is for."""
    if change.of == "node":
        if change.which not in map(str, range(graph.node_count)):
            raise ConfigError(f"{change.text}: node must be in 0 .. {graph.node_count - 1}, got {change.which!r}")
        return np.asarray(graph.devices.node == int(change.which))
    names, profiles = graph.devices.names, graph.devices.of_each(lambda device: device.profile)
    chosen = _chosen(change.which, names, profiles)
    if not chosen.any():
        known = [name for pair in zip(profiles.tolist(), names, strict=True) for name in pair]
        raise _unknown(change, "compute profile or pattern of device names", known)
    return chosen


def _with_devices(graph: DeviceGraph, change: ClusterChange, chosen: Bools) -> DeviceGraph:
    """Return the graph with a change of the speed, memory or profile of some devices."""
    all_fields: dict[str, dict[str, Any]] = {
        "speed": {"speed": change.value},
        "profile": {"profile": change.word},
        "memory_gib": {"memory_bytes": change.value * GIB},
    }
    fields = all_fields[change.quantity]
    return graph.with_devices(graph.devices.changed(chosen, lambda device: replace(device, **fields)))


def _chosen(which: str, names: Sequence[str], kinds: NDArray[np.str_]) -> Bools:
    """Return flags of the components whose kind a selection is, or whose names it matches."""
    return np.asarray((kinds == which) | np.array([fnmatchcase(name, which) for name in names], dtype=np.bool_))


def _unknown(change: ClusterChange, what: str, known: list[str]) -> ConfigError:
    """Return the error of a change that matches nothing."""
    hint = did_you_mean(change.which, dict.fromkeys(known))
    return ConfigError(f"{change.text} must name a {what}, got {change.which!r}{hint}")


def with_devices_per_port(graph: DeviceGraph, pattern: str, count: int) -> DeviceGraph:
    """Return a cluster in whose nodes ``count`` devices at a time share a switch.

    The devices of a node are dealt to its switches in order.  Switches are the vertices that join devices of one node
    to the rest of it: those that join devices only, as an NVSwitch does, stay as they are.

        three a port     gpu0 gpu1 | gpu2        gpu0 gpu1 gpu2 |
                            plx0   | plx1   ->        plx0      | plx1

    Args:
        graph: Device graph.
        pattern: Numbers of nodes, such as ``*``, ``3`` or ``1?``.
        count: Devices on one switch, >= 1.

    Raises:
        ConfigError: No node matches, a node has no such switches or too few, or a device is joined to several.
    """
    nodes = [node for node in range(graph.node_count) if fnmatchcase(str(node), pattern)]
    if not nodes:
        raise ConfigError(f"nodes must match one of 0 .. {graph.node_count - 1}, got {pattern!r}")
    moved: dict[tuple[int, int], tuple[int, int]] = {}
    for node in nodes:
        devices = [i for i, device in enumerate(graph.devices) if device.node == node]
        moved.update(_moves(graph, devices, count, f"nodes.{node}"))
    links = [_moved(graph, link, moved) for link in graph.links]
    return graph.with_links(links)


def _moves(
    graph: DeviceGraph, devices: Sequence[int], count: int, where: str
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the new ends of the links between the devices of a node and its switches, in both directions."""
    joined = _switches(graph, devices)
    switches = sorted({switch for found in joined.values() for switch in found})
    several = [graph.vertices[device] for device, found in joined.items() if len(found) != 1]
    if several or not switches:
        raise ConfigError(f"{where}: gpus_per_port needs one switch with a port for each device, {several[0]} has not")
    least = -(-len(devices) // len(switches))
    if count < least:
        raise ConfigError(
            f"{where}: gpus_per_port must be >= {least} for {len(devices)} devices on {len(switches)} switches, "
            f"got {count}"
        )
    moves = {}
    for at, device in enumerate(devices):
        old, new = joined[device][0], switches[at // count]
        moves[device, old], moves[old, device] = (device, new), (new, device)
    return moves


def _switches(graph: DeviceGraph, devices: Sequence[int]) -> dict[int, list[int]]:
    """Return for each device the vertices that join it, and no device of another node, to vertices beyond devices."""
    first = len(graph.devices)
    neighbours: dict[int, set[int]] = {}
    for link in graph.links:
        neighbours.setdefault(link.source, set()).add(link.target)
        neighbours.setdefault(link.target, set()).add(link.source)
    own = set(devices)
    ports = {
        vertex
        for vertex, others in neighbours.items()
        if vertex >= first and any(other >= first for other in others) and {i for i in others if i < first} <= own
    }
    return {device: sorted(neighbours.get(device, set()) & ports) for device in devices}


def _moved(graph: DeviceGraph, link: Link, moves: dict[tuple[int, int], tuple[int, int]]) -> Link:
    """Return a link with its new ends and the name that follows from them."""
    ends = moves.get((link.source, link.target))
    if ends is None or ends == (link.source, link.target):
        return link
    sign = "--" if link.both_ways else "->"
    name = f"{graph.vertices[ends[0]]} {sign} {graph.vertices[ends[1]]}"
    return replace(link, source=ends[0], target=ends[1], name=name)
