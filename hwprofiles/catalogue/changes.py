"""Changes to a cluster: other link speeds, slower devices, what has failed, as assignments beside its parameters."""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from hwprofiles import GIB, ConfigError
from hwprofiles.devices import DeviceGraph, Latency, Link

__all__ = ["ClusterChange", "changed_classes", "changed_graph", "read_change"]

_EXCLUDES = {
    "bandwidth_gbyte_per_s": "bandwidth_gbit_per_s",
    "bandwidth_gbit_per_s": "bandwidth_gbyte_per_s",
    "latency_us": "latency_table",
}
"""Keys of a link class that may be set, and the other way to say the same."""
_FACTORS = ("bandwidth_factor", "latency_factor")
QUANTITIES = {
    "link": (*_EXCLUDES, *_FACTORS, "failed"),
    "device": ("speed", "memory_gib", "failed"),
    "node": ("failed",),
}
"""What may be set of what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """One assignment, such as ``link.ib.bandwidth_gbyte_per_s=25`` or ``device.node0/gpu1.speed=0.5``."""

    of: str
    """``link``, ``device`` or ``node``."""
    which: str
    """Links by class or by a pattern of their names; devices by profile or by a pattern of names; a node by number."""
    quantity: str
    """One of ``QUANTITIES``; a factor multiplies, ``speed`` is relative to the profile's, ``failed=1`` takes away."""
    value: float

    @property
    def text(self) -> str:
        """As it was written."""
        return f"{self.of}.{self.which}.{self.quantity}={self.value:g}"


def read_change(name: str, text: str) -> ClusterChange:
    """Read an assignment.

    Args:
        name: ``link.CLASS.QUANTITY``, ``device.PATTERN.QUANTITY`` or ``node.NUMBER.failed``.
        text: The value, a number.

    Raises:
        ConfigError: The name has another form, or the value breaks the quantity's rule.
    """
    of, _, rest = name.partition(".")
    which, _, quantity = rest.rpartition(".")
    if of not in QUANTITIES or not which:
        raise ConfigError(f"change must look like link.CLASS.QUANTITY=number (or device., node.), got {name!r}")
    if quantity not in QUANTITIES[of]:
        known = ", ".join(QUANTITIES[of])
        raise ConfigError(f"change of a {of} must be one of {known}, got {quantity!r}{_near(quantity, QUANTITIES[of])}")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    rule, holds = "a finite number > 0", 0 < value < math.inf
    if quantity == "failed":
        rule, holds = "1", value == 1
    elif quantity.startswith("latency"):
        rule, holds = "a finite number >= 0", 0 <= value < math.inf
    if not holds:
        raise ConfigError(f"{name} must be {rule}, got {text!r}")
    return ClusterChange(of=of, which=which, quantity=quantity, value=value)


def changed_classes(tree: Any, changes: Iterable[ClusterChange]) -> Any:
    """A cluster file's content with the link classes' bandwidths and latencies that the changes give.

    What is not a change of a class is left to ``changed_graph``.
    """
    classes = tree.get("link_classes") if isinstance(tree, Mapping) else None
    if not isinstance(classes, Mapping):
        return tree
    found = {name: dict(row) for name, row in classes.items() if isinstance(row, Mapping)}
    for change in changes:
        if _sets_class(change, found):
            found[change.which].pop(_EXCLUDES[change.quantity], None)
            found[change.which][change.quantity] = change.value
    return {**tree, "link_classes": {**classes, **found}}


def _sets_class(change: ClusterChange, classes: Iterable[str]) -> bool:
    return change.of == "link" and change.quantity in _EXCLUDES and change.which in classes


def changed_graph(graph: DeviceGraph, changes: Iterable[ClusterChange]) -> DeviceGraph:
    """The device graph with all changes but those that ``changed_classes`` has made.

    Raises:
        ConfigError: A change matches nothing, sets of single links what only a class has, or leaves no device.
        UnreachableError: Two devices that no route joins any more.
    """
    classes = list(dict.fromkeys(link.link_class for link in graph.links))
    failed: set[str] = set()  # by name: taking one away counts the others anew
    for change in changes:
        if change.of == "link" and not _sets_class(change, classes):
            graph = _with_links(graph, change, classes)
        elif change.of != "link":
            chosen = _devices(graph, change)
            if change.quantity == "failed":
                failed.update(device.name for device, hit in zip(graph.devices, chosen, strict=True) if hit)
            else:
                graph = _with_devices(graph, change, chosen)
    left = [i for i, device in enumerate(graph.devices) if device.name not in failed]
    if not left:
        raise ConfigError(f"failed devices must leave one of {graph.name!r}, got all {len(failed)}")
    return graph.only(left) if failed else graph


def _with_links(graph: DeviceGraph, change: ClusterChange, classes: list[str]) -> DeviceGraph:
    names = [link.name for link in graph.links]
    chosen = [_is(change.which, link.name, link.link_class) for link in graph.links]
    if not any(chosen):
        raise _unknown(change, "class of links or pattern of their names", [*classes, *names])
    if change.quantity in _EXCLUDES:
        raise ConfigError(f"{change.text}: of single links set {' or '.join(_FACTORS)}, or name a class of {classes}")
    if change.quantity == "failed":
        return graph.with_links([link for link, hit in zip(graph.links, chosen, strict=True) if not hit])
    return graph.with_links(
        [_scaled(link, change) if hit else link for link, hit in zip(graph.links, chosen, strict=True)]
    )


def _scaled(link: Link, change: ClusterChange) -> Link:
    if change.quantity == "bandwidth_factor":
        return replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * change.value)
    seconds = tuple(second * change.value for second in link.latency.seconds)
    return replace(link, latency=Latency(link.latency.sizes_bytes, seconds))


def _devices(graph: DeviceGraph, change: ClusterChange) -> list[bool]:
    """Which devices a change is of."""
    if change.of == "node":
        if not (change.which.isdigit() and int(change.which) < graph.node_count):
            raise ConfigError(f"{change.text}: node must be in 0 .. {graph.node_count - 1}, got {change.which!r}")
        return [device.node == int(change.which) for device in graph.devices]
    chosen = [_is(change.which, device.name, device.profile) for device in graph.devices]
    if not any(chosen):
        known = [name for device in graph.devices for name in (device.profile, device.name)]
        raise _unknown(change, "compute profile or pattern of device names", known)
    return chosen


def _with_devices(graph: DeviceGraph, change: ClusterChange, chosen: list[bool]) -> DeviceGraph:
    devices = [
        device
        if not hit
        else replace(device, speed=change.value)
        if change.quantity == "speed"
        else replace(device, memory_bytes=change.value * GIB)
        for device, hit in zip(graph.devices, chosen, strict=True)
    ]
    return graph.with_devices(devices)


def _is(which: str, name: str, kind: str) -> bool:
    return which == kind or fnmatchcase(name, which)


def _unknown(change: ClusterChange, what: str, known: list[str]) -> ConfigError:
    return ConfigError(f"{change.text} must name a {what}, got {change.which!r}{_near(change.which, known)}")


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(dict.fromkeys(known)), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
