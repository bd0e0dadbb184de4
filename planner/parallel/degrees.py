"""Hybrids: strategies given by degrees, such as ``data=4,filter=4``, over groups of devices that follow the topology.

Every word splits all layers alike: ``data`` the samples, ``spatial`` the positions, ``filter`` the output channels,
``channel`` the input channels (those of layers that read the data or sum over none: their output channels), and
``pipeline`` gives runs of layers to groups of devices.  The devices form nested groups, the words that exchange most
innermost: filters gather whole tensors, positions only halos, replicas of the data meet once an iteration, and stages
hand on one tensor.  A layer that cannot be split so far is split as far as it
divides, by the first devices of each group, as under the named strategies; a layer without positions takes the
degree of ``spatial`` in its channels.
"""

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from hwprofiles import ConfigError
from hwprofiles.devices import DeviceGraph
from planner.graph import IN_CHANNEL, ComputationGraph, Layer
from planner.parallel.configurations import Configuration
from planner.parallel.device_groups import grouped_devices
from planner.parallel.input_channel_split import ordered_degrees, reducing_operation

__all__ = [
    "Hybrid",
    "check_hybrid",
    "grid_of",
    "hybrid_of",
    "hybrid_strategy",
    "is_hybrid",
    "largest_divisor",
    "split_layer",
    "split_list",
    "stage_groups",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Degrees of a strategy, the outermost first: the devices are that many groups of groups."""

    pipeline: int = 1
    data: int = 1
    spatial: int = 1
    filter: int = 1
    channel: int = 1

    @property
    def parts(self) -> int:
        """Devices that it takes."""
        return math.prod(self.degrees.values())

    @property
    def degrees(self) -> dict[str, int]:
        """All degrees by their words."""
        return {field.name: int(getattr(self, field.name)) for field in fields(self)}

    @property
    def text(self) -> str:
        """As it is written, without degrees of 1: ``data=4,filter=4``; ``data=1`` if there are no others."""
        return ",".join(f"{word}={degree}" for word, degree in self.degrees.items() if degree > 1) or "data=1"


WORDS = tuple(field.name for field in fields(Hybrid))


def is_hybrid(text: str) -> bool:
    """Whether a strategy is given by degrees, and not by its name or a file."""
    return "=" in text


def hybrid_of(text: str) -> Hybrid:
    """Degrees from ``data=4,filter=4``; words that are left out have 1.

    Raises:
        ConfigError: A word is unknown or given twice, or a degree is no whole number >= 1.
    """
    found: dict[str, int] = {}
    for setting in text.split(","):
        word, equals, degree = (piece.strip() for piece in setting.partition("="))
        if word not in WORDS or not equals:
            near = difflib.get_close_matches(word, WORDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near and near[0] != word else ""
            known = ", ".join(f"{name}=N" for name in WORDS)
            raise ConfigError(f"strategy {text!r} must be made of {known}, got {setting!r}{hint}")
        if word in found:
            raise ConfigError(f"strategy {text!r} must give {word} once, got it again")
        if not (degree.isascii() and degree.isdigit() and int(degree) > 0):
            raise ConfigError(f"strategy {text!r}: {word} must be a whole number >= 1, got {degree!r}")
        found[word] = int(degree)
    return Hybrid(**found)


def split_list(text: str) -> list[str]:
    """Strategies of a list, each once, separated by commas or semicolons.

    After a comma a degree goes with the one before it, unless the strategy has that word already:
    ``data,data=4,filter=4,data=2,spatial=8`` is three, and so is ``data;data=4,filter=4;spatial=8``.
    """
    rows: list[list[str]] = []
    for piece in text.split(";"):
        last: list[str] = []
        for word in (word.strip() for word in piece.split(",")):
            name = word.partition("=")[0]
            if last and all(is_hybrid(w) and w.partition("=")[0] != name for w in last) and is_hybrid(word):
                last.append(word)
            else:
                last = [word]
                rows.append(last)
    return list(dict.fromkeys(",".join(row) for row in rows))


def hybrid_strategy(
    hybrid: Hybrid, graph: ComputationGraph, device_count: int, cluster: DeviceGraph | None = None
) -> Mapping[str, Configuration]:
    """A configuration for every layer.

    Args:
        hybrid: The degrees.
        graph: The network with its batch.
        device_count: Devices there are.
        cluster: Where they are; None: alike, in their order.

    Raises:
        ConfigError: There are fewer devices, the data degree does not divide the batch, there is a degree into
            which no layer can be split, or it has stages, which need a cut too
            (``planner.search.pipeline_strategy.strategy_and_cut``).
    """
    if hybrid.pipeline > 1:
        raise ConfigError(f"strategy must be one without micro-batches here, got {hybrid.text}")
    (devices,) = stage_groups(hybrid, graph, device_count, cluster)
    return {layer.name: split_layer(layer, hybrid, devices) for layer in graph.layers}


def stage_groups(
    hybrid: Hybrid, graph: ComputationGraph, device_count: int, cluster: DeviceGraph | None = None
) -> list[list[int]]:
    """Devices of every stage, in the order of their nested groups; arguments and errors as for ``hybrid_strategy``."""
    check_hybrid(hybrid, graph, device_count)
    width = hybrid.filter * hybrid.channel
    sizes = [width, width * hybrid.spatial, hybrid.parts // hybrid.pipeline]
    devices = grouped_devices(cluster, hybrid.parts, sizes) if cluster else list(range(hybrid.parts))
    return [devices[begin : begin + sizes[-1]] for begin in range(0, hybrid.parts, sizes[-1])]


def check_hybrid(hybrid: Hybrid, graph: ComputationGraph, device_count: int) -> None:
    """Refuse degrees that a network on so many devices cannot have; errors as of ``hybrid_strategy``."""
    where = f"strategy {hybrid.text}"
    if hybrid.parts > device_count:
        raise ConfigError(f"{where} must have at most the cluster's {device_count} devices, it takes {hybrid.parts}")
    if graph.batch % hybrid.data:
        nearest = max(round(graph.batch / hybrid.data), 1) * hybrid.data
        raise ConfigError(
            f"batch must be a multiple of data={hybrid.data} for equal parts of the samples, got {graph.batch}; "
            f"the nearest is {nearest}"
        )
    if hybrid.pipeline > 1 and hybrid.channel > 1:
        raise ConfigError(f"{where}: channel must be 1 in a pipeline, whose stages are not cut with partial sums")
    for word, sizes in (("filter", _channels(graph)), ("channel", _input_channels(graph)), ("spatial", {})):
        degree = hybrid.degrees[word]
        reached = {name: largest_divisor(size, degree) for name, size in sizes.items()}
        if word == "spatial":
            reached = {layer.name: math.prod(grid_of(layer, degree).values()) for layer in graph.layers}
        name, most = max(reached.items(), key=lambda row: row[1], default=("no layer", 1))
        if degree > most:
            raise ConfigError(
                f"{where}: {word} must be a number of equal parts that some layer has, got {degree}; "
                f"the most below it are {most}, of {name}"
            )


def _channels(graph: ComputationGraph) -> dict[str, int]:
    return {layer.name: layer.output.size("channel") for layer in graph.layers if "channel" in layer.parallel_dims}


def _input_channels(graph: ComputationGraph) -> dict[str, int]:
    return {
        layer.name: layer.input_shapes[0].size("channel")
        for layer in graph.layers
        if reducing_operation(layer) is not None
    }


def _position_dims(layer: Layer) -> list[str]:
    return [dim for dim in layer.parallel_dims if dim not in ("sample", "channel")]


def largest_divisor(size: int, most: int) -> int:
    """The largest number up to ``most`` that divides ``size``."""
    return next(degree for degree in range(min(size, most), 0, -1) if size % degree == 0)


def grid_of(layer: Layer, parts: int) -> dict[str, int]:
    """Degrees of a layer's positions: as many parts as divide, as near to a cube as goes; none without positions."""
    dims = _position_dims(layer)
    if math.prod(layer.output.size(dim) for dim in dims) == 1:
        return {}
    choices: list[tuple[int, ...]] = [()]
    for dim in dims:
        size = layer.output.size(dim)
        choices = [
            (*row, degree) for row in choices for degree in range(1, parts // math.prod(row) + 1) if size % degree == 0
        ]
    best = max(choices, key=lambda row: (math.prod(row), -max(row), row))
    return dict(zip(dims, best, strict=True))


def split_layer(layer: Layer, hybrid: Hybrid, devices: Sequence[int]) -> Configuration:
    """Configuration of a layer on the devices of its stage, which are in the order of their nested groups."""
    degrees = dict.fromkeys(layer.parallel_dims, 1) | {"sample": hybrid.data}
    grid = grid_of(layer, hybrid.spatial)
    filters, slices = hybrid.filter * (1 if grid else hybrid.spatial), 1
    if "channel" in degrees:
        size, sums = layer.output.size("channel"), reducing_operation(layer) is not None and "input" not in layer.inputs
        degrees["channel"] = largest_divisor(size, filters * (1 if sums else hybrid.channel))
        if sums:
            shared = math.gcd(layer.input_shapes[0].size("channel"), size // degrees["channel"])
            slices = largest_divisor(shared, hybrid.channel)
    width, places = hybrid.filter * hybrid.channel, math.prod(grid.values())
    # of a layer without positions the channels go over the group; else over the filters' part of it
    chosen = [
        devices[sample * width * hybrid.spatial + place * width + channel]
        for sample in range(hybrid.data)
        for channel in range(degrees.get("channel", 1) * slices)
        for place in range(places)
    ]
    return Configuration(ordered_degrees(degrees | {IN_CHANNEL: slices} | grid), tuple(chosen))
