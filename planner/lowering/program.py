"""The program: every task of one training iteration, which cost, simulation and executor all read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from groundwork.array_types import Bools, Floats, Ints
from groundwork.sparse_rows import row_owners
from hwprofiles.devices.device_graph import DeviceGraph
from planner.compression.settings import CompressionSettings
from planner.cost.conditions import IDEAL_CONDITIONS, Conditions
from planner.cost.framework import Framework
from planner.graph.computation_graph import ComputationGraph, Edge
from planner.graph.type_roles import DataTypes, types_of
from planner.layouts.configurations import ConfigSpace
from planner.layouts.device_classes import DeviceClasses
from planner.strategies.micro_batches import MicroBatching
from simulator.collectives.rounds import Round

if TYPE_CHECKING:
    from planner.cost.all_reduce import SyncChoice  # which loads the kernels that price all-reduces
    from planner.lowering.chosen_rounds import ChosenRounds


KINDS = (
    "forward",
    "epilogue_gradient",
    "activation_gradient",
    "weight_gradient",
    "bias_gradient",
    "update",
    "compress",
    "decompress",
    "transfer",
    "gather",
    "collective",
    "coordinate",
    "push",
    "fetch",
)
"""Kinds of tasks; ``Program.kind`` holds indices into this tuple.  Gradients of epilogues (activations and batch
normalisation) and of biases are tasks of their own in decomposed programs only (``studies.streams``).  Parameters that
replicas divide are gathered.  A framework coordinates: its ranks agree on a buffer before they sum it, or wait for all
others, which uses no device.  Gradients are pushed to servers, and parameters fetched from them."""

_COLLECTIVE = KINDS.index("collective")
_FRAMEWORK_NAMES = {
    "coordinate": "gradient synchronisation, coordination",
    "push": "gradient to its server",
    "fetch": "parameters from their server",
}


_COLUMNS = (
    *("kind", "layer", "consumer", "slot", "micro_batch", "backward", "statistics", "recomputed"),
    *("device", "peer", "part", "size_bytes", "work_s", "compressed_bytes", "decompressed_bytes"),
    *("link_use", "group", "region_low", "region_high"),
)
"""Fields of ``Program`` that have a value for every task."""


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """One round of a collective, with its repeats, between one set of devices.

    All-reduces sum gradients or statistics over replicas; with other collectives they bring activations, and gradients
    of these, from the layout in which they are made to that in which they are read.
    """

    devices: tuple[int, ...]
    """In the order of the parts of what is gathered or scattered; of replicas of which one is lowered, those of that
    one."""
    round: Round
    buffer_bytes: float
    """Bytes of the whole buffer, or of that of each device of an all-to-all; if compressed, of the buffer whose plain
    messages would have the size of the compressed ones."""
    ranks: int
    """Number of devices that take part, those of all replicas."""
    kind: str = "all-reduce"
    """Also ``all-gather``, ``reduce-scatter`` or ``all-to-all``."""
    dim: int = -1
    """Dimension of the tensor that is gathered or scattered; -1 for an all-reduce."""
    others: tuple[Round, ...] = ()
    """The same round between other sets of devices, at the same time, for all of which this one stands."""
    chosen: "ChosenRounds | None" = None
    """What its rounds follow from; None where messages are compressed."""
    place: tuple[int, ...] = ()
    """Number of the round, how many there are, then the groups between which it is: its own, and those of
    ``others``."""


@dataclass(frozen=True, slots=True)
class HostCopy:
    """The ways of a message between a device and the memory of a machine, which lies at one or several hosts."""

    links: tuple[int, ...]
    shares: tuple[float, ...]
    """Share of the message's bytes that crosses each link."""
    latency_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Tasks 0 .. T-1 of one iteration, in program order; arrays have shape (T,) unless stated.

    Iterations follow each other: ``carried`` holds the tasks that wait for tasks of the iteration before.
    """

    graph: ComputationGraph
    cluster: DeviceGraph
    spaces: tuple[ConfigSpace, ...]
    """Space that holds the one configuration of a layer, for the whole batch, by layer."""
    micro_batching: MicroBatching
    """Layers that take the mini-batch in micro-batches."""
    micro_batch_spaces: tuple[ConfigSpace, ...]
    """Like ``spaces``, for one micro-batch: of the layers that take micro-batches, and of those that they read."""
    transferred_by: Mapping[Edge, Edge]
    """Edge whose transfers bring the tensor, by edge: itself, or that of an earlier consumer of equal layout."""
    gathered_again: frozenset[Edge]
    """Inputs that their readers do not keep, but gather again for the backward pass."""
    borrowed_by: Mapping[Edge, Edge]
    """Way whose transfers bring a shared parameter to a layer that borrows it, by way (``ComputationGraph.shared``)."""
    segments: tuple[int, ...]
    """Segment that is recomputed before the backward pass, by layer; -1 where activations are kept."""
    compressed: CompressionSettings
    """Tensors and gradients that travel compressed, between compress tasks and decompress tasks."""
    kind: Ints
    layer: Ints
    """Layer that computes; for a transfer and its codec tasks, the producer of the tensor; for a collective and its
    codec tasks, the layer whose gradients or statistics are summed, of several the one whose gradients come last
    (``layers_of``)."""
    consumer: Ints
    """First layer that reads the layout, for a transfer and its codec tasks, and for a collective of activations; else
    -1."""
    slot: Ints
    """Input of ``consumer`` that is moved, or whose gradient is, where there is a consumer; slots behind the inputs are
    parameters that it borrows; else -1, as where a layer completes its own sums."""
    micro_batch: Ints
    """Micro-batch; 0 for what is done once for the whole batch.  Regions that layers with micro-batches read or send
    back lie in the tensor of one micro-batch."""
    backward: Bools
    """True if the task belongs to the backward pass."""
    statistics: Bools
    """True if a collective sums the statistics of a normalisation, or gathers those of a loss's rows."""
    recomputed: Bools
    """True if a forward task, a transfer or a codec task is repeated in a recomputation, or a gather for the backward
    pass."""
    device: Ints
    """Device that computes or sends; -1 for collectives that are one activity."""
    peer: Ints
    """Device that receives; -1 elsewhere."""
    part: Ints
    """Part computed, or part of the producer that a transfer takes from or brings a gradient to; for a message of a
    collective the first chunk of the buffer that it carries; for a compress task of a parameter server, which first
    decompresses and sums, the shard that it serves; else -1."""
    size_bytes: Floats
    """Bytes moved: of a transfer, or of all messages of a collective as they leave devices, with what protocols of a
    library add; 0 elsewhere."""
    work_s: Floats
    """Time of a compute task alone on its device, or that the coordination of a buffer takes, seconds; 0 elsewhere."""
    compressed_bytes: Floats
    """Bytes of the compressed messages that a compress task makes; 0 elsewhere."""
    decompressed_bytes: Floats
    """Bytes of the compressed messages of other devices that a task decompresses; 0 elsewhere."""
    link_use: Floats
    """Bytes that the links of a transfer could carry in its time, for each of its own: 1, or more for a message of an
    expanded collective of a library that does not reach all of their bandwidth."""
    group: Ints
    """Group of tasks that are one phase of Eq. 1: a layer's parts in one phase, the transfers of one layout of one
    tensor, the codec tasks before, between or after messages, one round of a layer's all-reduce or, where that is
    expanded, one repeat of a round.  Groups are numbered in the order of the phases."""
    region_low: Ints
    """Shape (T, 6): first element of the region of the tensor that a transfer moves, padded with 0; 0 elsewhere.  Each
    region is compressed on its own."""
    region_high: Ints
    """Shape (T, 6): end of the region, exclusive, padded with 1; 0 elsewhere."""
    collectives: dict[int, Collective]
    """Collectives by task id; tasks of kind collective that are missing here are messages of an expanded collective."""
    after_start: Ints
    """Shape (T + 1,): first entry of each task in ``after``."""
    after: Ints
    """Tasks of the same iteration that each task waits for."""
    carried: Ints
    """Shape (N, 2): task, and the task of the iteration before that it waits for."""
    sync_order: tuple[int, ...] = ()
    """Collectives that sum gradients, in the order in which all devices run them one after another, with slices of one
    sum in the order of their ids (``planner.search.gradient_order``); empty where they run as their gradients are
    computed."""
    host_copies: Mapping[int, HostCopy] = field(default_factory=dict)
    """Pushes and fetches by task id."""
    conditions: Conditions = IDEAL_CONDITIONS
    """Rules by which gradients were joined into buckets, and what a replay takes into account above contention."""
    buckets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Layers whose gradients one buffer holds, in its order, by the last of them; layers with a buffer of their own
    are missing."""
    classes: DeviceClasses | None = None
    """What the devices that have tasks stand for; of replicas of a network, ``graph`` and ``spaces`` are those of the
    ones that have.  None: all devices have their own tasks."""
    bucket_choices: Mapping[int, "SyncChoice"] = field(default_factory=dict)
    """Algorithm that was chosen for the buffer of a layer; empty without a framework, and where it was given."""

    @property
    def framework(self) -> Framework:
        """Rules by which gradients were joined into buckets."""
        return self.conditions.framework

    @property
    def types(self) -> DataTypes:
        """Data types by role."""
        return self.conditions.types or types_of(self.graph.element_bytes)

    @property
    def collective_devices(self) -> dict[int, tuple[int, ...]]:
        """Devices that take part in each collective that is one activity, by its task."""
        return {task: collective.devices for task, collective in self.collectives.items()}

    def layers_of(self, task: int) -> tuple[int, ...]:
        """Return the layers that a task belongs to: several where it sums the gradients of a bucket, or gathers it."""
        layer = int(self.layer[task])
        if KINDS[self.kind[task]] == "gather":
            return next((members for members in self.buckets.values() if layer in members), (layer,))
        return self.buckets.get(layer, (layer,)) if self.syncs_gradients[task] else (layer,)

    def by_layer(self, values: Floats, owner: Ints | None = None) -> Floats:
        """Add up values of tasks by layer, those of a bucket in proportion to the bytes of its layers' parameters.

        Args:
            values: Shape (T,).
            owner: Shape (T,): layer of each task, not negative; ``layer`` where it is left out.

        Returns:
            Shape (layers,).
        """
        owner = self.layer if owner is None else owner
        joined = self.syncs_gradients & np.isin(owner, list(self.buckets))
        count = len(self.graph.layers)
        sums = np.asarray(np.bincount(owner[~joined], values[~joined], minlength=count), dtype=np.float64)
        for layer, total in enumerate(np.bincount(owner[joined], values[joined], minlength=count).tolist()):
            if total:
                members = list(self.buckets[layer])
                sizes = np.array([sum(p.elements for p in self.graph.layers[i].parameters) for i in members])
                sums[members] += total * sizes / sizes.sum()
        return sums

    def spaces_at(self, layer: int) -> tuple[ConfigSpace, ...]:
        """Return the spaces of all layers for the samples that ``layer`` takes at once.

        That is one micro-batch where the layer takes the mini-batch in several, else the whole batch.
        """
        return self.micro_batch_spaces if self.micro_batching.of(layer) > 1 else self.spaces

    def columns_of(self, tasks: Ints) -> dict[str, Any]:
        """Return all columns of some tasks, by name, in the order given; one task may be there several times."""
        return {name: getattr(self, name)[tasks] for name in _COLUMNS}

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.kind)

    @property
    def waiting(self) -> Ints:
        """Task that waits, for each entry of ``after``, shape (dependencies,)."""
        return row_owners(self.after_start)

    @cached_property
    def syncs_gradients(self) -> Bools:
        """Tasks that synchronise gradients of parameters: collectives, and what frameworks do around them."""
        return np.asarray((self.kind >= _COLLECTIVE) & ~self.statistics & (self.consumer < 0))

    @property
    def moves_activations(self) -> Bools:
        """Collectives that bring activations, or their gradients, from one layout into another."""
        return np.asarray((self.kind == _COLLECTIVE) & (self.consumer >= 0))

    @property
    def is_compute(self) -> Bools:
        """Tasks that compute on a device, codec tasks included."""
        return self.kind < KINDS.index("transfer")

    @property
    def moves_parameters(self) -> Bools:
        """Transfers of shared parameters and of their gradients."""
        if not self.borrowed_by:
            return np.zeros(self.size, dtype=np.bool_)
        inputs = np.array([*(len(layer.inputs) for layer in self.graph.layers), np.iinfo(np.int64).max])
        return np.asarray((self.kind == KINDS.index("transfer")) & (self.slot >= inputs[self.consumer]))

    def tensor_dims(self, task: int) -> int:
        """Return the number of dimensions of the tensor of which a transfer moves a region."""
        way = Edge(int(self.layer[task]), int(self.consumer[task]), int(self.slot[task]))
        shared = self.graph.shared.get(way)
        return len(shared.shape.sizes if shared else self.graph.layers[way.producer].output.sizes)

    @property
    def is_codec(self) -> Bools:
        """Codec tasks: they compress or decompress messages, outside the order of the device's other tasks."""
        return np.isin(self.kind, [KINDS.index("compress"), KINDS.index("decompress")])

    @property
    def priority(self) -> Ints:
        """Priority of each task on links, the highest first: transfers of earlier micro-batches before later ones."""
        transfers = (
            (self.kind == KINDS.index("transfer"))
            & (self.consumer >= self.micro_batching.first)
            & (self.micro_batching.parts > 1)
        )
        return np.where(transfers, self.micro_batching.parts - self.micro_batch, 0)

    @property
    def region_bytes(self) -> Floats:
        """Bytes of the region of each transfer before any compression; 0 elsewhere."""
        return np.asarray((self.region_high - self.region_low).prod(axis=1) * float(self.graph.element_bytes))

    @cached_property
    def stands_for(self) -> Floats:
        """Tasks that do the same at the same time and for which each stands, itself counted, shape (T,)."""
        if self.classes is None:
            return np.ones(self.size)
        counts = self.classes.stand_for(self.device, self.peer)
        for task, collective in self.collectives.items():
            counts[task] = 1 + len(collective.others)
        return counts

    @property
    def receiver(self) -> Ints:
        """Device with tasks that receives as that of each message does, shape (T,); -1 elsewhere."""
        if self.classes is None:
            return self.peer
        return np.where(self.peer >= 0, self.classes.device_like[self.peer], -1)

    def each(self, device: Ints, messages: Ints) -> Ints:
        """Return how many of the messages for which each stands one device sends, or receives.

        Args:
            device: The device with tasks that sends or receives each, shape (K,).
            messages: Shape (K,): tasks.
        """
        if self.classes is None:
            return np.ones(len(messages), dtype=np.int64)
        return np.asarray(self.stands_for[messages] / self.classes.alike[device], dtype=np.int64)

    def on_all_devices(self, values: Floats) -> Floats:
        """Return values by device in which those of replicas that are not lowered are those of the first."""
        return values if self.classes is None else values[self.classes.device_like]

    @property
    def moved_bytes(self) -> float:
        """Bytes that leave a device in one iteration."""
        return float(self.size_bytes @ self.stands_for)

    @property
    def names(self) -> list[str]:
        """Printed names of all tasks: what ``name`` returns, in a tenth of the time.

        Tasks that differ in their devices or part alone share what stands before and behind these.
        """
        moves = self.kind == KINDS.index("transfer")
        alike = np.flatnonzero(moves | (self.is_compute & ~self.is_codec))
        columns = [
            column[alike].astype(np.int64) - int(column.min(initial=0))
            for column in (self.kind, self.layer, self.consumer, self.micro_batch, self.backward, self.recomputed)
        ]
        shape = tuple(int(column.max(initial=0)) + 1 for column in columns)
        _, first, pattern = np.unique(np.ravel_multi_index(columns, shape), return_index=True, return_inverse=True)
        around = [self.name(task).rpartition(self._where(task)) for task in alike[first].tolist()]
        texts = [""] * self.size
        varied = (column[alike].tolist() for column in (moves, self.device, self.peer, self.part))
        rows = zip(alike.tolist(), pattern.tolist(), *varied, strict=True)
        for task, row, moved, device, peer, part in rows:
            before, _, behind = around[row]
            texts[task] = f"{before}({device} to {peer}){behind}" if moved else f"{before}[{part}]{behind}"
        return [text or self.name(task) for task, text in enumerate(texts)]

    def _where(self, task: int) -> str:
        """Return what the name of a transfer says of its devices, or that of a compute task of its part."""
        if self.peer[task] >= 0:
            return f"({self.device[task]} to {self.peer[task]})"
        return f"[{self.part[task]}]"

    def name(self, task: int) -> str:
        """Return the printed name of a task: its layer, what it does, and where."""
        text = self._name(task) + (", again" if self.recomputed[task] else "")
        takes_micro_batches = self.micro_batching.of(max(self.layer[task], self.consumer[task])) > 1
        return f"{text}, sub-batch {self.micro_batch[task] + 1}" if takes_micro_batches else text

    def _name(self, task: int) -> str:
        """Return the printed name without micro-batch and recomputation."""
        layers, kind = self.graph.layers, KINDS[self.kind[task]]
        others = len(self.layers_of(task)) - 1
        label = layers[self.layer[task]].name + (f" and {others} more" if others else "")
        if kind == "transfer":
            return f"{self._tensor(task)} ({self.device[task]} to {self.peer[task]})"
        if kind == "gather":
            return f"{label} parameters, all-gather"
        if kind in _FRAMEWORK_NAMES:
            return f"{label} {_FRAMEWORK_NAMES[kind]}" + (f" [{self.device[task]}]" if kind != "coordinate" else "")
        if kind == "collective":
            if self.consumer[task] >= 0:
                return self._redistribution(task)
            backward = "gradient statistics" if self.backward[task] else "statistics"
            what = backward if self.statistics[task] else "gradient synchronisation"
            if task in self.collectives:
                return f"{label} {what} over {self.collectives[task].ranks}"
            return f"{label} {what} ({self.device[task]} to {self.peer[task]})"
        if kind in ("compress", "decompress"):
            return f"{self._message(task)}, {kind} [{self.device[task]}]"
        return f"{label} {kind.replace('_', ' ')} [{self.part[task]}]"

    def _redistribution(self, task: int) -> str:
        """Return the printed name of a collective of activations, or of one message of it."""
        if task in self.collectives:
            each = self.collectives[task]
            return f"{self._tensor(task)}, {each.kind} over {each.ranks}"
        return f"{self._tensor(task)}, collective ({self.device[task]} to {self.peer[task]})"

    def _tensor(self, task: int) -> str:
        """Return the printed name of the tensor or gradient that is moved."""
        label, to = (self.graph.layers[layer].name for layer in (self.layer[task], self.consumer[task]))
        if self.layer[task] == self.consumer[task]:
            return f"{label} partial sums" + (", gradient" if self.backward[task] else "")
        shared = self.graph.shared.get(Edge(int(self.layer[task]), int(self.consumer[task]), int(self.slot[task])))
        label += f" {shared.name}" if shared else ""
        gradient = self.backward[task] and not self.recomputed[task]
        return f"{to} to {label}, gradient" if gradient else f"{label} to {to}"

    def _message(self, task: int) -> str:
        """Return the printed name of what a codec task compresses or decompresses."""
        if self.consumer[task] >= 0:
            return self._tensor(task)
        return f"{self.graph.layers[self.layer[task]].name} gradient" + (" sums" if self.part[task] >= 0 else "")
