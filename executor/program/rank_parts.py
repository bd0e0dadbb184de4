"""Parts of layers that one rank computes: their regions of outputs and inputs, their samples, their micro-batches."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from executor.layers.parameters import parameter_boxes
from executor.runtime.boxes import Box
from executor.runtime.samples import BatchSamples
from groundwork.array_types import Ints
from planner.graph.computation_graph import ComputationGraph, Edge
from planner.layouts.configurations import ConfigSpace, product_space
from planner.layouts.regions import held_regions, needed_regions, summed_slices
from planner.lowering.program import Program
from planner.strategies.micro_batches import interleave_degree

LayerUnit = tuple[int, int]
"""A layer and one of its micro-batches; micro-batch 0 where the layer computes the whole mini-batch at once."""
InputKey = tuple[Edge, int]
"""The edge whose transfers deliver an input tensor, and the micro-batch that its consumer computes with it; 0 for the
whole mini-batch."""


@dataclass(frozen=True)
class RankParts:
    """The parts of a program's layers that one rank computes.

    A rank is a device of the program and holds at most one part of each layer.
    """

    program: Program
    rank: int

    @cached_property
    def index(self) -> list[int]:
        """Index of the part of each layer that the rank holds; -1 where it holds none."""
        rows = [np.flatnonzero(space.devices == self.rank) for space in self.program.spaces]
        return [int(row[0]) if len(row) else -1 for row in rows]

    def units(self, layer: int) -> list[LayerUnit]:
        """Return one unit for every micro-batch of a layer."""
        return [(layer, s) for s in range(self.program.micro_batching.of(layer))]

    def unit_of(self, task: int) -> LayerUnit:
        """Return the unit that a task computes; of a transfer, the unit that makes the transferred tensor."""
        layer = int(self.program.layer[task])
        return layer, int(self.program.micro_batch[task]) if self.program.micro_batching.of(layer) > 1 else 0

    def graph_of(self, layer: int) -> ComputationGraph:
        """Return the network with as many samples as a layer computes at once."""
        return self._micro_batch_graph if self.program.micro_batching.of(layer) > 1 else self.program.graph

    def space_of(self, layer: int) -> ConfigSpace:
        """Return a layer's configuration for the samples that it computes at once."""
        return self.program.spaces_at(layer)[layer]

    def samples_of(self, unit: LayerUnit) -> BatchSamples:
        """Return the samples of the mini-batch that the tensors of a unit hold."""
        program, (layer, micro_batch) = self.program, unit
        if program.micro_batching.of(layer) == 1:
            return BatchSamples(batch=program.graph.batch)
        return BatchSamples(
            batch=program.graph.batch,
            micro_batches=program.micro_batching.parts,
            shards=interleave_degree(program.graph, program.spaces, program.micro_batching),
            micro_batch=micro_batch,
        )

    def held(self, layer: int) -> Box:
        """Return the region of a layer's output, of the samples that it computes at once, that the rank computes.

        The region is empty where the rank holds no part of the layer.
        """
        return self._held[layer]

    def product(self, layer: int) -> Box:
        """Return the region of a layer's product that the rank computes, of which ``held`` is its share."""
        return self._part_box(layer, product_space(self.space_of(layer)))

    def held_for(self, edge: Edge) -> Box:
        """Return the region that the rank's part of a producer holds of the tensor that a consumer reads."""
        per_micro_batch = self.program.micro_batching.of(edge.consumer) > 1
        return (self._held_of_micro_batch if per_micro_batch else self._held)[edge.producer]

    def frame(self, key: InputKey) -> Box:
        """Return the rank's whole part of a producer's output, in the coordinates of the tensor that a consumer reads.

        Where the producer computes the whole mini-batch and the consumer a micro-batch of it, the output holds the
        part's samples of one micro-batch after another.  With rows 0 and 1 of each of three micro-batches::

            rows of the output        0 1 | 2 3 | 4 5
            for micro-batch 0         0 1   2 3   4 5      frame: rows 0 to 5
            for micro-batch 1        -2-1   0 1   2 3      frame: rows -2 to 3
        """
        (edge, micro_batch), micro_batching = key, self.program.micro_batching
        own = self.held_for(edge)
        if micro_batching.of(edge.producer) == micro_batching.of(edge.consumer):
            return own
        rows = own.high[0] - own.low[0]
        low = own.low[0] - micro_batch * rows
        return Box((low, *own.low[1:]), (low + micro_batching.parts * rows, *own.high[1:]))

    def needed(self, layer: int, slot: int) -> Box:
        """Return the region of a layer's input, of the samples that it computes at once, that the rank's part reads."""
        row = self.graph_of(layer).layers[layer]
        boxes = needed_regions(
            self.space_of(layer), row.operation.interval_maps(slot, row.input_shapes), row.input_shapes[slot]
        )
        return Box.of(boxes, self.index[layer])

    def slices_of(self, layer: int) -> Ints:
        """Return the slice of what a layer sums over that each of its parts computes; 0 where it has no slices."""
        return summed_slices(self.program.spaces[layer])

    def is_copy(self, layer: int) -> bool:
        """Return whether the rank computes what another rank computes that comes before it."""
        return self.index[layer] % int(self.program.spaces[layer].repeats[0]) != 0

    def parameters(self, layer: int) -> dict[str, Box]:
        """Return the slice of each parameter that the rank's part of a layer computes with, by name."""
        return parameter_boxes(self.program.graph.layers[layer], self.program.spaces[layer], self.index[layer])

    @cached_property
    def _micro_batch_graph(self) -> ComputationGraph:
        graph, micro_batching = self.program.graph, self.program.micro_batching
        return graph.with_batch(graph.batch // micro_batching.parts) if micro_batching.parts > 1 else graph

    @cached_property
    def _held(self) -> list[Box]:
        return [self._part_box(i, self.space_of(i)) for i in range(len(self.index))]

    @cached_property
    def _held_of_micro_batch(self) -> list[Box]:
        return [self._part_box(i, space) for i, space in enumerate(self.program.micro_batch_spaces)]

    def _part_box(self, layer: int, space: ConfigSpace) -> Box:
        zeros = (0,) * len(self.program.graph.layers[layer].output.sizes)
        return Box.of(held_regions(space), self.index[layer]) if self.index[layer] >= 0 else Box(zeros, zeros)
