"""The usual strategies by name, and strategies read from files: a configuration for every layer."""

import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml

from hwprofiles import ConfigError
from hwprofiles.devices import DeviceGraph
from planner.graph import IN_CHANNEL, ComputationGraph, Layer
from planner.parallel.configurations import ConfigSpace, Configuration, placement_devices
from planner.parallel.degrees import grid_of, hybrid_of, hybrid_strategy, is_hybrid, largest_divisor
from planner.parallel.input_channel_split import check_configuration, ordered_degrees, reducing_operation, space_in

__all__ = [
    "ALIASES",
    "NAMED",
    "PIPELINE",
    "REDUCING",
    "SEARCHED",
    "SUFFIXES",
    "Strategy",
    "check_strategy",
    "named_strategy",
    "spaces_of",
    "strategy_from_file",
    "strategy_names",
]

Strategy = Mapping[str, Configuration]
"""Layer name to configuration."""


SUFFIXES = (".json", ".yaml", ".yml")
"""Of strategy files."""


def _packed(degrees: dict[str, int], device_count: int) -> Configuration:
    parts = math.prod(degrees.values())
    return Configuration(degrees, tuple(placement_devices("packed", parts, device_count).tolist()))


def _split(layer: Layer, dim: str, device_count: int) -> Configuration:
    """Split one dimension as far as it divides and the devices go; leave a layer whole that cannot split it."""
    degrees = dict.fromkeys(layer.parallel_dims, 1)
    if dim in degrees:
        degrees[dim] = largest_divisor(layer.output.size(dim), device_count)
    return _packed(degrees, device_count)


def _samples(layer: Layer, device_count: int) -> Configuration:
    batch = layer.output.size("sample")
    if batch % device_count:
        nearest = max(round(batch / device_count), 1) * device_count
        raise ConfigError(
            f"batch must be a multiple of the {device_count} devices for equal parts of the samples, "
            f"got {batch}; the nearest is {nearest}"
        )
    return _split(layer, "sample", device_count)


def _data(graph: ComputationGraph, device_count: int) -> Strategy:
    """Every layer split by samples over all devices."""
    return {layer.name: _samples(layer, device_count) for layer in graph.layers}


def _model(graph: ComputationGraph, device_count: int) -> Strategy:
    """Every layer's output channels, and with them its parameters, over as many devices as divide them."""
    return {layer.name: _split(layer, "channel", device_count) for layer in graph.layers}


def _one_weird_trick(graph: ComputationGraph, device_count: int) -> Strategy:
    """Samples up to the first fully-connected layer, channels in the fully-connected ones (Krizhevsky 2014)."""
    return {
        layer.name: _split(layer, "channel", device_count)
        if layer.operation.kind == "linear"
        else _samples(layer, device_count)
        for layer in graph.layers
    }


def _spatial(graph: ComputationGraph, device_count: int) -> Strategy:
    """Positions split, as near to cubes as divides; layers without positions are split by channels."""
    return {layer.name: _positions(layer, device_count) for layer in graph.layers}


def _positions(layer: Layer, device_count: int) -> Configuration:
    grid = grid_of(layer, device_count)
    if not grid:
        return _split(layer, "channel", device_count)
    return _packed(dict.fromkeys(layer.parallel_dims, 1) | grid, device_count)


NAMED: dict[str, Callable[[ComputationGraph, int], Strategy]] = {
    "data": _data,
    "model": _model,
    "owt": _one_weird_trick,
    "spatial": _spatial,
}
"""Strategies that follow from a rule and split outputs only: candidates and starts of the searches."""
PIPELINE = "pipeline"
"""Cuts the mini-batch too: ``planner.search.pipeline_strategy`` makes it."""


def _channel(graph: ComputationGraph, device_count: int) -> Strategy:
    """Input channels over as many devices as divide them, the sums left split over the same by output channels.

    Layers that read the data, whose channels are few, and those that do not sum over their input channels are split
    by output channels, so that each layer holds the channels that its part of the next reads.
    """
    return {layer.name: _input_channels(layer, device_count) for layer in graph.layers}


def _input_channels(layer: Layer, device_count: int) -> Configuration:
    if reducing_operation(layer) is None or "input" in layer.inputs:
        return _split(layer, "channel", device_count)
    shared = math.gcd(layer.input_shapes[0].size("channel"), layer.output.size("channel"))
    degrees = dict.fromkeys(layer.parallel_dims, 1) | {IN_CHANNEL: largest_divisor(shared, device_count)}
    return _packed(ordered_degrees(degrees), device_count)


REDUCING: dict[str, Callable[[ComputationGraph, int], Strategy]] = {"channel": _channel}
"""Strategies that follow from a rule and split input channels, which the searches do not know."""
ALIASES = {"filter": "model"}
"""Other names of strategies: filters are output channels (ParaDL's word)."""
SEARCHED = ("layerwise", "hybrid")
"""Strategies that follow from no rule: ``planner.plan.plan`` searches them."""


def strategy_names() -> tuple[str, ...]:
    """Every name on the command line; ``layerwise`` and ``hybrid`` are searched, ``pipeline`` cuts the batch too."""
    return (*NAMED, *ALIASES, *REDUCING, PIPELINE, *SEARCHED)


def check_strategy(name: str) -> None:
    """Refuse the name of a strategy that is neither known, nor degrees, nor a file's.

    Raises:
        ConfigError: It is none of these (the nearest name is given), or degrees that cannot be read.
    """
    known = strategy_names()
    if name in known or name.endswith(SUFFIXES):
        return
    if not is_hybrid(name):
        raise ConfigError(
            f"strategy must be one of {', '.join(known)} or a file, or degrees such as data=4,filter=4, "
            f"got {name!r}{_near(name, known)}"
        )
    hybrid_of(name)


def named_strategy(
    name: str, graph: ComputationGraph, device_count: int, cluster: DeviceGraph | None = None
) -> Strategy:
    """The strategy of that name, given by degrees (``data=4,filter=4``), or read from a file of that path.

    Args:
        name: What to look for.
        graph: The network with its batch.
        device_count: Devices there are.
        cluster: Where they are, for the groups of a strategy by degrees; None: alike, in their order.

    Raises:
        ConfigError: No such name or file, or the strategy cannot be had for this batch or so many devices.
    """
    rule = (NAMED | REDUCING).get(ALIASES.get(name, name))
    if rule:
        return rule(graph, device_count)
    check_strategy(name)
    if name.endswith(SUFFIXES):
        return strategy_from_file(Path(name), graph, device_count)
    if name == PIPELINE:
        raise ConfigError(f"strategy must be one without micro-batches here, got {name}")
    if not is_hybrid(name):
        raise ConfigError(f"strategy {name} follows from no rule: it is searched")
    return hybrid_strategy(hybrid_of(name), graph, device_count, cluster)


def strategy_from_file(path: Path, graph: ComputationGraph, device_count: int) -> Strategy:
    """Read a strategy: a plan file, or YAML or JSON with ``configurations``.

    ``configurations`` maps each layer to ``degrees`` (dimension to degree) and ``devices`` (packed if left
    out); the key ``default`` serves layers that are not named.

    Raises:
        ConfigError: The file cannot be read, has unknown keys or layers, leaves a layer out, or a
            configuration does not fit its layer.
    """
    try:
        text = path.read_text()
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"strategy file {path} cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"strategy file {path} is not complete JSON or YAML: {str(error).splitlines()[0]}") from error
    rows = content.get("configurations") if isinstance(content, dict) else None
    if not isinstance(rows, dict):
        raise ConfigError(f"strategy file {path} must map 'configurations' to layers, got {type(rows).__name__}")
    _check_names(path, graph, content, rows)
    return {layer.name: _row(path, layer, rows, device_count) for layer in graph.layers}


def _check_names(
    path: Path, graph: ComputationGraph, content: Mapping[str, object], rows: Mapping[str, object]
) -> None:
    """Refuse keys that nothing would read."""
    where = f"strategy file {path}"
    if "version" not in content and set(content) != {"configurations"}:  # plan files have more to say
        extra = min(set(content) - {"configurations"}, key=str)
        raise ConfigError(f"{where} has the unknown key {extra!r}; known is configurations")
    for name in rows:
        if name not in graph.index and name != "default":
            raise ConfigError(f"{where}: {graph.name} has no layer {name!r}{_near(name, graph.index)}")
    default = rows.get("default")
    degrees = default.get("degrees") if isinstance(default, dict) else None
    dims = {dim for layer in graph.layers for dim in _splittable(layer)}
    for dim in degrees if isinstance(degrees, dict) else ():
        if dim not in dims:  # dimensions that only some layers have are fine
            raise ConfigError(f"{where}: {graph.name} has no dimension {dim!r}{_near(dim, dims)}")


def _splittable(layer: Layer) -> tuple[str, ...]:
    return layer.parallel_dims if reducing_operation(layer) is None else (*layer.parallel_dims, IN_CHANNEL)


def _near(name: object, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _row(path: Path, layer: Layer, rows: Mapping[str, object], device_count: int) -> Configuration:
    row = rows.get(layer.name, rows.get("default"))
    where = f"strategy file {path}: configurations.{layer.name}"
    if not isinstance(row, dict) or not isinstance(row.get("degrees"), dict):
        raise ConfigError(f"{where} must have degrees, got {row!r}")
    extra = set(row) - {"degrees", "devices"}
    if extra:
        raise ConfigError(f"{where} has the unknown key {min(extra, key=str)!r}; known are degrees and devices")
    given = {dim: d for dim, d in row["degrees"].items() if layer.name in rows or dim in _splittable(layer)}
    if any(type(degree) is not int or degree < 1 for degree in given.values()):
        raise ConfigError(f"{where}.degrees must be integers >= 1, got {given!r}")
    degrees = dict.fromkeys(layer.parallel_dims, 1) | given
    # too many parts are refused below, by number: they need no list
    devices = row.get("devices", list(range(min(math.prod(degrees.values()), device_count + 1))))
    if not isinstance(devices, list) or any(type(device) is not int for device in devices):
        raise ConfigError(f"{where}.devices must be a list of integers, got {devices!r}")
    configuration = Configuration(ordered_degrees(degrees), tuple(devices))
    check_configuration(layer, configuration, device_count)
    return configuration


def spaces_of(graph: ComputationGraph, strategy: Strategy, device_count: int) -> list[ConfigSpace]:
    """For every layer the space that holds its one configuration.

    Args:
        graph: The model or, where the strategy splits input channels, its graph for that (``applied``).
        strategy: A configuration for every layer of the model.
        device_count: Devices of the cluster.

    Raises:
        ConfigError: A layer has no configuration, or one that does not fit it.
    """
    for layer in graph.undivided.layers:
        if layer.name not in strategy:
            raise ConfigError(f"strategy must give every layer a configuration, {layer.name} has none")
    return [space_in(layer, strategy, device_count, graph.model_layer(i).name) for i, layer in enumerate(graph.layers)]
