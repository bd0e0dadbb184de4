"""Hybrid strategies: degrees of parallelism, such as ``data=4,filter=4``, on device groups that follow the topology.

Each degree splits all layers alike: ``data`` splits samples, ``spatial`` positions, ``filter`` output channels, and
``channel`` input channels (output channels of layers that read the data or do not sum over input channels);
``pipeline`` assigns runs of consecutive layers to groups of devices.  ``context``, ``expert`` and ``tensor`` are axes
of a mesh (``planner.strategies.tensor``).  Devices form nested groups, those that communicate most innermost: filter
parallelism gathers whole tensors, spatial parallelism moves halos, data parallelism synchronises gradients once an
iteration, and pipeline stages pass on one tensor.  A layer whose size a degree does not divide is split by the largest
smaller degree that divides it, on the first devices of each group; a layer without positions is split by the degree of
``spatial`` in its channels.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from groundwork.errors import ConfigError
from groundwork.requests import positive_integer
from groundwork.suggestions import did_you_mean
from hwprofiles.devices.device_graph import DeviceGraph
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.shapes import SUMMED
from planner.layouts.configurations import Configuration
from planner.layouts.mesh import Mesh
from planner.layouts.storage import REPLICATED_STORAGE, STAGES, Storage
from planner.strategies.device_groups import grouped_devices
from planner.strategies.strategy_file import SUFFIXES
from planner.strategies.tensor import context_splits, expert_splits, features_of_experts, tensor_splits
from planner.strategies.zigzag import in_zigzag


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid:
    """Degrees of a hybrid strategy, the outermost group of devices first."""

    pipeline: int = 1
    data: int = 1
    spatial: int = 1
    filter: int = 1
    channel: int = 1
    context: int = 1
    expert: int = 1
    tensor: int = 1
    sequence: bool = False
    """Split positions where tensor parallelism would repeat the computation."""
    ulysses: bool = False
    """Along the axis of context parallelism attention splits heads in place of positions."""
    zigzag: bool = False
    """Positions lie in zigzag order, so that under a causal mask all parts of ``context`` have equal work."""
    slicing: bool = False
    """Tensor parallelism splits the features of each expert in place of experts."""
    zero: int = 0
    """What replicas divide (``planner.layouts.storage.Storage``)."""
    hsdp: int = 0
    """Replicas that divide all they hold, while others hold copies; 0: none do."""
    fsdp: bool = False
    """Replicas divide all they hold: another word for ``zero=3``."""
    gathered: bool = False
    """Parameters that replicas divide stay gathered from the forward to the backward pass."""

    @property
    def parts(self) -> int:
        """Devices in use: the product of the degrees."""
        return math.prod(self.degrees.values())

    @property
    def degrees(self) -> dict[str, int]:
        """All degrees by name."""
        return {name: int(getattr(self, name)) for name in _DEGREES}

    @property
    def on_mesh(self) -> bool:
        """True if layers split axes of a mesh."""
        return self.tensor * self.context * self.expert > 1

    @property
    def sample_parts(self) -> int:
        """Parts of the samples of layers without experts."""
        return self.data * self.expert

    @property
    def storage(self) -> Storage:
        """Storage that the words ``zero``, ``fsdp``, ``hsdp`` and ``gathered`` say."""
        zero = 3 if self.fsdp or self.hsdp else self.zero
        return Storage(zero=zero, group=self.hsdp, gathers_again=not self.gathered)

    def filled(self, device_count: int) -> "Hybrid":
        """Return the degrees, with ``data`` where a storage left it out: all devices that the others leave."""
        if self.data or not self.storage.divides:
            return self
        others = math.prod(degree for name, degree in self.degrees.items() if name != "data")
        return replace(self, data=max(device_count // others, 1))

    @property
    def text(self) -> str:
        """Written form without degrees of 1, such as ``data=4,filter=4``; ``data=1`` if all are, or beside storage."""
        least = {"data": 1} if self.storage.divides else {}
        words = [f"{word}={degree}" for word, degree in self.degrees.items() if degree >= least.get(word, 2)]
        numbers = [f"{word}={number}" for word in _NUMBERS if (number := getattr(self, word))]
        return ",".join([*words, *(word for word in HYBRID_FLAGS if getattr(self, word)), *numbers]) or "data=1"


_NESTED = ("data", "context", "expert", "tensor")
"""Axes of a mesh, by how devices are nested: those that communicate most are the innermost."""
_OF_POSITIONS, _OF_CHANNELS = ("data", "context", "tensor", "expert"), ("data", "tensor", "context", "expert")
"""The same in the order in which they split an index: positions that ``context`` and ``tensor`` split are parted by
``context`` first.  Channels are parted by ``tensor`` first: experts that it splits stay apart as ``expert`` moves rows
to its share of them, and heads as ``context`` moves positions to its share of them, so that each is one all-to-all."""
_DEGREES = ("pipeline", "data", "spatial", "filter", "channel", "context", "expert", "tensor")
_NUMBERS = ("zero", "hsdp")
HYBRID_FLAGS = ("sequence", "ulysses", "zigzag", "slicing", "fsdp", "gathered")
"""Words of a hybrid without a number."""
HYBRID_WORDS = (*_DEGREES, *HYBRID_FLAGS, *_NUMBERS)
"""Words that a strategy by degrees is made of."""


SEARCHED_HYBRID = "hybrid"
"""Name of the search for a hybrid, which words of storage may follow."""
STORAGE_WORDS = ("zero", "fsdp", "hsdp", "gathered")
_LEAST_REPLICAS = 2
LayerSplit = Callable[[Layer, Sequence[int]], Configuration]
"""Function from a layer and the devices of its stage to the layer's configuration."""
_ASKED_FOR = {
    ("tensor", "tp", "megatron"): "tensor parallelism is tensor=N, such as tensor=8,sequence",
    ("sequence",): "sequence must stand beside tensor=N",
    ("context", "cp"): "context parallelism is context=N, such as context=2,tensor=4",
    ("ulysses",): "ulysses must stand beside context=N",
    ("zigzag",): "zigzag must stand beside context=N",
    ("expert", "ep", "moe"): "expert parallelism is expert=N, such as data=2,expert=8",
    ("zero", "fully-sharded"): "sharded storage is zero=1, zero=2, fsdp or hsdp=N, such as data=8,zero=1",
}
"""What to say of strategies that people ask for by other names, or that cannot be planned, by how names begin."""


def hint_for(name: str, known: Iterable[str]) -> str:
    """Return what to say behind the unknown name of a strategy: the name that is meant, or why it cannot be planned."""
    reasons = (f"; {said}" for words, said in _ASKED_FOR.items() if name.lower().startswith(words))
    return next(reasons, "") or did_you_mean(name, known)


def is_hybrid(text: str) -> bool:
    """Return True if a strategy is given by degrees and other words of ``Hybrid``, and not by its name or a file."""
    first = text.partition(",")[0]
    return first != SEARCHED_HYBRID and ("=" in text or first == "fsdp")


def searched_words(text: str) -> str:
    """Return the words of storage behind the search for a hybrid, such as ``zero=1``; empty for other strategies.

    Raises:
        ConfigError: They are other words, or contradict each other.
    """
    name, _, words = text.partition(",")
    if name != SEARCHED_HYBRID or not words:
        return ""
    for word in words.split(","):
        if word.partition("=")[0].strip() not in STORAGE_WORDS:
            raise ConfigError(
                f"strategy {text!r}: words behind hybrid must be of {', '.join(STORAGE_WORDS)}, got {word!r}"
            )
    hybrid_of(words)
    return words


def hybrid_of(text: str) -> Hybrid:
    """Read degrees such as ``data=4,filter=4``; those that are left out are 1.

    Beside a storage, such as ``zero=1`` or ``fsdp``, ``data`` that is left out is 0: all devices that others leave.

    Raises:
        ConfigError: A name is unknown or given twice, a degree is not a whole number >= 1, or words of storage
            contradict each other.
    """
    degrees: dict[str, Any] = {}
    for setting in text.split(","):
        name, equals, degree = (token.strip() for token in setting.partition("="))
        if name in HYBRID_FLAGS and not equals and name not in degrees:
            degrees[name] = True
            continue
        if name not in (*_DEGREES, *_NUMBERS) or not equals:
            known = ", ".join([*(f"{word}=N" for word in (*_DEGREES, *_NUMBERS)), *HYBRID_FLAGS])
            hint = hint_for(name, HYBRID_WORDS)
            raise ConfigError(f"strategy {text!r} must be made of {known}, got {setting!r}{hint}")
        if name in degrees:
            raise ConfigError(f"strategy {text!r} must give {name} once, got it again")
        number = positive_integer(degree)
        if number is None:
            raise ConfigError(f"strategy {text!r}: {name} must be a whole number >= 1, got {degree!r}")
        degrees[name] = number
    if degrees.get("zero", 1) >= len(STAGES):
        raise ConfigError(f"strategy {text!r}: zero must be 1, 2 or 3, got {degrees['zero']}")
    if len(words := [word for word in ("zero", "fsdp", "hsdp") if word in degrees]) > 1:
        raise ConfigError(f"strategy {text!r} must have one of zero, fsdp and hsdp, got {' and '.join(words)}")
    if "gathered" in degrees and not words:
        raise ConfigError(f"strategy {text!r}: gathered must stand beside fsdp, hsdp=N or zero=3")
    return Hybrid(**(degrees | ({"data": 0} if words and "data" not in degrees else {})))


def storage_of(strategy: str) -> Storage:
    """Return what replicas hold under a strategy of that name, those degrees, or that file."""
    words = searched_words(strategy) or strategy
    return hybrid_of(words).storage if is_hybrid(words) and not words.endswith(SUFFIXES) else REPLICATED_STORAGE


def ordered_graph(graph: ComputationGraph, strategy: str) -> ComputationGraph:
    """Return a network with its positions in the order that a strategy of that name or those degrees gives them.

    Raises:
        ConfigError: The network cannot have that order.
    """
    if not is_hybrid(strategy) or strategy.endswith(SUFFIXES):
        return graph
    hybrid = hybrid_of(strategy)
    return in_zigzag(graph, hybrid.context) if hybrid.zigzag else graph


def hybrid_strategy(
    hybrid: Hybrid, graph: ComputationGraph, device_count: int, cluster: DeviceGraph | None = None
) -> Mapping[str, Configuration]:
    """Return a configuration for every layer.

    Args:
        hybrid: The degrees.
        graph: The network with its batch.
        device_count: Devices of the cluster.
        cluster: The cluster, whose topology the groups follow; None: devices are alike and taken in their order.

    Raises:
        ConfigError: There are fewer devices, the data degree does not divide the batch, no layer can be split into so
            many parts, or there are stages, which need micro-batches too
            (``planner.search.pipeline_strategy.strategy_and_micro_batching``).

    Source:
        Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
        Networks" (ParaDL), HPDC 2021, Table 1, for the kinds of parallelism.
    """
    hybrid = hybrid.filled(device_count)
    if hybrid.pipeline > 1:
        raise ConfigError(f"strategy must be one without micro-batches here, got {hybrid.text}")
    (devices,) = stage_groups(hybrid, graph, device_count, cluster)
    split = layer_split(hybrid, graph)
    return {layer.name: split(layer, devices) for layer in graph.layers}


def layer_split(hybrid: Hybrid, graph: ComputationGraph) -> LayerSplit:
    """Return the function that splits a layer over the devices of its stage, in the order of their nested groups."""
    if not hybrid.on_mesh:
        return lambda layer, devices: split_layer(layer, hybrid, devices)
    splits = mesh_splits(hybrid, graph)
    meshes: dict[tuple[object, ...], Mesh] = {}
    known: dict[tuple[object, ...], Configuration] = {}

    def on_mesh(layer: Layer, devices: Sequence[int]) -> Configuration:
        """Return the configuration of a layer on the mesh of its stage: one object for layers that are split alike."""
        nested = _OF_CHANNELS if splits["context"][layer.name] == "channel" else _OF_POSITIONS
        names = tuple(name for name in nested if hybrid.degrees[name] > 1)
        indices = [splits[name][layer.name] if name in splits else "sample" for name in names]
        on = (tuple(devices), names)
        key = (*on, *indices, layer.parallel_dims)
        if key not in known:
            known[key] = Configuration.on(
                meshes.setdefault(on, _mesh_of(hybrid, names, devices)), indices, layer.parallel_dims
            )
        return known[key]

    return on_mesh


def _mesh_of(hybrid: Hybrid, names: Sequence[str], devices: Sequence[int]) -> Mesh:
    """Return the mesh of a stage's devices, which lie in the order of their nested groups, with axes in some order."""
    nested = [name for name in _NESTED if name in names]
    grid = np.array(devices, dtype=np.int64).reshape([hybrid.degrees[name] for name in nested])
    places = grid.transpose([nested.index(name) for name in names]).ravel().tolist()
    return Mesh(tuple((name, hybrid.degrees[name]) for name in names), tuple(places))


def mesh_splits(hybrid: Hybrid, graph: ComputationGraph) -> dict[str, Mapping[str, str | None]]:
    """Return the index that each layer splits, by axis of the mesh but that of the samples."""
    return {
        "context": context_splits(graph, hybrid.context, ulysses=hybrid.ulysses, tensor=hybrid.tensor),
        "expert": expert_splits(graph, hybrid.expert),
        "tensor": tensor_splits(
            graph,
            hybrid.tensor,
            sequence=hybrid.sequence,
            context=hybrid.context,
            expert=hybrid.expert,
            slicing=hybrid.slicing,
        ),
    }


def stage_groups(
    hybrid: Hybrid, graph: ComputationGraph, device_count: int, cluster: DeviceGraph | None = None
) -> list[list[int]]:
    """Return the devices of every stage, in the order of their nested groups.

    Args:
        hybrid: The degrees.
        graph: The network with its batch.
        device_count: Devices of the cluster.
        cluster: The cluster, whose topology the groups follow; None: devices are alike and taken in their order.

    Raises:
        ConfigError: The network on so many devices cannot have these degrees.
    """
    check_hybrid(hybrid, graph, device_count)
    width = hybrid.filter * hybrid.channel * hybrid.tensor
    inner = width * hybrid.expert
    sizes = [width, inner, inner * hybrid.spatial * hybrid.context, hybrid.parts // hybrid.pipeline]
    devices = grouped_devices(cluster, hybrid.parts, sizes) if cluster else list(range(hybrid.parts))
    return [devices[begin : begin + sizes[-1]] for begin in range(0, hybrid.parts, sizes[-1])]


def check_hybrid(hybrid: Hybrid, graph: ComputationGraph, device_count: int) -> None:
    """Refuse degrees that a network on so many devices cannot have.

    Raises:
        ConfigError: There are fewer devices, the data degree does not divide the batch, or no layer can be split into
            so many parts.
    """
    where = f"strategy {hybrid.text}"
    if hybrid.storage.divides:
        _check_storage(hybrid)
    if hybrid.parts > device_count:
        raise ConfigError(f"{where} must have at most the cluster's {device_count} devices, it takes {hybrid.parts}")
    if graph.batch % hybrid.sample_parts:
        nearest = max(round(graph.batch / hybrid.sample_parts), 1) * hybrid.sample_parts
        degrees = f"data={hybrid.data}" + (f" times expert={hybrid.expert}" if hybrid.expert > 1 else "")
        raise ConfigError(
            f"batch must be a multiple of {degrees} for equal parts of the samples, got {graph.batch}; "
            f"the nearest is {nearest}"
        )
    if hybrid.sequence and hybrid.tensor == 1:
        raise ConfigError(f"{where}: sequence must stand beside tensor=N, whose devices it lets split positions")
    _check_context(hybrid, graph)
    if hybrid.slicing and not (hybrid.tensor > 1 and any(map(features_of_experts, graph.layers))):
        raise ConfigError(f"{where}: slicing must stand beside tensor=N, of a network of experts with their features")
    if hybrid.on_mesh:
        _check_mesh(hybrid, graph)
    for kind in ("filter", "channel", "spatial"):
        if (degree := hybrid.degrees[kind]) == 1:
            continue
        if kind == "spatial":
            reached = {layer.name: math.prod(grid_of(layer, degree).values()) for layer in graph.layers}
        else:
            sizes = (_channels if kind == "filter" else _input_channels)(graph)
            reached = {name: largest_divisor(size, degree) for name, size in sizes.items()}
        name, most = max(reached.items(), key=lambda row: row[1], default=("no layer", 1))
        if degree > most:
            raise ConfigError(
                f"{where}: {kind} must be a number of equal parts that some layer has, got {degree}; "
                f"the most below it are {most}, of {name}"
            )


def _check_context(hybrid: Hybrid, graph: ComputationGraph) -> None:
    """Refuse words of context parallelism where it has no degree, or that contradict others, or the network."""
    one = hybrid.context == 1
    if hybrid.ulysses and one:
        raise ConfigError(f"strategy {hybrid.text}: ulysses must stand beside context=N")
    if hybrid.zigzag and (one or hybrid.ulysses):
        beside = "beside context=N" if one else "without ulysses, whose attention has all positions"
        raise ConfigError(f"strategy {hybrid.text}: zigzag must stand {beside}")
    if hybrid.zigzag:
        in_zigzag(graph, hybrid.context)


def _check_mesh(hybrid: Hybrid, graph: ComputationGraph) -> None:
    """Refuse axes of a mesh beside splits of channels and positions, and those on which all layers would repeat."""
    where, splits = f"strategy {hybrid.text}", mesh_splits(hybrid, graph)
    for name in ("spatial", "filter", "channel"):
        if hybrid.degrees[name] > 1:
            axes = " and ".join(axis for axis in splits if hybrid.degrees[axis] > 1)
            raise ConfigError(f"{where}: {name} must be 1 beside {axes}, as axes of a mesh split what it splits")
    if hybrid.ulysses and "channel" not in splits["context"].values():
        raise ConfigError(
            f"{where}: ulysses must have attention with heads, of keys too, that context x tensor = "
            f"{hybrid.context * hybrid.tensor} divides; {graph.name} has none"
        )
    for axis, parts in (
        ("context", "positions that some layer has"),
        ("expert", "experts that some layer has"),
        ("tensor", "parts that some product can have, with all that is computed from it up to a sum"),
    ):
        if hybrid.degrees[axis] > 1 and not {*splits[axis].values()} - {"sample", None}:
            raise ConfigError(
                f"{where}: {axis} must be a number of {parts}, got {hybrid.degrees[axis]}; no layer can be split"
            )


def _check_storage(hybrid: Hybrid) -> None:
    """Refuse a storage without replicas to divide it, or groups that do not divide these."""
    where = f"strategy {hybrid.text}"
    replicas = hybrid.data * hybrid.context
    if replicas % max(hybrid.storage.group, 1):
        raise ConfigError(f"{where}: hsdp must divide the {replicas} replicas, got {hybrid.hsdp}")
    if replicas * hybrid.expert < _LEAST_REPLICAS and not hybrid.sequence:
        raise ConfigError(f"{where}: data must be at least 2, for replicas to divide what they hold, got {hybrid.data}")


def _channels(graph: ComputationGraph) -> dict[str, int]:
    """Return the output channels of the layers that can be split by them."""
    return {layer.name: layer.output.size("channel") for layer in graph.layers if "channel" in layer.parallel_dims}


def _input_channels(graph: ComputationGraph) -> dict[str, int]:
    """Return the input channels of the layers that can be split by them."""
    return {layer.name: size for layer in graph.layers if (size := layer.summed_size)}


def largest_divisor(size: int, most: int) -> int:
    """Return the largest number up to ``most`` that divides ``size``."""
    return next(degree for degree in range(min(size, most), 0, -1) if size % degree == 0)


def grid_of(layer: Layer, parts: int) -> dict[str, int]:
    """Return degrees of a layer's positions with the most parts up to ``parts``, as near to cubes as they can be.

    A layer without positions has none.
    """
    dims = [dim for dim in layer.parallel_dims if dim not in ("sample", "channel")]
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
    """Return the configuration of a layer on the devices of its stage.

    Args:
        layer: The layer.
        hybrid: The degrees.
        devices: Devices of the stage in the order of their nested groups.
    """
    degrees = dict.fromkeys(layer.parallel_dims, 1) | {"sample": hybrid.data}
    grid = grid_of(layer, hybrid.spatial)
    filters, slices = hybrid.filter * (1 if grid else hybrid.spatial), 1
    if "channel" in degrees:
        size, sums = layer.output.size("channel"), sums_of_channels(layer)
        degrees["channel"] = largest_divisor(size, filters * (1 if sums else hybrid.channel))
        if sums:
            shared = math.gcd(sums, size // degrees["channel"])
            slices = largest_divisor(shared, hybrid.channel)
    width, places = hybrid.filter * hybrid.channel, math.prod(grid.values())
    # devices of the stage lie in a grid [sample, position, channel]; parts are numbered (sample, channel, position).
    # The channels of a layer without positions take the whole group of a sample: places = 1, channel up to its end.
    chosen = [
        devices[sample * width * hybrid.spatial + place * width + channel]
        for sample in range(hybrid.data)
        for channel in range(degrees.get("channel", 1) * slices)
        for place in range(places)
    ]
    return Configuration.of(degrees | {SUMMED: slices} | grid, chosen)


def sums_of_channels(layer: Layer) -> int:
    """Return the size of what ``channel`` splits of a layer's sums; 0 where it reads the data, has none, or experts."""
    whole = layer.reads_data or layer.operation.has_experts
    return 0 if whole else layer.summed_size
