"""Sizes of a network's layers in the symbols of Table 1, and the tensors that each strategy moves.

Source: Kahira et al., "An Oracle for Guiding Large-Scale Model/Hybrid Parallel Training of Convolutional Neural
Networks", Table 1.
"""

from functools import cached_property
from itertools import product

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from planner.graph.computation_graph import ComputationGraph, Edge, Layer
from planner.graph.shapes import SUMMED, IntervalMap
from planner.layouts.configurations import part_bounds

Grid = tuple[int, ...]


def is_flat(layer: Layer) -> bool:
    """Return whether a layer has no positions to split: it is fully connected, or it pools over all positions."""
    return int(np.prod(layer.output.positions)) == 1 or not set(layer.parallel_dims) - {"sample", "channel"}


def _mixes(layer: Layer) -> bool:
    """Return whether an output channel is a weighted sum over input channels: F filters of C channels."""
    interval_map = layer.operation.interval_maps(0, layer.input_shapes)[1]
    return layer.parameter_count > 0 and (
        interval_map.dim in (None, SUMMED) or interval_map.group_in > 1 or interval_map.group_out > 1
    )


class Sizes:
    """Sizes of one sample in every layer, shape (G,), and halos."""

    def __init__(self, graph: ComputationGraph) -> None:
        self.graph = graph
        self._halos: dict[Grid, tuple[Floats, Floats]] = {}
        layers = graph.layers
        self.flat: Bools = np.array([is_flat(layer) for layer in layers])
        """Layers without positions to split."""
        self.mixing: Bools = np.array([_mixes(layer) for layer in layers])
        """Layers whose output channels are weighted sums over input channels."""
        self.first: Bools = self.mixing & np.array(
            [not graph.has_phase(i, "activation_gradient") for i in range(len(layers))]
        )
        """Layers with weights that read the data."""
        # |y|, |x|, |b| and |w|
        self.y: Floats = np.array([layer.output.elements / graph.batch for layer in layers])
        self.x: Floats = np.array([sum(s.elements for s in layer.input_shapes) / graph.batch for layer in layers])
        self.b: Floats = np.array(
            [sum(p.elements for p in layer.parameters if p.name == "bias") for layer in layers], dtype=np.float64
        )
        self.w: Floats = np.array([float(layer.parameter_count) for layer in layers]) - self.b
        """Parameters without biases; scale and shift of a normalisation are among them."""

    @cached_property
    def gathered(self) -> Bools:
        """Outputs that filters of another layer read, which Filter gathers between layers."""
        return self._read_by(self.mixing)

    @cached_property
    def delivered(self) -> Floats:
        """Elements of one sample of every distinct region that filters read, each of which programs send once.

        There are more than in ``gathered`` where a convolution of stride 2 does not read the last row that another
        layer reads.
        """
        volumes: list[int] = []
        for edges in self.graph.consumers:
            volumes += {self._region(edge) for edge in edges if self.mixing[edge.consumer]}
        return np.array(volumes, dtype=np.float64)

    def _region(self, edge: Edge) -> int:
        """Return the elements of one sample that a layer reads of an input.

        Regions of one tensor start at the same element and differ in size.
        """
        layer = self.graph.layers[edge.consumer]
        shape, ends = layer.input_shapes[edge.slot], []
        sizes = dict(zip(layer.output.dims, layer.output.sizes, strict=True))
        for interval_map, size in list(
            zip(layer.operation.interval_maps(edge.slot, layer.input_shapes), shape.sizes, strict=True)
        )[1:]:
            whole = 0 if interval_map.dim is None else sizes.get(interval_map.dim, 0)
            low, high = interval_map.interval(np.zeros(1, dtype=np.int64), np.full(1, whole), size)
            ends.append(int(high[0] - low[0]))
        return int(np.prod(ends))

    @cached_property
    def gathered_flat(self) -> Bools:
        """Outputs that a fully connected layer reads, which Spatial gathers."""
        return self._read_by(self.mixing & self.flat)

    @cached_property
    def regrouped(self) -> Bools:
        """Outputs with positions that a layer without positions reads by channel, such as global pooling."""
        trained_or_pooled = np.array(["channel" in layer.parallel_dims for layer in self.graph.layers])
        return self._read_by(self.flat & ~self.mixing & trained_or_pooled) & ~self.flat

    def _read_by(self, consumers: Bools) -> Bools:
        """Return the layers whose outputs some of these consumers read."""
        return np.array([any(consumers[edge.consumer] for edge in edges) for edges in self.graph.consumers])

    @cached_property
    def crossing(self) -> Floats:
        """Elements of one sample that cross the boundary after each layer, |y_G|, shape (G - 1,).

        These are the outputs up to that layer that later layers read.
        """
        crossing = np.zeros(len(self.y) - 1)
        for i, edges in enumerate(self.graph.consumers):
            if edges:
                crossing[i : max(edge.consumer for edge in edges)] += self.y[i]
        return crossing

    @cached_property
    def positions(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and position sizes of the layers that Spatial splits."""
        rows = zip(self.graph.layers, self.flat, strict=True)
        return [(layer.name, layer.output.positions) for layer, flat in rows if not flat]

    @cached_property
    def no_grid(self) -> str:
        """Reason why no grid splits the positions of all layers, such as 14 x 14 and 196; empty where one does."""
        if not self.positions:
            return f"{self.graph.name} has no layer with positions"
        kinds = {len(sizes): f"{name} has {' x '.join(map(str, sizes))}" for name, sizes in reversed(self.positions)}
        return f"one grid must split all layers, but {' and '.join(kinds.values())} positions" if len(kinds) > 1 else ""

    def grid(self, parts: int) -> Grid | None:
        """Return the degrees of a grid of parts, as near to a cube as possible.

        Returns:
            Degrees by dimension; None where some layer has too few positions.

        Raises:
            ValueError: ``no_grid`` says that there is none.
        """
        most = [min(sizes) for sizes in zip(*(sizes for _, sizes in self.positions), strict=True)]
        divisors = [d for d in range(1, parts + 1) if parts % d == 0]
        grids = [
            grid
            for grid in product(*([d for d in divisors if d <= size] for size in most))
            if int(np.prod(grid)) == parts
        ]
        return min(grids, key=lambda grid: (max(grid), tuple(-degree for degree in grid)), default=None)

    def halos(self, grid: Grid) -> tuple[Floats, Floats]:
        """Return the elements of one sample that the part with the largest halo receives.

        The loader delivers each part of the data with its halo, and the data needs no gradient.

        Returns:
            Elements of x in the forward pass, and of dL/dy in the backward pass, of each layer, shape (G,) each.
        """
        if grid not in self._halos:
            self._halos[grid] = self._halo_sums(grid)
        return self._halos[grid]

    def _halo_sums(self, grid: Grid) -> tuple[Floats, Floats]:
        """Return the halos of each layer, summed over its inputs."""
        forward, backward = np.zeros(len(self.y)), np.zeros(len(self.y))
        for edge in self.graph.edges:
            if not (self.flat[edge.consumer] or self.flat[edge.producer]):
                forward[edge.consumer] += self._halo_x(edge, grid)
                if self.graph.has_gradient(edge.producer):
                    backward[edge.consumer] += self._halo_dy(edge, grid)
        return forward, backward

    def _halo_x(self, edge: Edge, grid: Grid) -> float:
        """Return the largest halo of an input: elements that a part reads and does not hold.

        Ten positions in two parts, read through windows of three:

            held    | 0 1 2 3 4 | 5 6 7 8 9 |
            needed  | 0 1 2 3 4   5 |            (part 0: one element more)
        """
        needed, own = [], []
        for interval_map, in_size, out_size, degree in self._dims(edge, grid):
            parts, held = part_bounds(out_size, degree), part_bounds(in_size, degree)
            low, high = interval_map.interval(parts[:-1], parts[1:], in_size)
            needed.append(high - low)
            own.append(_overlap(low, high, held))
        return self.graph.layers[edge.producer].output.size("channel") * _largest(needed, own)

    def _halo_dy(self, edge: Edge, grid: Grid) -> float:
        """Return the largest halo of an output's gradient: outputs that read a part's inputs and lie in other parts.

        A window of k kernel positions with stride s and dilation d reads input ``low`` from output
        (low + pad - d (k - 1)) / s on.
        """
        needed, own = [], []
        for interval_map, in_size, out_size, degree in self._dims(edge, grid):
            parts, held = part_bounds(out_size, degree), part_bounds(in_size, degree)
            reach = interval_map.dilation * (interval_map.kernel - 1)
            low = np.clip(-(-(held[:-1] + interval_map.pad - reach) // interval_map.stride), 0, out_size)
            high = np.clip((held[1:] - 1 + interval_map.pad) // interval_map.stride + 1, 0, out_size)
            needed.append(np.maximum(high - low, 0))
            own.append(_overlap(low, high, parts))
        return self.graph.layers[edge.consumer].output.size("channel") * _largest(needed, own)

    def _dims(self, edge: Edge, grid: Grid) -> list[tuple[IntervalMap, int, int, int]]:
        """Return interval map, input size, output size and degree of every position dimension."""
        layer = self.graph.layers[edge.consumer]
        interval_maps = layer.operation.interval_maps(edge.slot, layer.input_shapes)[2:]
        sizes = layer.input_shapes[edge.slot].positions
        return list(zip(interval_maps, sizes, layer.output.positions, grid, strict=True))


def _overlap(low: Ints, high: Ints, bounds: Ints) -> Ints:
    """Length of what each part needs and holds itself."""
    return np.asarray(np.maximum(np.minimum(high, bounds[1:]) - np.maximum(low, bounds[:-1]), 0))


def _largest(needed: list[Ints], own: list[Ints]) -> float:
    """Most positions that a part of the grid needs and does not hold."""
    whole, mine = np.ones(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for interval_map, have in zip(needed, own, strict=True):
        whole, mine = np.multiply.outer(whole, interval_map), np.multiply.outer(mine, have)
    return float((whole - mine).max())
