"""The catalogue of clusters, and the clusters that users write: by name, with parameters, or from a file."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from groundwork.errors import ConfigError, UnreachableError
from groundwork.input_files import AnyPath, text_of
from groundwork.suggestions import did_you_mean
from hwprofiles.catalogue.changes import ClusterChange, changed_classes, changed_graph, links_left, read_change
from hwprofiles.catalogue.cluster_build import build_cluster
from hwprofiles.catalogue.cluster_file import ChoiceRule, ClusterFile
from hwprofiles.catalogue.cluster_reader import Rule, parse_cluster, read_parameters, read_tree
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.link import Link
from hwprofiles.plugins.entry_points import plugin_names, plugin_path

CLUSTERS = Path(__file__).parents[1] / "clusters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterParameter:
    """A number, or one of some words, that the user may set after the colon of a specification."""

    name: str
    description: str
    default: float | str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """The description, size and parameters of a cluster."""

    name: str
    description: str
    devices: int
    nodes: int
    parameters: tuple[ClusterParameter, ...]
    sources: tuple[str, ...]


def cluster_names() -> list[str]:
    """Return the names of the clusters of the catalogue, and of those that plug-ins offer, sorted."""
    return sorted({*_shipped(), *plugin_names("clusters")})


def _shipped() -> list[str]:
    """Return the names of the clusters that ship with the package."""
    return [path.stem for path in CLUSTERS.glob("*.yaml")]


def cluster_path(spec: str) -> Path:
    """Return the file that a cluster is read from; ``spec`` is as for ``load_cluster``."""
    return _locate(spec)[0]


def load_cluster(spec: AnyPath) -> DeviceGraph:
    """Return the device graph of a cluster.

    Args:
        spec: A name of the catalogue or the path of a cluster file, and optionally parameters:
            ``p100-4x4``, ``p100-4x4:nodes=8``, ``mine.yaml:nodes=2,uplinks=3``; and changes, whose names have
            points: ``p100-4x4:link.ib.bandwidth_factor=0.5,device.node0/gpu1.speed=0.8``
                (``hwprofiles.catalogue.changes``).

    Raises:
        ConfigError: The cluster, a parameter or the file breaks a rule; one line names all broken rules.
        UnreachableError: No route joins two devices.
    """
    text = text_of(spec, "cluster")
    graph = _build(_load(text))
    graph.spec = text
    return graph


def cluster_of_content(content: Mapping[Any, Any], origin: str) -> DeviceGraph:
    """Return the device graph of the content of a cluster file, with the defaults of its parameters.

    Raises:
        ConfigError: The content breaks a rule.
        UnreachableError: No route joins two devices.
    """
    rules = read_parameters(content, origin)
    values = {name: rule.default for name, rule in rules.items()}
    return _build(_Loaded(parse_cluster(content, values, origin), rules, values, []))


def load_surviving(spec: str) -> tuple[DeviceGraph, tuple[str, ...]]:
    """Return the device graph of a cluster without the devices that its failed links cut off.

    Returns:
        The cluster, and the names of the devices that were given up.

    Raises:
        ConfigError: The cluster, a parameter or the file breaks a rule, or no device is left.
    """
    try:
        return load_cluster(spec), ()
    except UnreachableError:
        loaded = _load(spec)
        failed = [change for change in loaded.changes if change.of == "link" and change.quantity == "failed"]
        before = _build(loaded._replace(changes=[change for change in loaded.changes if change not in failed]))
        lost = cut_off_devices(before, links_left(before, failed))
        if not failed or not lost:
            raise
        left = before.only([i for i, device in enumerate(before.devices) if device.name not in set(lost)])
        graph = left.with_links(links_left(left, failed))
        graph.spec = spec
        return graph, lost


class _Loaded(NamedTuple):
    """A cluster file with its parameters filled in, and changes to what it describes."""

    file: ClusterFile
    rules: Mapping[str, Rule]
    values: Mapping[str, float | str]
    changes: Sequence[ClusterChange]


def _build(loaded: _Loaded) -> DeviceGraph:
    """Return the device graph of a file, named with the parameters and changes that differ from the defaults."""
    file, rules, values, changes = loaded
    given = [assigned_text(key, value) for key, value in values.items() if value != rules[key].default]
    given += [change.text for change in changes]
    return changed_graph(build_cluster(file, f"{file.name}:{','.join(given)}" if given else file.name), changes)


def assigned_text(name: str, value: float | str) -> str:
    """Return a parameter as it is typed after the colon of a specification."""
    return f"{name}={value}" if isinstance(value, str) else f"{name}={value:g}"


def describe_cluster(spec: str) -> ClusterSummary:
    """Return the summary of a cluster; ``spec`` is as for ``load_cluster``."""
    loaded = _load(spec)
    file, graph = loaded.file, _build(loaded)
    return ClusterSummary(
        name=file.name,
        description=" ".join(file.description.split()),
        devices=len(graph.devices),
        nodes=graph.node_count,
        parameters=tuple(ClusterParameter(name=name, **rule.model_dump()) for name, rule in loaded.rules.items()),
        sources=file.sources,
    )


def cluster_transport(spec: str) -> str:
    """Return the name of the transport between the machines of a cluster; ``spec`` is as for ``load_cluster``."""
    return _load(spec).file.transport.name


def _load(spec: str) -> _Loaded:
    """Return the file of a cluster with its parameters filled in, and the changes."""
    path, text, name = _locate(spec)
    origin = f"cluster {path.stem}" if path.parent == CLUSTERS else f"cluster file {path}"
    tree, assignments = read_tree(path), text.split(",") if text else []
    dotted = [row.partition("=") for row in assignments if "." in row.partition("=")[0]]
    changes = [read_change(name.strip(), value.strip()) for name, _, value in dotted]
    plain = [row for row in assignments if "." not in row.partition("=")[0]]
    fabric = [word.strip() for name, _, word in (row.partition("=") for row in plain) if name.strip() == "fabric"]
    rules = read_parameters(tree, origin, fabric=fabric[0] if fabric else "")
    values = _choose(rules, plain, origin)
    file = parse_cluster(changed_classes(tree, changes), values, origin)
    return _Loaded(file.model_copy(update={"name": name}) if name else file, rules, values, changes)


def _locate(spec: str) -> tuple[Path, str, str]:
    """Divide a specification into the file, the text of its parameters, and a plug-in's name; empty for others."""
    name, _, assignments = spec.partition(":")
    if name in _shipped():
        return CLUSTERS / f"{name}.yaml", assignments, ""
    if Path(spec).is_file():
        return Path(spec), "", ""
    path, _, after = spec.rpartition(":")
    if path and Path(path).is_file():
        return Path(path), after, ""
    if name in plugin_names("clusters"):
        return plugin_path("clusters", name), assignments, name
    if name and Path(name).is_dir():
        raise ConfigError(f"cluster must be a known name or a file, got the folder {name!r}")
    before, comma, words = spec.partition(",")
    if comma and (before in cluster_names() or Path(before).is_file()):
        raise ConfigError(f"parameters and changes of cluster {before} must follow a colon: {before}:{words}")
    if "/" in name or name.endswith((".yaml", ".yml")):
        raise ConfigError(f"cluster file {name} does not exist")
    hint = did_you_mean(name, cluster_names()) or ";"
    known = ", ".join(cluster_names())
    raise ConfigError(f"cluster must be a known name or a file, got {name!r}{hint} known: {known}")


def _choose(parameters: Mapping[str, Rule], assignments: Sequence[str], origin: str) -> dict[str, float | str]:
    """Return the value of every parameter: the assigned one, or the default."""
    values: dict[str, float | str] = {name: parameter.default for name, parameter in parameters.items()}
    problems: list[str] = []
    given: set[str] = set()
    for assignment in assignments:
        name, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals:
            problems.append(f"parameters must look like name=number, got {assignment!r}")
        elif name not in parameters:
            hint = did_you_mean(name, parameters)
            problems.append(f"parameter must be one of {', '.join(parameters) or '(none)'}, got {name!r}{hint}")
        elif name in given:
            problems.append(f"{name} must be given once, got it twice")
        else:
            given.add(name)
            _assign(name, text, parameters[name], values, problems)
    if problems:
        raise ConfigError(f"{origin}: {'; '.join(problems)}")
    return values


def _assign(name: str, text: str, parameter: Rule, values: dict[str, float | str], problems: list[str]) -> None:
    """Enter the value of a parameter in ``values``, or the rule that it breaks in ``problems``."""
    if isinstance(parameter, ChoiceRule):
        if text in parameter.choices:
            values[name] = text
        else:
            hint = did_you_mean(text, parameter.choices)
            problems.append(f"{name} must be one of {', '.join(parameter.choices)}, got {text!r}{hint}")
        return
    whole = isinstance(parameter.default, int)
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = math.nan
    if parameter.minimum <= value <= parameter.maximum:
        values[name] = value
    else:
        kind = "whole number" if whole else "number"
        problems.append(f"{name} must be a {kind} in {parameter.minimum} .. {parameter.maximum}, got {text!r}")


def cluster_with(spec: str, assignments: Mapping[str, str]) -> str:
    """Return a specification with other values of parameters and further changes.

    Args:
        spec: As for ``load_cluster``.
        assignments: Right sides by name; of parameters and changes that the specification has already they take the
            place.

    Raises:
        ConfigError: The cluster is not known.
    """
    text = _locate(spec)[1]
    name = spec.removesuffix(f":{text}") if text else spec
    given = dict(row.partition("=")[::2] for row in text.split(",")) if text else {}
    merged = {**{key.strip(): value.strip() for key, value in given.items()}, **assignments}
    return f"{name}:{','.join(f'{key}={value}' for key, value in merged.items())}" if merged else name


def cut_off_devices(graph: DeviceGraph, links: Sequence[Link]) -> tuple[str, ...]:
    """Return the names of the devices that must be given up so that routes join all others.

    Returns:
        Names in order; none where all still reach each other.
    """
    after: dict[int, list[int]] = {}
    for link in links:
        after.setdefault(link.source, []).append(link.target)
        if link.both_ways:
            after.setdefault(link.target, []).append(link.source)
    count = len(graph.devices)
    reached = [_reached(after, device, count) for device in range(count)]
    both_ways = [sum(device in reached[i] for i in reached[device]) for device in range(count)]
    kept: list[int] = []  # those first that reach, and are reached by, the most others
    for device in sorted(range(count), key=lambda i: (-both_ways[i], i)):
        if all(device in reached[i] and i in reached[device] for i in kept):
            kept.append(device)
    left = set(kept)
    return tuple(device.name for i, device in enumerate(graph.devices) if i not in left)


def _reached(after: dict[int, list[int]], device: int, count: int) -> set[int]:
    """Return the devices that a device reaches over switches; devices forward nothing."""
    seen, queue = {device}, deque([device])
    while queue:
        vertex = queue.popleft()
        if vertex >= count or vertex == device:
            for other in after.get(vertex, []):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
    return {vertex for vertex in seen if vertex < count and vertex != device}
