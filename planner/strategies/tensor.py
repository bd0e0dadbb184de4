"""Tensor, context and expert parallelism, from index spaces alone.

Tensor parallelism splits columns and rows of products in turn, and repeats all else.

An output that is split along channels goes on split through the layers that read only their own channels, up to one
that sums over them: its parts hold partial sums of the same region, of which a redistribution makes the whole::

    norm      repeated
    up        columns: splits its output channels, reads all input channels
    gelu      goes on with its channels
    down      rows: sums over its slice of the channels
    add       repeated: reads what the partial sums add up to

A product is split into columns only if what follows ends in such sums, or at the end of the network, so that nothing
large is gathered: the loss of a language model goes on with the words that each part has.  Layers that read the data
and sum over an index, as embeddings over their words, sum over slices of it.  With ``sequence`` the layers that would
repeat their computation split positions instead.

Experts are products with a matrix for each channel: their columns are whole experts, the rows that they take are split
with them, and the sum over experts ends the split.  With ``slicing`` each expert's matrices are split in columns and
rows as those of a dense block, by features.

Context parallelism splits positions of every layer that has some, attention's queries too, which read all keys.  With
``ulysses`` attention splits its heads instead, of which each device reads all positions.
Expert parallelism splits samples of every layer but experts and what goes on with their channels: rows travel to the
experts and back.

Source:
    Shoeybi et al., "Megatron-LM", 2019, Sec. 3.  Korthikanti et al., "Reducing Activation Recomputation in Large
    Transformer Models", MLSys 2023, Sec. 4.2: splits of positions.  Grattafiori et al., "The Llama 3 Herd of Models",
    2024, Sec. 3.3.2: context parallelism that gathers keys and values.  Rajbhandari et al., "DeepSpeed-MoE", ICML 2022,
    Sec. 5.2: slices of experts.  Jacobs et al., "DeepSpeed Ulysses", 2023,
    Sec. 3: all-to-alls from positions to heads and back.  Lepikhin et al., "GShard", ICLR 2021, Sec. 3.2: experts over
    the devices that split samples elsewhere.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from planner.graph.computation_graph import ComputationGraph, Edge, Layer
from planner.graph.shapes import SUMMED, IntervalMap
from planner.layouts.configurations import part_bounds
from planner.operations.products import TensorProduct


@lru_cache(maxsize=128)
def context_splits(
    graph: ComputationGraph, degree: int, *, ulysses: bool = False, tensor: int = 1
) -> Mapping[str, str | None]:
    """Return the positions that an axis of context parallelism splits, by layer; None where it repeats the computation.

    Args:
        graph: The network.
        degree: Size of the axis.
        ulysses: Whether layers that would read more positions than their own split channels instead.
        tensor: Parts into which another axis splits these channels.
    """
    rule, splits = _Rule(graph, degree * tensor), dict[str, str | None]()
    for i, layer in enumerate(graph.layers):
        splits[layer.name] = position = _position(layer, degree)
        edges = [(edge, splits[graph.layers[edge.producer].name]) for edge in graph.producers[i]] if ulysses else []
        lacks = [edge for edge, made in edges if made == "channel" or (made and rule.read_by(edge, made) != position)]
        if lacks and all(rule.carried(edge, "channel") == "channel" for edge, _ in edges):
            splits[layer.name] = "channel"
    return MappingProxyType(splits)


@lru_cache(maxsize=128)
def expert_splits(graph: ComputationGraph, degree: int) -> Mapping[str, str | None]:
    """Return the index that an axis of expert parallelism splits, by layer: channels of experts, else samples.

    Args:
        graph: The network.
        degree: Size of the axis.
    """
    rule = _Rule(graph, degree)
    splits: dict[str, str | None] = {}
    for i, layer in enumerate(graph.layers):
        split = [edge for edge in graph.producers[i] if splits[graph.layers[edge.producer].name] == "channel"]
        goes_on = bool(split) and all(rule.carried(edge, "channel") == "channel" for edge in split)
        fits = layer.output.size("channel") >= degree
        splits[layer.name] = "channel" if goes_on or (layer.operation.has_experts and fits) else "sample"
    return MappingProxyType(splits)


@lru_cache(maxsize=128)
def tensor_splits(
    graph: ComputationGraph,
    degree: int,
    *,
    sequence: bool = False,
    context: int = 1,
    expert: int = 1,
    slicing: bool = False,
) -> Mapping[str, str | None]:
    """Return the index that an axis of tensor parallelism splits, by layer; None where it repeats the computation.

    Args:
        graph: The network.
        degree: Size of the axis.
        sequence: Whether layers split positions that would repeat their computation.
        context: Parts into which another axis splits positions.
        expert: Parts into which another axis splits experts.
        slicing: Whether features of experts are split in place of experts.
    """
    rule = _Rule(graph, degree, expert, slicing=slicing)
    splits: dict[str, str | None] = {}
    columns = set[int]()  # layers whose output is split as that of columns is, and not by positions
    for i, layer in enumerate(graph.layers):
        made = [(edge, _made(graph.layers[edge.producer], splits)) for edge in graph.producers[i]]
        carried = [(edge.producer in columns, rule.carried(edge, index)) for edge, index in made if index is not None]
        gathers = any(of_columns and not index for of_columns, index in carried)
        channels = [index for of_columns, index in carried if index and (of_columns or index in (SUMMED, "channel"))]
        if SUMMED in channels or (channels and not gathers):
            splits[layer.name] = SUMMED if SUMMED in channels else channels[0]
            columns |= {i} - ({i} if SUMMED in channels and not layer.operation.completes_sums else set())
        elif rule.is_column(i) or rule.serves_columns(i):
            splits[layer.name] = rule.column(layer)
            columns.add(i)
        elif layer.reads_data and layer.summed_size >= degree:
            splits[layer.name] = SUMMED
        else:
            spread = sequence or (gathers and not graph.consumers[i])
            splits[layer.name] = _position(layer, degree * context) if spread else None
    return MappingProxyType(splits)


def _made(layer: Layer, splits: Mapping[str, str | None]) -> str | None:
    """Return the dimension that splits a layer's output: channels of one that completes its sums; None for none."""
    index = splits[layer.name]
    return index if index != SUMMED else "channel" if layer.operation.completes_sums else None


def features_of_experts(layer: Layer) -> str:
    """Return the dimension of a layer's output that columns of its experts' matrices split; empty where none do."""
    operation = layer.operation
    return operation.expert_features if isinstance(operation, TensorProduct) else ""


def _position(layer: Layer, degree: int) -> str | None:
    """Return the first position dimension that a layer can split so many times."""
    dims = (dim for dim in layer.parallel_dims if dim not in ("sample", "channel"))
    return next((dim for dim in dims if layer.output.size(dim) >= degree), None)


class _Rule:
    """What the layers of a network do with a split of their inputs."""

    def __init__(self, graph: ComputationGraph, degree: int, expert: int = 1, *, slicing: bool = False) -> None:
        self.graph, self.degree, self.expert, self.slicing = graph, degree, expert, slicing
        self._ends: dict[tuple[int, str], bool] = {}

    def carried(self, edge: Edge, index: str) -> str:
        """Return the index by which a layer goes on where an input is split; empty where it needs more than its part.

        Args:
            edge: The input.
            index: Dimension of the input that is split.
        """
        layer, source = self.graph.layers[edge.consumer], self.graph.layers[edge.producer].output
        maps = layer.operation.interval_maps(edge.slot, layer.input_shapes)
        each, size = maps[source.dims.index(index)], source.size(index)
        if each.dim == SUMMED:
            shared = layer.operation.completes_sums  # devices share out the channels of the sum
            return SUMMED if not shared or layer.output.size("channel") >= self.degree else ""
        if each.dim is None or each.dim not in layer.mesh_dims or layer.output.size(each.dim) < self.degree:
            return ""
        return each.dim if _reads_parts(each, layer.output.size(each.dim), size, self.degree) else ""

    def read_by(self, edge: Edge, index: str) -> str | None:
        """Return the dimension of a layer's output whose parts read parts of a dimension of an input; None for none."""
        layer, source = self.graph.layers[edge.consumer], self.graph.layers[edge.producer].output
        return layer.operation.interval_maps(edge.slot, layer.input_shapes)[source.dims.index(index)].dim

    def is_column(self, i: int) -> bool:
        """Return whether a layer's product is split into columns."""
        layer = self.graph.layers[i]
        experts, index = layer.operation.has_experts, self.column(layer)
        sums = (experts or layer.summed_size > 0) and not layer.reads_data
        least = self.degree * (self.expert if experts and index == "channel" else 1)
        fits = index in layer.parallel_dims and layer.output.size(index) >= least
        return sums and fits and self._ends_in_sums(i, index)

    def column(self, layer: Layer) -> str:
        """Return the dimension of a layer's output that columns of its product split."""
        return (self.slicing and features_of_experts(layer)) or "channel"

    def serves_columns(self, i: int) -> bool:
        """Return whether all that reads a layer's output are columns that each read its part, as experts do."""
        edges = self.graph.consumers[i]
        return bool(edges) and all(
            self.carried(edge, "channel") == "channel" == self.column(self.graph.layers[edge.consumer])
            and self.is_column(edge.consumer)
            for edge in edges
        )

    def _ends_in_sums(self, i: int, index: str) -> bool:
        """Return whether all that reads a layer's output goes on with its split, up to sums or the network's end."""
        if (i, index) not in self._ends:
            self._ends[i, index] = all(self._ends_well(edge, index) for edge in self.graph.consumers[i])
        return self._ends[i, index]

    def _ends_well(self, edge: Edge, index: str) -> bool:
        """Return whether one reader goes on so, or is the last layer."""
        carried = self.carried(edge, index)
        if carried in ("", SUMMED):
            return carried == SUMMED or not self.graph.consumers[edge.consumer]
        return self._ends_in_sums(edge.consumer, carried)


@lru_cache(maxsize=65536)
def _reads_parts(each: IntervalMap, output_size: int, size: int, degree: int) -> bool:
    """Return whether parts of an output dimension read just the parts of an input dimension."""
    bounds, parts = part_bounds(output_size, degree), part_bounds(size, degree)
    low, high = each.interval(bounds[:-1], bounds[1:], size)
    return bool((low == parts[:-1]).all() and (high == parts[1:]).all())
