"""The program: every task of one training iteration, lowered from a plan; additive cost, engines and
executor read this one form."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwprofiles import Floats, Ints, row_owners
from hwprofiles.devices import DeviceGraph
from planner.compression import Compressed
from planner.graph import ComputationGraph, Edge
from planner.parallel import ConfigSpace, MicroBatching
from simulator.collectives import Round

__all__ = ["KINDS", "Collective", "Program"]


KINDS = (
    "forward", "epilogue_gradient", "activation_gradient", "weight_gradient", "bias_gradient", "update", "compress",
    "decompress", "transfer", "collective",
)  # fmt: skip
"""Kinds of tasks; ``Program.kind`` holds indices into this tuple.  Gradients of epilogues (activations and batch
normalisation) and of biases are tasks of their own in decomposed programs only (``planner.streams``)."""


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """One round, with its repeats, of an all-reduce among one set of replicas: of gradients, or of statistics."""

    devices: tuple[int, ...]
    round: Round
    buffer_bytes: float
    """Size of the buffer that is reduced; of one exchanged as codes, what gives its messages their size."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """Tasks 0 .. T-1 of one iteration, in program order; arrays have shape (T,) unless stated.

    Iterations follow each other: ``carried`` says which tasks wait for tasks of the iteration before.
    """

    graph: ComputationGraph
    cluster: DeviceGraph
    spaces: tuple[ConfigSpace, ...]
    """By layer, the space that holds its one configuration."""
    micro_batching: MicroBatching
    """Which layers take the mini-batch in sub-batches."""
    micro_batch_spaces: tuple[ConfigSpace, ...]
    """As ``spaces``, for one sub-batch: of the layers that take them, and of those that they read."""
    transferred_by: Mapping[Edge, Edge]
    """For every edge the one whose transfers bring its tensor: itself, or an earlier consumer's of equal layout."""
    segments: tuple[int, ...]
    """By layer, the segment that is computed again before it goes back; -1 where activations are kept."""
    compressed: Compressed
    """Which tensors and gradients travel as codes: compress tasks make them, decompress tasks read them."""
    kind: Ints
    layer: Ints
    """Layer that computes; for a transfer and the coding of one, the producer of the tensor; for a collective and the
    coding of gradients, the owner."""
    consumer: Ints
    """For a transfer and the coding of one, the first layer that asked for the region; else -1."""
    slot: Ints
    """For these, the input of the consumer that it brings or takes the gradient of; else -1."""
    micro_batch: Ints
    """Which sub-batch; 0 for what is done once for the whole batch.  Regions that layers behind the cut read or give
    back lie in the tensor of one sub-batch."""
    backward: NDArray[np.bool_]
    """Whether the task belongs to the backward pass."""
    statistics: NDArray[np.bool_]
    """Whether a collective sums the statistics of a normalisation, forward or backward; other collectives sum
    gradients of parameters."""
    recomputed: NDArray[np.bool_]
    """Whether a forward task, a transfer or the coding of one is repeated in a recomputation."""
    device: Ints
    """Device that computes or sends; -1 for collectives as single activities."""
    peer: Ints
    """Device that receives; -1 elsewhere."""
    part: Ints
    """Part computed, or part of the producer that a transfer takes from or gives its gradient to; for a message
    of a collective the first piece of the buffer that it carries; for a compress task that first decodes and sums what
    arrived for its device as a server of gradients, the piece that it serves; else -1."""
    size_bytes: Floats
    """Bytes moved: of a transfer, or of all messages of a collective; 0 elsewhere."""
    work_s: Floats
    """Time of a compute task alone on its device; 0 elsewhere."""
    compressed_bytes: Floats
    """Codes that a compress task makes; 0 elsewhere."""
    decompressed_bytes: Floats
    """Codes of other devices that a task decodes; 0 elsewhere."""
    group: Ints
    """Tasks of one group are one phase of Eq. 1: a layer's parts in one phase, the transfers of one layout of one
    tensor, what is encoded before and decoded after them or between rounds, one round of a layer's exchange or, where
    that is expanded, one repeat of a round.  Groups are numbered in the order of the phases."""
    region_low: Ints
    region_high: Ints
    """Shape (T, 6): region of the tensor that a transfer moves, padded with [0, 1); zero elsewhere.  Each region is
    encoded on its own."""
    collectives: dict[int, Collective]
    """By task id; tasks of kind collective that are not here are messages of an expanded one."""
    after_start: Ints
    after: Ints
    """Rows of the tasks of the same iteration that each task waits for."""
    carried: Ints
    """Shape (N, 2): task, and the task of the iteration before that it waits for."""
    sync_order: tuple[int, ...] = ()
    """Collectives that sum gradients in the order in which all devices do them, one after another, with slices of one
    sum in the order of their ids (``planner.search.gradient_order``); empty where they go as their gradients are
    made."""

    def spaces_at(self, layer: int) -> tuple[ConfigSpace, ...]:
        """Return the spaces of all layers for the samples that ``layer`` takes at once.

        That is one micro-batch where the layer takes the mini-batch in several, else the whole batch.
        """
        return self.micro_batch_spaces if self.micro_batching.of(layer) > 1 else self.spaces

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.kind)

    @property
    def waiting(self) -> Ints:
        """Task that waits, for each task of ``after`` that it waits for, shape (dependencies,)."""
        return row_owners(self.after_start)

    @property
    def is_compute(self) -> NDArray[np.bool_]:
        """Which tasks run on a device's arithmetic."""
        return self.kind < KINDS.index("transfer")

    @property
    def is_codec(self) -> NDArray[np.bool_]:
        """Which of these encode or decode messages, beside the order of the device's other tasks."""
        return np.isin(self.kind, [KINDS.index("compress"), KINDS.index("decompress")])

    @property
    def priority(self) -> Ints:
        """Higher is served first: of what layers behind a cut read and give back, the earlier sub-batches."""
        behind = (
            (self.kind == KINDS.index("transfer"))
            & (self.consumer >= self.micro_batching.first)
            & (self.micro_batching.parts > 1)
        )
        return np.where(behind, self.micro_batching.parts - self.micro_batch, 0)

    @property
    def region_bytes(self) -> Floats:
        """Size of the numbers in the region of each transfer, encoded or not; 0 elsewhere."""
        return np.asarray((self.region_high - self.region_low).prod(axis=1) * float(self.graph.element_bytes))

    @property
    def moved_bytes(self) -> float:
        """Bytes that leave a device in one iteration."""
        return float(self.size_bytes.sum())

    def name(self, task: int) -> str:
        """Printed name: layer, what is done, where."""
        text = self._name(task) + (", again" if self.recomputed[task] else "")
        micro_batching = (
            self.micro_batching.parts > 1 and self.micro_batching.of(max(self.layer[task], self.consumer[task])) > 1
        )
        return f"{text}, sub-batch {self.micro_batch[task] + 1}" if micro_batching else text

    def _name(self, task: int) -> str:
        layers, kind = self.graph.layers, KINDS[self.kind[task]]
        label = layers[self.layer[task]].name
        if kind == "transfer":
            return f"{self._tensor(task)} ({self.device[task]} to {self.peer[task]})"
        if kind == "collective":
            backward = "gradient statistics" if self.backward[task] else "statistics"
            what = backward if self.statistics[task] else "gradient exchange"
            if task in self.collectives:
                return f"{label} {what} over {len(self.collectives[task].devices)}"
            return f"{label} {what} ({self.device[task]} to {self.peer[task]})"
        if kind in ("compress", "decompress"):
            return f"{self._coded(task)}, {kind} [{self.device[task]}]"
        return f"{label} {kind.replace('_', ' ')} [{self.part[task]}]"

    def _tensor(self, task: int) -> str:
        label, to = (self.graph.layers[layer].name for layer in (self.layer[task], self.consumer[task]))
        return f"{to} to {label}, gradient" if self.backward[task] else f"{label} to {to}"

    def _coded(self, task: int) -> str:
        """What a task encodes or decodes."""
        if self.consumer[task] >= 0:
            return self._tensor(task)
        return f"{self.graph.layers[self.layer[task]].name} gradient" + (" sums" if self.part[task] >= 0 else "")
