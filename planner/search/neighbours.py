"""Neighbours of a strategy for local search, each given by the layers that change.

One layer goes to a neighbouring degree or another placement; a run of layers that are split alike does so together,
or takes the split of the layers before or after it, which moves the points where the layout changes; a branch or block
takes the split of the layer at which it starts or ends; a range of layers is taken over from another strategy.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import Layer
from planner.layouts.configurations import (
    ConfigSpace,
    Configuration,
    Strategy,
    space_of,
    strides_of,
)

Spaces = tuple[ConfigSpace, ...]
"""A strategy as spaces, for every layer one that holds its one configuration."""
StrategyChange = dict[int, ConfigSpace]
"""New spaces of the layers in which a neighbour differs."""


class Neighbours:
    """Neighbours of the strategies of one network.

    Strategies are tuples of spaces, in which equal configurations of equal shapes are one object.

    Args:
        model: Graph and cluster.
    """

    def __init__(self, model: CostModel) -> None:
        self.graph, self.count, self._node_size = model.graph, model.network.device_count, model.network.node_size
        self._known: dict[tuple[object, ...], ConfigSpace] = {}
        self._near: dict[tuple[int, ConfigSpace], list[ConfigSpace]] = {}

    def spaces(self, strategy: Strategy) -> Spaces:
        """Return a strategy as spaces."""
        layers = self.graph.layers
        return tuple(
            self._space(
                i, [strategy[layer.name].degrees.get(dim, 1) for dim in layer.output.dims], strategy[layer.name].devices
            )
            for i, layer in enumerate(layers)
        )

    def strategy(self, spaces: Spaces) -> dict[str, Configuration]:
        """Return spaces as a strategy."""
        return {layer.name: space.configuration(0) for layer, space in zip(self.graph.layers, spaces, strict=True)}

    def around(self, spaces: Spaces, others: Sequence[Spaces] = ()) -> Iterator[StrategyChange]:
        """Yield every neighbour once, in an order that is always the same.

        Args:
            spaces: The strategy.
            others: Strategies from which ranges of layers are taken over.
        """
        seen: set[frozenset[tuple[int, ConfigSpace]]] = set()
        for wanted in self._candidates(spaces, others):
            change = {i: space for i, space in wanted.items() if space is not spaces[i]}
            key = frozenset(change.items())
            if change and key not in seen:
                seen.add(key)
                yield change

    def _candidates(self, spaces: Spaces, others: Sequence[Spaces]) -> Iterator[StrategyChange]:
        """Yield changes, some of them several times or without effect."""
        for i, space in enumerate(spaces):
            yield from ({i: near} for near in self._neighbours(i, space))
        runs = self._runs(spaces)
        for run in runs:
            for near in self._neighbours(run[0], spaces[run[0]]):
                yield {i: self._like(i, near) for i in run}
            for beside in (run[0] - 1, run[-1] + 1):
                if 0 <= beside < len(spaces):
                    for part in _ends(run, first=beside < run[0]):
                        yield {i: self._like(i, spaces[beside]) for i in part}
        for source, part in self._branches():
            yield {i: self._like(i, spaces[source]) for i in part}
        for other in others:
            borders = sorted({run[0] for run in (*runs, *self._runs(other))} | {len(spaces)})
            for first, stop in itertools.combinations(borders, 2):
                if first == 0 or stop == len(spaces) or stop == borders[borders.index(first) + 1]:
                    yield {i: other[i] for i in range(first, stop)}

    def _runs(self, spaces: Spaces) -> list[range]:
        """Return the runs of consecutive layers that are split alike."""
        starts = [i for i in range(len(spaces)) if i == 0 or self._like(i, spaces[i - 1]) is not spaces[i]]
        return [range(*pair) for pair in itertools.pairwise([*starts, len(spaces)])]

    def _branches(self) -> Iterator[tuple[int, range]]:
        """Yield each branch and block behind a fork with a layer whose split it may take: that before it or behind it.

        A branch runs from one consumer of the fork's tensor to the next, a block from the first to the last.
        """
        for producer, edges in enumerate(self.graph.consumers):
            readers = sorted({edge.consumer for edge in edges})
            if len(readers) > 1:
                borders = [producer + 1, *readers[1:]]
                for first, stop in dict.fromkeys([*itertools.pairwise(borders), (borders[0], borders[-1])]):
                    yield producer, range(first, stop)
                    yield min(stop, len(self.graph.layers) - 1), range(first, stop)

    def _neighbours(self, i: int, space: ConfigSpace) -> list[ConfigSpace]:
        """Return a layer's configurations one step away, and its other placements."""
        if (i, space) not in self._near:
            near: dict[ConfigSpace, None] = {}
            degrees, devices = space.degrees[0].tolist(), space.devices
            for row in (degrees, *self._steps(self.graph.layers[i], degrees)):
                parts = math.prod(row)
                if parts == len(devices):
                    near[self._space(i, row, devices.tolist())] = None
                    near[self._space(i, row, np.sort((devices + 1) % self.count).tolist())] = None
                strides = strides_of(parts, self.count, self._node_size)
                for stride in dict.fromkeys((strides[0], strides[-1])):
                    near[self._space(i, row, range(0, parts * stride, stride))] = None
            self._near[i, space] = list(near)
        return self._near[i, space]

    def _steps(self, layer: Layer, degrees: Sequence[int]) -> Iterator[list[int]]:
        """Yield degrees with one dimension at the next greater or smaller divisor, or one greater and one smaller."""
        sizes, dims = layer.output.sizes, layer.output.dims
        free = [d for d, dim in enumerate(dims) if dim in layer.parallel_dims]
        up = {d: _divisor(sizes[d], degrees[d], self.count) for d in free}
        down = {d: _divisor(sizes[d], degrees[d], 1) for d in free}
        rows = [{d: up[d]} for d in free] + [{d: down[d]} for d in free]
        rows += [{a: up[a], b: down[b]} for a, b in itertools.permutations(free, 2)]
        for row in rows:
            changed = [row.get(d, degree) for d, degree in enumerate(degrees)]
            if all(row[d] != degrees[d] for d in row) and math.prod(changed) <= self.count:
                yield changed

    def _like(self, i: int, model: ConfigSpace) -> ConfigSpace:
        """Return layer ``i`` split as another layer is, as far as its dimensions allow, on the same devices."""
        layer, given = self.graph.layers[i], dict(zip(model.output.dims, model.degrees[0].tolist(), strict=True))
        degrees = [
            math.gcd(given.get(dim, 1), size) if dim in layer.parallel_dims else 1
            for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)
        ]
        parts, devices = math.prod(degrees), model.devices.tolist()
        return self._space(i, degrees, devices[:: len(devices) // parts][:parts])

    def _space(self, i: int, degrees: Sequence[int], devices: Sequence[int]) -> ConfigSpace:
        """Return the space of one configuration of layer ``i``, the same object for equal ones."""
        layer = self.graph.layers[i]
        key = (layer.output, layer.parallel_dims, tuple(degrees), tuple(devices))
        if key not in self._known:
            named = {dim: d for dim, d in zip(layer.output.dims, degrees, strict=True) if dim in layer.parallel_dims}
            self._known[key] = space_of(layer, Configuration(named, tuple(devices)), self.count)
        return self._known[key]


def _ends(run: range, *, first: bool) -> Iterator[range]:
    """Return the run's first or last 1, 2, 4, ... layers, and all of it."""
    lengths = [1 << k for k in range(len(run).bit_length()) if 1 << k < len(run)] + [len(run)]
    return (run[:length] if first else run[-length:] for length in lengths)


def _divisor(size: int, degree: int, end: int) -> int:
    """Return the next divisor of ``size`` from a degree towards ``end``; the degree itself if there is none."""
    numbers = range(degree + 1, end + 1) if end > degree else range(degree - 1, end - 1, -1)
    return next((number for number in numbers if size % number == 0), degree)
