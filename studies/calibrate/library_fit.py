"""A cluster's library of collectives fitted to measured ones: robust least squares on its physical parameters.

The parameters are those of the section ``library`` (calls, steps of rings and of trees, cost of messages, shares of
links, the rate of copies), and between machines the rate of the links that only messages between machines cross.  What
the section and the transport say before is the prior, from which no parameter moves further than a few of its standard
deviations.  Bytes on the wire by byte of data are the protocols' own: they are taken as they are.

A fit that is worse on rows held out than what the file says already goes half of the way, or none.  What all-to-alls
alone depend on is fitted behind that, since no other collective can hold it out.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import cluster_of_content
from hwprofiles.catalogue.library_section import library_of_section
from hwprofiles.catalogue.transports import DEFAULT_TRANSPORT, NetworkTransport, load_transport
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.readers.facts import Collectives
from planner.cost.library_rounds import library_collective_s
from planner.topology.network_routes import ClusterRoutes
from simulator.collectives.parallel_rings import RING_COLLECTIVES
from studies.calibrate.cross_validation import HeldOutErrors, summary
from studies.calibrate.robust_fit import fitted_logs

_ERROR = 0.15
"""Size of an ordinary residual, in logarithms."""
_LEAST_ROWS = 8
_MIB = 2**20
_WIDTHS = {
    "call_us": 0.7,
    "send_call_us": 0.7,
    "hop_us": 0.5,
    "far_hop_us": 0.7,
    "tree_hop_us": 0.7,
    "tree_far_hop_us": 0.7,
    "step_us": 0.7,
    "message_us": 0.7,
    "near_share": 0.25,
    "tree_share": 0.3,
    "send_share": 0.3,
    "copy_gbyte_per_s": 0.5,
    "link_share": 0.2,
    "bandwidth_gbyte_per_s": 0.4,
}
"""Standard deviations of the logarithms of the parameters before any measurement."""
_OF_SENDS = ("send_call_us", "send_share")
"""Parameters that all-to-alls alone depend on: no other collective could be worse for them."""
_MOST_WIDTHS = 2.5
"""Standard deviations that a parameter moves at most."""
_AT_BOUND = 0.01
_WAYS = (1.0, 0.5, 0.0)
"""Shares of the way from the prior to the fit, of which the one with the least errors on held-out rows is taken."""
_UNNAMED = {"tree_share": 0.92, "send_share": 0.95}
"""Where the search of shares that a section does not name begins; at a whole share it would see no slope."""
_SUMS = ("in_network", "in_switch")
_SHARES = ("near_share", "tree_share", "send_share", "link_share")
_LEAST_SHARE = 0.02
"""A cluster file takes no less than 0.01."""
_MOST_STEPS = 40
"""Steps of the search; those of calls that are three times as long as before take about 30."""
_FOLDS = 3
_LEAST_US = 0.01
_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FittedLibrary:
    """The content of a cluster file, with the errors of its library."""

    content: dict[str, Any]
    held_out: dict[str, HeldOutErrors]
    """By sizes, on groups of rows that were held out in turn."""
    residuals: dict[str, HeldOutErrors]
    """By sizes, on the rows of the fit."""
    at_prior: tuple[str, ...]
    """Parameters that the rows do not identify, which stay as they were."""
    at_bound: tuple[str, ...]
    """Parameters that would have gone further from what the file said than is physical: the rows contradict it."""
    way: float
    """Share of the way from what the file said to the fit; 0 where that was no better on rows held out."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Times of one collective over one set of devices."""

    collective: str
    devices: tuple[int, ...]
    size_bytes: Floats
    time_s: Floats


def fitted_library(content: Mapping[str, Any], measured: Sequence[Collectives]) -> FittedLibrary:
    """Return the content of a cluster file whose library fits measured collectives.

    Raises:
        ConfigError: The file has no such section, the cluster has fewer devices than took part, there are too few
            rows, or they determine no parameter.
    """
    if not isinstance(content.get("library"), dict):
        raise ConfigError("cluster file needs a section library to fit, got none; orrery read writes one")
    graph = _cluster(content, max(len(set(each.hosts)) for each in measured))
    groups = [_group(graph, each) for each in measured]
    rows = sum(len(group.size_bytes) for group in groups)
    if rows < _LEAST_ROWS:
        raise ConfigError(f"a library is fitted to at least {_LEAST_ROWS} rows of collectives, got {rows}")
    fit = _Fit(content, ClusterRoutes(graph), graph, groups)
    logs, known = fit.solve([np.ones(len(group.size_bytes), dtype=bool) for group in groups])
    if not known.any():
        origins = ", ".join(each.origin for each in measured)
        raise ConfigError(f"measurements must determine a parameter of the library, got none from {origins}")
    tried = {way: [np.full(len(group.size_bytes), np.nan) for group in groups] for way in _WAYS}
    for fold in _folds(groups):
        part, _ = fit.solve([~mask for mask in fold])
        for way, held_out in tried.items():
            for place, (mask, error) in enumerate(zip(fold, fit.errors_of_file(fit.towards(part, way)), strict=True)):
                held_out[place][mask] = error[mask]
    way = min(_WAYS, key=lambda each: float(np.abs(np.concatenate(tried[each])).mean()))
    held_out, at_bound = tried[way], tuple(np.array(fit.names)[fit.is_bound(logs)].tolist())
    logs = fit.with_sends(fit.towards(logs, way))
    errors = fit.errors_of_file(logs)
    dropped = (*(name for name, has in zip(fit.names, known, strict=True) if not has), *fit.unseen)
    result = fit.content_of(logs)
    judged, left = _by_size(groups, held_out), _by_size(groups, errors)
    result["fit"] = {
        "method": "least squares on logarithms of times with a soft absolute loss and log-normal priors",
        "held_out": "one collective over one set of devices at a time" if len(groups) > 1 else "every third size",
        "errors": {kind: _section(error) for kind, error in judged.items()},
        "residuals": {kind: _section(error) for kind, error in left.items()},
        "way": way,
        "at_prior": list(dropped),
        "at_bound": list(at_bound),
        "sources": [each.origin for each in measured],
    }
    kept = f"library: not identified by the measurements, as before: {', '.join(dropped)}" if dropped else ""
    assumed = [text for text in content.get("assumed", ()) if not text.startswith("library:")]
    result["assumed"] = [*assumed, *([kept] if kept else [])]
    return FittedLibrary(result, judged, left, dropped, at_bound, way)


def _cluster(content: Mapping[str, Any], machines: int) -> DeviceGraph:
    """Return the cluster with at least as many machines as took part."""
    graph = cluster_of_content(content, "cluster")
    nodes = content.get("parameters", {}).get("nodes")
    if graph.node_count < machines and isinstance(nodes, dict) and nodes.get("maximum", 0) >= machines:
        more = {**content["parameters"], "nodes": {**nodes, "default": machines}}
        graph = cluster_of_content({**content, "parameters": more}, "cluster")
    if graph.node_count < machines:
        raise ConfigError(f"cluster has {graph.node_count} machines, the collectives ran on {machines}")
    return graph


def _group(graph: DeviceGraph, measured: Collectives) -> _Group:
    """Return the rows of a file, with the devices that its ranks stand for: the first ones of each machine."""
    hosts = list(dict.fromkeys(measured.hosts))
    free = [[i for i, device in enumerate(graph.devices) if device.node == node] for node in range(len(hosts))]
    for node, host in enumerate(hosts):
        if measured.hosts.count(host) > len(free[node]):
            raise ConfigError(
                f"{measured.origin} ran on {measured.hosts.count(host)} devices of a machine, the cluster has"
                f" {len(free[node])}"
            )
    if len(measured.hosts) < 2:
        raise ConfigError(f"{measured.origin} ran on one device: nothing is sent")
    places = [free[hosts.index(host)].pop(0) for host in measured.hosts]
    return _Group(measured.collective, tuple(places), np.array(measured.size_bytes), np.array(measured.time_s))


def _folds(groups: Sequence[_Group]) -> list[list[np.ndarray]]:
    """Return the rows that are held out together: a group, or every third size of the only one."""
    if len(groups) > 1:
        return [[np.full(len(each.size_bytes), each is group) for each in groups] for group in groups]
    order = np.argsort(np.argsort(groups[0].size_bytes, kind="stable"), kind="stable")
    return [[order % _FOLDS == fold] for fold in range(_FOLDS)]


def _by_size(groups: Sequence[_Group], errors: Sequence[Floats]) -> dict[str, HeldOutErrors]:
    """Return the errors of long and of short messages."""
    size, error = np.concatenate([group.size_bytes for group in groups]), np.concatenate(errors)
    found = {}
    for kind, chosen in (("above 1 MiB", size > _MIB), ("up to 1 MiB", size <= _MIB)):
        own = error[chosen & ~np.isnan(error)]
        if len(own):
            found[kind] = summary(own)
    return found


def _section(error: HeldOutErrors) -> dict[str, float]:
    """Return errors as they are written."""
    return {"rows": error.rows, **{key: round(getattr(error, key), 4) for key in ("median", "p90", "bias")}}


class _Fit:
    """Parameters of a cluster's library, with the times that they give."""

    def __init__(
        self, content: Mapping[str, Any], network: ClusterRoutes, graph: DeviceGraph, groups: Sequence[_Group]
    ) -> None:
        self._content, self._network, self._groups = content, network, groups
        self._transport = _transport(content)
        section = _spelled(content["library"], self._transport)
        across = [group for group in groups if _nodes(network, group) > 1]
        seen = _seen(section, network, groups)
        self._paths: list[_Path] = [path for path in _parameters(section) if path in seen and _at(section, path) > 0]
        self.unseen = tuple(_name(section, path) for path in _parameters(section) if path not in self._paths)
        self._far = _far_links(network, graph, across)
        self._scaled: tuple[float, ClusterRoutes] | None = None
        middle = [float(_at(section, path)) for path in self._paths] + [1.0] * (self._far is not None)
        self.names = tuple(_name(section, path) for path in self._paths)
        if self._far is not None:
            self.names += (f"link_classes.{self._far[0]}.bandwidth_gbyte_per_s",)
        self.start = np.log(np.maximum(middle, _LEAST_US))
        self._width = np.array([_WIDTHS[name.rpartition(".")[2]] for name in self.names])
        self._reach = _MOST_WIDTHS * self._width

    def solve(self, chosen: Sequence[np.ndarray]) -> tuple[Floats, np.ndarray]:
        """Return the logarithms of the parameters that fit chosen rows, and which of them the rows identify."""
        return self._solved(chosen, self.start, np.ones(len(self.names), dtype=bool))

    def with_sends(self, logs: Floats) -> Floats:
        """Return parameters of which those that all-to-alls alone depend on fit all rows, the others as they are."""
        sends = np.array([name in _OF_SENDS for name in self.names])
        rows = [np.ones(len(group.size_bytes), dtype=bool) for group in self._groups]
        return self._solved(rows, logs, sends)[0] if sends.any() else logs

    def _solved(self, chosen: Sequence[np.ndarray], fixed: Floats, free: Bools) -> tuple[Floats, Bools]:
        """Return parameters of which the free ones fit chosen rows, and which of these the rows identify."""
        start, width, reach = self.start[free], self._width[free], self._reach[free]
        used = [(group, mask) for group, mask in zip(self._groups, chosen, strict=True) if mask.any()]

        def every(some: Floats) -> Floats:
            logs = fixed.copy()
            logs[free] = some
            return logs

        def errors(some: Floats) -> Floats:
            found = self.errors(every(some), [group for group, _ in used])
            return np.concatenate([error[mask] for error, (_, mask) in zip(found, used, strict=True)])

        bounds = (start - reach, start + reach)
        logs, known = fitted_logs(errors, start, width, bounds, ordinary=_ERROR, steps=_MOST_STEPS, diff_step=1e-3)
        return every(np.where(known, logs, start)), known

    def towards(self, logs: Floats, way: float) -> Floats:
        """Return parameters a share of the way from the prior."""
        return np.asarray(self.start + way * (logs - self.start))

    def is_bound(self, logs: Floats) -> np.ndarray:
        """Return flags of the parameters that are as far from the prior as they may be."""
        return np.asarray(np.abs(logs - self.start) >= (1 - _AT_BOUND) * self._reach)

    def errors(self, logs: Floats, groups: Sequence[_Group] | None = None) -> list[Floats]:
        """Return the logarithms of predicted over measured times, by group; of all groups if none are given."""
        return self._errors(self._section(logs), logs, self._groups if groups is None else groups)

    def errors_of_file(self, logs: Floats) -> list[Floats]:
        """Return the same of the file that is written, without the shares that it did not name and that stay."""
        return self._errors(self.content_of(logs)["library"], logs, self._groups)

    def _errors(self, section: Mapping[str, Any], logs: Floats, groups: Sequence[_Group]) -> list[Floats]:
        """Return the errors of groups with a section ``library``; of the parameters, the links' alone are read."""
        network = self._linked(float(logs[-1])).with_library(library_of_section(section, self._transport))
        return [
            np.log(
                library_collective_s(network, group.collective, group.devices, group.size_bytes, in_a_row=True)
                / group.time_s
            )
            for group in groups
        ]

    def _linked(self, rate: float) -> ClusterRoutes:
        """Return the network with the links between machines faster by a factor, given as its logarithm."""
        if self._far is None:
            return self._network
        if self._scaled is None or self._scaled[0] != rate:  # most of the derivatives are at one rate
            scaled = copy.copy(self._network)
            scaled.seconds_per_byte, scaled.wiring = self._network.seconds_per_byte.copy(), scaled
            scaled.seconds_per_byte[self._far[1]] /= np.exp(rate)
            self._scaled = rate, scaled
        return self._scaled[1]

    def content_of(self, logs: Floats) -> dict[str, Any]:
        """Return the content of the cluster file with fitted parameters."""
        section = self._section(logs)
        for (key, *_), known in zip(self._paths, logs != self.start, strict=False):
            if key in _UNNAMED and key not in self._content["library"] and not known:
                del section[key]
        result = {**self._content, "library": section}
        if self._far is not None and logs[-1] != self.start[-1]:
            name, links = self._far
            rate = np.exp(logs[-1]) / self._network.seconds_per_byte[links].max() / 1e9
            row = {key: value for key, value in result["link_classes"][name].items() if not key.startswith("bandwidth")}
            classes = {**result["link_classes"], name: {**row, "bandwidth_gbyte_per_s": _rounded(rate)}}
            result["link_classes"] = classes
        return result

    def _section(self, logs: Floats) -> dict[str, Any]:
        """Return the section ``library`` with fitted parameters."""
        section: dict[str, Any] = copy.deepcopy(dict(self._content["library"]))
        for path, value, stays in zip(self._paths, np.exp(logs).tolist(), logs == self.start, strict=False):
            if stays and path[0] not in _UNNAMED:
                continue
            owner: Any = section
            for key in path[:-1]:
                owner = owner[key]
            owner[path[-1]] = _rounded(min(max(value, _LEAST_SHARE), 1.0) if path[-1] in _SHARES else value)
        return section


def _inside(network: ClusterRoutes, group: _Group) -> bool:
    """Return whether some messages of a collective stay inside a machine."""
    return _nodes(network, group) < len(group.devices)


def _nodes(network: ClusterRoutes, group: _Group) -> int:
    """Return how many machines take part in a collective."""
    return len(np.unique(network.node[list(group.devices)]))


def _transport(content: Mapping[str, Any]) -> NetworkTransport:
    """Return the transport between the machines of a cluster file."""
    named = [row["transport"] for row in content.get("link_classes", {}).values() if row.get("transport")]
    return load_transport(named[0] if named else DEFAULT_TRANSPORT)


def _spelled(section: Mapping[str, Any], transport: NetworkTransport) -> dict[str, Any]:
    """Return the section ``library`` with what the transport says of each protocol written out."""
    rows = [{**transport.of(row["name"]).model_dump(), **row} for row in section["protocols"]]
    return {**section, "protocols": rows}


def _parameters(section: Mapping[str, Any]) -> list[_Path]:
    """Return the paths of all parameters of a library that any measurement could determine."""
    steps = ("hop_us", "far_hop_us", "tree_hop_us", "tree_far_hop_us", "step_us", "message_us")
    found: list[_Path] = []
    for number, protocol in enumerate(section["protocols"]):
        found += [("protocols", number, key) for key in ("call_us", *steps) if protocol.get(key) is not None]
    found += [(key,) for key in ("send_call_us", "copy_gbyte_per_s") if section.get(key) is not None]
    found += [("near_share",), ("send_share",), *([("tree_share",)] if _has_trees(section) else [])]
    return found + [(key, part) for key in _SUMS if section.get(key) for part in ("call_us", "link_share")]


def _seen(section: Mapping[str, Any], network: ClusterRoutes, groups: Sequence[_Group]) -> set[_Path]:
    """Return the paths of the parameters that some of the measured collectives could depend on."""
    across = [group for group in groups if _nodes(network, group) > 1]
    summed = [group for group in across if group.collective == "all-reduce" and _has_trees(section)]
    sends = [group for group in groups if group.collective == "all-to-all"]
    steps = {
        "call_us": groups,
        "hop_us": [group for group in groups if _inside(network, group)],
        "far_hop_us": across,
        "tree_hop_us": [group for group in summed if _inside(network, group)],
        "tree_far_hop_us": summed,
        "step_us": [group for group in across if group.collective != "broadcast"],
        "message_us": [group for group in across if group.collective in RING_COLLECTIVES],
    }
    numbers = range(len(section["protocols"]))
    seen: set[_Path] = {("protocols", number, key) for key, some in steps.items() if some for number in numbers}
    shared = {
        "send_call_us": [group for group in sends if group not in across],
        "send_share": [group for group in sends if group in across],
        "copy_gbyte_per_s": groups,
        "near_share": steps["hop_us"],
        "tree_share": summed,
    }
    seen |= {(key,) for key, some in shared.items() if some}
    sums = {"in_network": across, "in_switch": [group for group in groups if len(group.devices) > 2]}
    return seen | {(key, part) for key, some in sums.items() if some for part in ("call_us", "link_share")}


def _has_trees(section: Mapping[str, Any]) -> bool:
    """Return whether a library sums along trees between machines."""
    return section.get("tree_share", _UNNAMED["tree_share"]) is not None


def _at(section: Mapping[str, Any], path: _Path) -> Any:
    """Return a value of the section; a share that it leaves out is what a cluster file then takes."""
    value: Any = section
    for key in path:
        value = value.get(key, _UNNAMED.get(str(key), 1.0)) if isinstance(value, dict) else value[key]
    return value


def _name(section: Mapping[str, Any], path: _Path) -> str:
    parts = [section["protocols"][key]["name"] if isinstance(key, int) else key for key in path]
    return ".".join(str(part) for part in parts if part != "protocols")


def _rounded(value: float) -> float:
    """Return six significant digits, so that steps of the search are seen."""
    return float(f"{value:.6g}")


def _far_links(network: ClusterRoutes, graph: DeviceGraph, across: Sequence[_Group]) -> tuple[str, Ints] | None:
    """Return the class of links that bounds messages between machines and that none inside a machine cross."""
    if not across:
        return None
    devices = across[0].devices
    first = [device for device in devices if network.node[device] == network.node[devices[0]]]
    other = next(device for device in devices if network.node[device] != network.node[devices[0]])
    inside = {graph.links[i].link_class for a in first for b in first if a != b for i in graph.route(a, b)}
    route = [graph.links[i] for i in graph.route(first[0], other)]
    only = [link for link in route if link.link_class not in inside]
    if not only:
        return None
    name = min(only, key=lambda link: link.bandwidth_bytes_per_s).link_class
    return name, np.array([i for i, link in enumerate(graph.links) if link.link_class == name])
