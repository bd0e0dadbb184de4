"""Lowering: from a strategy to the program of one iteration, a task for every part, message and synchronisation.

A network of a convolution split by samples and a fully connected layer split by channels, over two devices:

    group    tasks, one for each device
    0        conv, forward
    1        conv to fc, transfers: both need all samples       wait for 0
    2        fc, forward                                        wait for 0 and 1
    3        fc, activation gradient                            wait for 2
    4        fc, weight gradient                                wait for 2
    5        conv to fc, gradient, transfers                    wait for 3
    6        conv, weight gradient                              wait for 3 and 5
    7 ...    conv, gradient synchronisation, round by round     wait for 6
    then     fc, update                                         wait for 4
    then     conv, update                                       wait for the last round

Tasks are made a layer at a time, as arrays, and once for all micro-batches: to lower a program of millions of tasks
takes no longer than its replay.
"""

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import ConfigError
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES
from planner.layouts.configurations import ConfigSpace
from planner.layouts.device_classes import DeviceClasses
from planner.layouts.parameter_shards import storage_shards
from planner.lowering.batched_model import BatchedModel, LoweredUnit
from planner.lowering.gradient_buckets import GradientBuckets
from planner.lowering.gradient_sync_tasks import GradientSyncTasks
from planner.lowering.layout_tasks import LayoutTasks
from planner.lowering.parameter_servers import ParameterServers
from planner.lowering.parameter_tasks import ParameterTasks
from planner.lowering.program import Program
from planner.lowering.sharded_parameters import ShardedParameters
from planner.lowering.task_builder import NO_PAIRS, TaskPairs, TaskRows, Tasks
from planner.lowering.transfer_tasks import TransferTasks
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching, schedule_of
from planner.strategies.pipeline_schedule import BACKWARD, FORWARD
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute, segments_of
from simulator.graph.memory_need import check_free_memory

_TASK_BYTES = 1_500
"""Memory of a compute task, from lowering to the replay of all iterations: growth of a pipeline of 4,096 micro-batches
by resident memory, for each task."""


def lower(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    *,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
    collectives: str = "activity",
    classes: DeviceClasses | None = None,
) -> Program:
    """Lower a strategy into the program of one iteration.

    Args:
        model: Graph, cluster, all-reduce algorithm and conditions, with their costs.
        spaces: For every layer the space that holds its one configuration.
        micro_batching: Layers that take the mini-batch in micro-batches.
        compressed: Tensors and gradients that travel compressed.
        recompute: Activations that are computed again before the backward pass of their layers.
        collectives: ``activity``: each round of an all-reduce, with its repeats, is one task on all its links;
            ``steps``: each message is a task, which waits for the messages that bring what it carries.
        classes: What the devices that are lowered stand for: of several replicas, those of which ``model`` and
            ``spaces`` are.

    Returns:
        The program, tasks in program order: forward, backward with gradient synchronisation, updates.

    Raises:
        ConfigError: ``collectives`` is neither, parts of a micro-batch would not be equal, the all-reduce would have
            to sum compressed messages, or the framework cannot have the strategy or the cluster.
        InfeasiblePlanError: This machine has no memory for so many tasks.
    """
    if collectives not in ("activity", "steps"):
        raise ConfigError(f"collectives must be activity or steps, got {collectives!r}")
    framework = model.conditions.framework
    storage = model.conditions.storage
    if storage.divides and (framework.has_servers or compressed.gradients or micro_batching.update_each):
        raise ConfigError(
            f"zero must be 0 with parameter servers, compressed gradients or updates after every micro-batch, "
            f"got {storage.zero}"
        )
    if framework.is_synchronous and (compressed.gradients or micro_batching.update_each):
        why = "gradients are compressed" if compressed.gradients else "parameters are updated after every micro-batch"
        raise ConfigError(f"framework must be ideal where {why}, got {framework.text!r}")
    batched = BatchedModel(model, spaces, micro_batching, classes)
    _check_memory(batched, recompute)
    return _Lowering(batched, compressed, recompute, expand=collectives == "steps").run()


def _check_memory(batched: BatchedModel, recompute: Recompute) -> None:
    """Refuse a program whose compute tasks alone take more memory than this machine has, before they are built."""
    graph, again = batched.graph, segments_of(batched.graph, recompute, batched.micro_batching)
    tasks = 0
    for i, segment in enumerate(again):
        passes = sum(graph.has_phase(i, phase) for phase in LAYER_PHASES) + (segment >= 0)
        tasks += len(batched.lowered_parts(i)[0]) * passes * batched.micro_batching.of(i)
    devices = batched.device_count if batched.classes is None else int(np.count_nonzero(batched.classes.lowered))
    subject = f"simulating {tasks:,} tasks of {devices:,} devices"
    check_free_memory(tasks * _TASK_BYTES, subject, way_out="fewer micro-batches, or devices, take less")


class _Lowering:
    """Builds the tasks of one iteration, layer by layer; those of layers with micro-batches once for all of these.

    Args:
        batched: Costs and configurations.
        compressed: Tensors and gradients that travel compressed.
        recompute: Activations that are recomputed.
        expand: Whether messages of all-reduces are tasks of their own.
    """

    def __init__(
        self, batched: BatchedModel, compressed: CompressionSettings, recompute: Recompute, *, expand: bool
    ) -> None:
        self.batched, self.compressed = batched, compressed
        self.graph, self.spaces, self.micro_batching = batched.graph, batched.spaces, batched.micro_batching
        self.segments = segments_of(batched.graph, recompute, batched.micro_batching)
        self.tasks = Tasks()
        self.transfers = TransferTasks(batched.model, self.tasks, compressed, batched.classes)
        self.gradient_syncs = GradientSyncTasks(
            batched.model, self.tasks, compressed, expand=expand, classes=batched.classes
        )
        self.layouts = LayoutTasks(
            batched, self.transfers, self.gradient_syncs, segments=self.segments, gathers=recompute.gathers
        )
        self.parameters = ParameterTasks(batched, self.transfers)
        framework = batched.model.conditions.framework
        self.sharded = (
            ShardedParameters(batched, self.gradient_syncs) if batched.model.conditions.storage.divides else None
        )
        self.buckets = self.sharded or GradientBuckets(framework, self.gradient_syncs)
        self.servers = ParameterServers(batched, self.tasks) if framework.has_servers else None
        self.computed_s = np.zeros(batched.device_count)
        """Time of the arithmetic so far in program order, by device."""
        self.forward: dict[int, Ints] = {}
        """Forward task of each part, by layer."""
        self.gradient: dict[int, Ints] = {}
        """Activation gradient task of each part, by layer."""
        self.weight_gradient: dict[int, Ints] = {}
        """Weight gradient task of each part, by layer."""
        self.before_backward: dict[int, TaskPairs] = {}
        """Pairs (part, task that its backward tasks wait for), by layer that began its backward pass."""
        self.updated: dict[int, Ints] = {}
        """Update task of each part, by layer."""
        self.recomputed: set[int] = set()
        """Segments that were recomputed."""
        self.times = [
            batched.model_at(i).compute_times.part_s(i, batched.spaces_at(i)[i]) for i in range(len(batched.spaces))
        ]
        """Time of each part, by layer and phase."""
        self.later_s: dict[int, Floats] = {
            i: batched.micro_model.compute_times.later_s(i, batched.micro_spaces[i])
            for i in range(len(batched.spaces))
            if batched.takes_micro_batches(i) and not batched.micro_batching.update_each
        }
        """Time by which a part's gradients of later micro-batches take longer, by layer with micro-batches."""

    def run(self) -> Program:
        """Append all tasks: the schedule of the micro-batches between layers of the whole batch."""
        layers, micro_batching = range(len(self.spaces)), self.micro_batching
        whole = layers if micro_batching.parts == 1 else layers[: micro_batching.first]
        if self.servers:
            self.servers.fetch()
        self.parameters.fetch(self.sharded.lend if self.sharded else lambda _: NO_PAIRS)
        if self.servers:
            self.parameters.await_fetched(self.servers.fetched)
        for i in whole:
            self._forward(i)
        carried = self._micro_batches() if micro_batching.parts > 1 else []
        self.tasks.place_behind()
        for i in reversed(whole):
            self._recompute(i)
            self._backward(i)
        if self.servers:
            return self._program([self.servers.finish()])
        carried += self._updates()
        if self.sharded:
            carried += self.sharded.carried(self.forward, self.updated, self.parameters.refreshed)
        return self._program(carried)

    def _micro_batches(self) -> list[Ints]:
        """Append the tasks of the layers with micro-batches, those of each kind of event once.

        Returns:
            As ``_update``, of the updates that follow each micro-batch.
        """
        micro_batching = self.micro_batching
        stages = micro_batching.layers_of(len(self.spaces))
        places: dict[tuple[tuple[str, ...], int], Ints] = {}
        for place, (phases, stage, micro_batch) in enumerate(schedule_of(micro_batching, self.spaces).events, start=1):
            places.setdefault((phases, stage), np.zeros(micro_batching.parts, dtype=np.int64))[micro_batch] = place
        before, carried = self.computed_s, list[Ints]()
        each_s = {(phases, stage): self._arithmetic_s(stages[stage], phases) for phases, stage in places}
        # What is done once is done in the last event of a kind, so that kinds end in the order of their last events.
        for (phases, stage), at in sorted(places.items(), key=lambda kind: int(kind[1].max())):
            self.tasks.place(at)
            done = {kind: np.count_nonzero(others < at.max()) for kind, others in places.items()}
            self.computed_s = before + sum(count * each_s[kind] for kind, count in done.items())
            if phases == FORWARD:
                for i in stages[stage]:
                    self._forward(i)
                continue
            self._backward_of_stage(stages[stage], phases)
            carried += self._updates() if micro_batching.update_each else []
        return carried

    def _arithmetic_s(self, layers: Sequence[int], phases: Sequence[str]) -> Floats:
        """Return the time of the arithmetic of one event of a schedule, by device."""
        total = np.zeros(self.batched.device_count)
        for i in (i for i in layers if phases == FORWARD or self.graph.has_gradient(i)):
            again = FORWARD if self.segments[i] >= 0 and "activation_gradient" in phases else ()
            for phase in [*again, *(phase for phase in phases if self.graph.has_phase(i, phase))]:
                total[self.spaces[i].devices] += self.times[i][phase]
        return total

    # Forward pass

    def _forward(self, i: int) -> None:
        """Bring a layer's inputs, compute its parts, complete its sums, and sum the statistics of a normalisation."""
        inputs = [self.layouts.bring(edge) for edge in self.graph.producers[i]]
        if self.sharded:
            self.sharded.before(i, backward=False)
        self.forward[i] = tasks = self._compute(i, "forward", backward=False)
        if self.sharded:
            self.sharded.computed(i, tasks, backward=False)
        self._wait_for_inputs(i, tasks, inputs)
        self.parameters.await_borrowed(i, tasks)
        if self.servers:
            self.servers.await_parameters(i, tasks)
        sums = self._complete(i, (np.arange(len(tasks)), tasks), backward=False)
        output = self._with_statistics(i, sums, backward=False)
        self.layouts.outputs[i] = TaskRows.of(*output, len(tasks))

    def _recompute(self, layer: int) -> None:
        """Run the segment of a layer that is about to go back forward again, once for all its layers."""
        segment = self.segments[layer]
        if segment < 0 or segment in self.recomputed:
            return
        self.recomputed.add(segment)
        for i, other in enumerate(self.segments):
            if other == segment:
                self._forward_again(i)

    def _forward_again(self, i: int) -> None:
        """Compute a layer's output again, from the kept inputs of its segment and the outputs recomputed before it."""
        inside = [edge for edge in self.graph.producers[i] if self.segments[edge.producer] == self.segments[i]]
        inputs = [self.layouts.bring(edge, recomputed=True) for edge in inside]
        if self.sharded:
            self.sharded.before(i, backward=True)
        tasks = self._compute(i, "forward", backward=False, recomputed=True)
        if self.sharded:
            self.sharded.computed(i, tasks, backward=True)
        self.tasks.wait(tasks, self.forward[i])
        self._wait_for_inputs(i, tasks, inputs)
        # statistics are kept from the first time
        sums = self._complete(i, (np.arange(len(tasks)), tasks), backward=False, recomputed=True)
        self.layouts.recomputed_outputs[i] = TaskRows.of(*sums, len(tasks))

    def _wait_for_inputs(self, i: int, tasks: Ints, inputs: Sequence[TaskPairs]) -> None:
        """Let the tasks of a layer, one a part, wait for pairs (device, task that brings an input)."""
        part_on = self.spaces[i].part_on(self.batched.device_count)
        for device, arrived in inputs:
            self.tasks.wait(tasks[part_on[device]], arrived)

    # Backward pass

    def _backward_of_stage(self, layers: Sequence[int], phases: Sequence[str]) -> None:
        """Compute some gradients of a stage, whose devices send none to the stages before until they have them all.

        Frameworks compute both gradients of a stage by one call and send that of its input after it: the published
        times of the schedules count with that.
        """
        for i in reversed(layers):
            self._recompute(i)
            self._backward(i, phases)
        if len(self.micro_batching.stages) < 2 or "activation_gradient" not in phases:
            return
        last = np.full(self.batched.device_count, -1, dtype=np.int64)
        for gradients in (self.gradient, self.weight_gradient):
            for i in filter(gradients.__contains__, layers):
                np.maximum.at(last, self.spaces[i].devices, gradients[i])
        for i in filter(self.gradient.__contains__, layers):
            self.gradient[i] = last[self.spaces[i].devices]

    def _backward(self, i: int, phases: Sequence[str] = BACKWARD) -> None:
        """Compute some gradients of a layer; the first time also bring the gradients of its output."""
        if not self.graph.has_gradient(i):
            return
        if i not in self.before_backward:
            self.before_backward[i] = self._begin_backward(i)
        part, after = self.before_backward[i]
        layer = self.graph.layers[i]
        reads_inputs = ("weight_gradient",) if layer.summed_size else BACKWARD
        reads = [phase for phase in phases if phase in reads_inputs and self.graph.has_phase(i, phase)]
        again = self.layouts.gather_again(i, (self.spaces[i].devices[part], after)) if reads else []
        for phase in phases:
            if not self.graph.has_phase(i, phase):
                continue
            if self.sharded:
                self.sharded.before(i, backward=True)
            tasks = self._compute(i, phase, backward=True)
            self.tasks.wait(tasks[part], after)
            self._wait_for_inputs(i, tasks, again if phase in reads else ())
            if self.sharded:
                self.sharded.computed(i, tasks, backward=True)
            if phase == "activation_gradient":
                self.gradient[i] = tasks
            else:
                self.weight_gradient[i] = tasks
                self._synchronise(i)

    def _begin_backward(self, i: int) -> TaskPairs:
        """Return pairs (part, task that its backward tasks wait for): gradients, statistics, recomputation."""
        gradients = self.layouts.bring_back(i, self.gradient)
        part, after = self._complete(i, self._with_statistics(i, gradients, backward=True), backward=True)
        if i in self.layouts.recomputed_outputs:
            again = self.layouts.recomputed_outputs[i].take(np.arange(len(self.spaces[i].devices)))
            return np.append(part, again[0]), np.append(after, again[1])
        return part, after

    def _synchronise(self, i: int) -> None:
        """Synchronise the gradients that a layer completes: its own, and of those whose parameters it borrows."""
        for layer in dict.fromkeys([*self.parameters.owners(i), i]):
            lent = self.parameters.lent(layer)
            if self.graph.has_phase(layer, "update") and all(j in self.weight_gradient for j in (layer, *lent)):
                each = self.micro_batching.update_each or (self.sharded and self.sharded.sums_each(layer))
                with nullcontext() if each else self.tasks.once():
                    self._synchronise_layer(layer, borrowed=bool(lent))

    def _synchronise_layer(self, layer: int, *, borrowed: bool) -> None:
        """Synchronise the gradients of a layer, all of which are there."""
        after = self.weight_gradient[layer]
        part, unit = np.arange(len(after)), (layer, self.tasks.last_micro_batch)
        if borrowed:
            back = self.parameters.bring_back(layer, self.weight_gradient)
            part, after = np.append(part, back[0]), np.append(after, back[1])
        if self.servers:
            self.servers.push(unit, (part, after))
        else:
            self.buckets.add(unit, self.spaces[layer], (part, after), float(self.computed_s.max()))

    def _updates(self) -> list[Ints]:
        """Append the updates of all layers whose gradients are synchronised; returns those of ``_update``."""
        return [self._update(*row) for row in self.buckets.take_updates()]

    def _update(self, unit: LoweredUnit, ready: TaskPairs) -> Ints:
        """Update a layer's parameters, last in program order: a device's stream runs updates after its backward pass.

        Args:
            unit: The layer, with its last micro-batch.
            ready: Pairs (part, task that its update waits for).

        Returns:
            Pairs (task that reads the parameters, update task of the iteration before that it waits for), shape (N, 2).
        """
        layer, micro_batch = unit
        part, after = ready
        tasks = self._compute(layer, "update", backward=True, micro_batch=micro_batch)
        self.tasks.wait(tasks[part], after)
        self.updated[layer] = tasks
        lowered, _ = self.batched.lowered_parts(layer)
        carried = np.column_stack([self.forward[layer][lowered], tasks[lowered]])
        return np.concatenate([carried, self.parameters.refreshed(layer, (np.arange(len(tasks)), tasks))])

    # Both passes

    def _compute(self, i: int, phase: str, *, backward: bool, recomputed: bool = False, micro_batch: int = 0) -> Ints:
        """Append one task a part in a new group; returns the task of each part, shape (parts,)."""
        self.tasks.group += 1
        devices = self.spaces[i].devices
        work_s = self.times[i][phase]
        if phase == "update":
            work_s = self._update_s(i)
        later_s = self.later_s.get(i, 0.0) if phase == "weight_gradient" else 0.0
        if (
            self.sharded
            and phase == "weight_gradient"
            and self.sharded.sums_each(i)
            and (shards := storage_shards(self.sharded.storage, self.graph.layers[i], self.spaces[i])) > 1
        ):
            times, space = self.batched.model_at(i).compute_times, self.batched.spaces_at(i)[i]
            later_s = later_s / shards  # each device adds to its shard
            work_s = work_s + times.before_sums_s(i, space) - times.each_s(i, space) * (1 - 1 / shards)
        self.computed_s[devices] += work_s
        parts, stands_in = self.batched.lowered_parts(i)
        tasks = self.tasks.add(
            phase,
            i,
            len(parts),
            device=devices[parts],
            part=parts,
            backward=backward,
            work_s=work_s[parts],
            later_s=later_s if isinstance(later_s, float) else later_s[parts],
            micro_batch=micro_batch,
            recomputed=recomputed,
        )
        return tasks[stands_in]

    def _update_s(self, i: int) -> Floats:
        """Return the time of a layer's update for each part, of which replicas may divide the parameters among them.

        Passes over gradients take those that replicas do not divide.
        """
        storage = self.batched.model.conditions.storage
        shards = storage_shards(storage, self.graph.layers[i], self.spaces[i])
        passes_s = self.batched.model.compute_times.gradient_passes_s(i, self.spaces[i]) if storage.zero == 1 else 0.0
        return np.asarray((self.times[i]["update"] - passes_s) / shards + passes_s)

    def _complete(self, i: int, ready: TaskPairs, *, backward: bool, recomputed: bool = False) -> TaskPairs:
        """Complete the partial sums of a layer, or gather their gradient; as ``GradientSyncTasks.complete``."""
        space = self.batched.spaces_at(i)[i]
        return self.gradient_syncs.complete(i, space, ready, backward=backward, recomputed=recomputed)

    def _with_statistics(self, i: int, ready: TaskPairs, *, backward: bool) -> TaskPairs:
        """Sum the statistics of a reduced normalisation, or gather those of a loss's rows, once all is ready.

        Args:
            i: The layer.
            ready: Pairs (part, task).
            backward: Whether these are statistics of gradients.

        Returns:
            The same pairs, and those that bring the sums; the same alone where there are no statistics.
        """
        rows = [ready]
        if self.batched.model.sync_times.statistics_bytes(i):
            rows.append(self.gradient_syncs.statistics(i, self.spaces[i], ready, backward=backward))
        if not backward:
            rows.append(self.gradient_syncs.row_statistics(i, self.batched.spaces_at(i)[i], ready))
        part, task = (np.concatenate(each) for each in zip(*rows, strict=True))
        return part, task

    def _program(self, carried: list[Ints]) -> Program:
        """Assemble the program from the tasks.

        Args:
            carried: Arrays of pairs (task, task of the iteration before that it waits for).
        """
        tasks = self.tasks.program()
        low, high = self.transfers.region_columns(tasks.made)
        after_start, after = tasks.dependencies()
        reads, updates = np.concatenate([np.empty((0, 2), dtype=np.int64), *carried]).T
        collectives = self.gradient_syncs.collectives.items()
        host_copies = self.servers.copies if self.servers else {}
        return Program(
            graph=self.graph,
            cluster=self.batched.model.cluster,
            spaces=tuple(self.spaces),
            micro_batching=self.micro_batching,
            micro_batch_spaces=tuple(self.batched.micro_spaces),
            segments=self.segments,
            compressed=self.compressed,
            transferred_by=self.layouts.transferred_by,
            gathered_again=frozenset(self.layouts.gathered_again),
            borrowed_by=self.parameters.carried_by,
            region_low=low,
            region_high=high,
            collectives={copy: each for task, each in collectives for copy in tasks.copies(task)},
            after_start=after_start,
            after=after,
            sync_order=(),
            carried=np.column_stack([tasks.first(reads), tasks.last(updates)]),
            conditions=self.batched.model.conditions,
            buckets=self.buckets.layers,
            bucket_choices=self.gradient_syncs.bucket_choices,
            classes=self.batched.classes,
            host_copies={copy: each for task, each in host_copies.items() for copy in tasks.copies(task)},
            **tasks.columns(),
        )
