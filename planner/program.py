"""The program: every task of one training iteration, lowered from a plan; additive cost, engines and
executor read this one form."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles.device_graph import DeviceGraph
from planner.configurations import ConfigSpace
from planner.cut import Cut
from planner.graph import ComputationGraph, Edge
from simulator.collectives import Round

__all__ = ["KINDS", "Collective", "Program"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KINDS = ("forward", "activation_gradient", "weight_gradient", "update", "transfer", "collective")
"""Kinds of tasks; ``Program.kind`` holds indices into this tuple."""


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """One round, with its repeats, of an all-reduce among one set of replicas: of gradients, or of statistics."""

    devices: tuple[int, ...]
    round: Round
    buffer_bytes: float
    """Size of the buffer that is reduced."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Tasks 0 .. T-1 of one iteration, in program order; arrays have shape (T,) unless stated.

    Iterations follow each other: ``carried`` says which tasks wait for tasks of the iteration before.
    """

    graph: ComputationGraph
    cluster: DeviceGraph
    spaces: tuple[ConfigSpace, ...]
    """By layer, the space that holds its one configuration."""
    cut: Cut
    """Which layers take the mini-batch in sub-batches."""
    sub_spaces: tuple[ConfigSpace, ...]
    """As ``spaces``, for one sub-batch: of the layers that take them, and of those that they read."""
    delivered_by: Mapping[Edge, Edge]
    """For every edge the one whose transfers bring its tensor: itself, or an earlier consumer's of equal layout."""
    kind: Ints
    layer: Ints
    """Layer that computes; for a transfer, the producer of the tensor; for a collective, the owner."""
    consumer: Ints
    """For a transfer the first layer that asked for the region; else -1."""
    slot: Ints
    """For a transfer, the input of the consumer that it brings or takes the gradient of; else -1."""
    sub_batch: Ints
    """Which sub-batch; 0 for what is done once for the whole batch.  Regions that layers behind the cut read or give
    back lie in the tensor of one sub-batch."""
    backward: NDArray[np.bool_]
    """Whether the task belongs to the backward pass."""
    statistics: NDArray[np.bool_]
    """Whether a collective sums the statistics of a normalisation, forward or backward; other collectives sum
    gradients of parameters."""
    device: Ints
    """Device that computes or sends; -1 for collectives as single activities."""
    peer: Ints
    """Device that receives; -1 elsewhere."""
    part: Ints
    """Part computed, or part of the producer that a transfer takes from or gives its gradient to; for a message
    of a collective the first piece of the buffer that it carries; else -1."""
    size_bytes: Floats
    """Bytes moved: of a transfer, or of all messages of a collective; 0 elsewhere."""
    work_s: Floats
    """Time of a compute task alone on its device; 0 elsewhere."""
    group: Ints
    """Tasks of one group are one phase of Eq. 1: a layer's parts in one phase, the transfers of one layout
    of one tensor, one round of a layer's exchange or, where that is expanded, one repeat of a round.  Groups
    are numbered in the order of the phases."""
    box_low: Ints
    box_high: Ints
    """Shape (T, 5): region of the tensor that a transfer moves, padded with [0, 1); zero elsewhere."""
    collectives: dict[int, Collective]
    """By task id; tasks of kind collective that are not here are messages of an expanded one."""
    after_start: Ints
    after: Ints
    """Rows of the tasks of the same iteration that each task waits for."""
    carried: Ints
    """Shape (N, 2): task, and the task of the iteration before that it waits for."""

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.kind)

    @property
    def is_compute(self) -> NDArray[np.bool_]:
        """Which tasks run on a device's arithmetic."""
        return self.kind < KINDS.index("transfer")

    @property
    def moved_bytes(self) -> float:
        """Bytes that leave a device in one iteration."""
        return float(self.size_bytes.sum())

    def name(self, task: int) -> str:
        """Printed name: layer, what is done, where."""
        text = self._name(task)
        cut = self.cut.parts > 1 and self.cut.of(max(self.layer[task], self.consumer[task])) > 1
        return f"{text}, sub-batch {self.sub_batch[task] + 1}" if cut else text

    def _name(self, task: int) -> str:
        layers, kind = self.graph.layers, KINDS[self.kind[task]]
        label = layers[self.layer[task]].name
        if kind == "transfer":
            to = layers[self.consumer[task]].name
            arrow = f"{to} to {label}, gradient" if self.backward[task] else f"{label} to {to}"
            return f"{arrow} ({self.device[task]} to {self.peer[task]})"
        if kind == "collective":
            backward = "gradient statistics" if self.backward[task] else "statistics"
            what = backward if self.statistics[task] else "gradient exchange"
            if task in self.collectives:
                return f"{label} {what} over {len(self.collectives[task].devices)}"
            return f"{label} {what} ({self.device[task]} to {self.peer[task]})"
        return f"{label} {kind.replace('_', ' ')} [{self.part[task]}]"
