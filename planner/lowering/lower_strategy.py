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

Tasks are made a layer at a time, as arrays: to lower a program of millions of tasks takes no longer than its replay.
"""

from collections.abc import Sequence

import numpy as np

from hwprofiles import ConfigError, Ints
from planner.compression import UNCOMPRESSED, CompressionSettings
from planner.cost import CostModel
from planner.lowering.batched_model import BatchedModel, LoweredUnit
from planner.lowering.gradient_buckets import GradientBuckets
from planner.lowering.gradient_sync_tasks import GradientSyncTasks
from planner.lowering.layout_tasks import LayoutTasks
from planner.lowering.parameter_servers import ParameterServers
from planner.lowering.parameter_tasks import ParameterTasks
from planner.lowering.program import Program
from planner.lowering.task_builder import TaskPairs, TaskRows, Tasks
from planner.lowering.transfer_tasks import TransferTasks
from planner.parallel import (
    BACKWARD,
    FORWARD,
    KEEP_ACTIVATIONS,
    WHOLE_BATCH,
    ConfigSpace,
    MicroBatching,
    Recompute,
    schedule_of,
    segments_of,
)

__all__ = ["lower"]


def lower(
    model: CostModel,
    spaces: Sequence[ConfigSpace],
    *,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings = UNCOMPRESSED,
    recompute: Recompute = KEEP_ACTIVATIONS,
    collectives: str = "activity",
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

    Returns:
        The program, tasks in program order: forward, backward with gradient synchronisation, updates.

    Raises:
        ConfigError: ``collectives`` is neither, parts of a micro-batch would not be equal, the all-reduce would have
            to sum compressed messages, or the framework cannot have the strategy or the cluster.
        InfeasiblePlanError: There is no memory for so many messages.
    """
    if collectives not in ("activity", "steps"):
        raise ConfigError(f"collectives must be activity or steps, got {collectives!r}")
    framework = model.conditions.framework
    if framework.is_synchronous and (compressed.gradients or micro_batching.update_each):
        why = "gradients are compressed" if compressed.gradients else "parameters are updated after every micro-batch"
        raise ConfigError(f"framework must be ideal where {why}, got {framework.text!r}")
    batched = BatchedModel(model, spaces, micro_batching)
    return _Lowering(batched, compressed, recompute, expand=collectives == "steps").run()


class _Lowering:
    """Builds the tasks of one iteration, unit by unit: a unit is a layer with a micro-batch.

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
        self.transfers = TransferTasks(batched.model, self.tasks, compressed)
        self.layouts = LayoutTasks(batched, self.transfers)
        self.parameters = ParameterTasks(batched, self.transfers)
        self.gradient_syncs = GradientSyncTasks(batched.model, self.tasks, compressed, expand=expand)
        framework = batched.model.conditions.framework
        self.buckets = GradientBuckets(framework, self.gradient_syncs)
        self.servers = ParameterServers(batched, self.tasks) if framework.has_servers else None
        self.computed_s = np.zeros(batched.device_count)
        """Time of the arithmetic so far, by device."""
        self.forward: dict[LoweredUnit, Ints] = {}
        """Forward task of each part, by unit."""
        self.gradient: dict[LoweredUnit, Ints] = {}
        """Activation gradient task of each part, by unit."""
        self.weight_gradient: dict[LoweredUnit, Ints] = {}
        """Weight gradient task of each part, by unit."""
        self.finished = np.zeros(len(batched.spaces), dtype=np.int64)
        """Number of micro-batches whose weight gradients are there, by layer."""
        self.before_backward: dict[LoweredUnit, TaskPairs] = {}
        """Pairs (part, task that its backward tasks wait for), by unit that began its backward pass."""
        self.synchronised: set[int] = set()
        """Layers whose gradients are synchronised."""
        self.recomputed: set[tuple[int, int]] = set()
        """Segments and micro-batches that were recomputed."""
        self.times = [
            batched.model_at(i).compute_times.part_s(i, batched.spaces_at(i)[i]) for i in range(len(batched.spaces))
        ]
        """Time of each part, by layer and phase."""

    def run(self) -> Program:
        """Append all tasks in program order: the schedule of the micro-batches between layers of the whole batch."""
        layers, micro_batching = range(len(self.spaces)), self.micro_batching
        stages, events = micro_batching.layers_of(len(layers)), schedule_of(micro_batching, self.spaces).events
        whole = layers[: micro_batching.first]  # layers that take the whole batch
        if micro_batching.parts == 1:
            whole, events = layers, ()
        if self.servers:
            self.servers.fetch()
        self.parameters.fetch()
        if self.servers:
            self.parameters.await_fetched(self.servers.fetched)
        for i in whole:
            self._forward((i, 0))
        carried: list[Ints] = []
        for phases, stage, micro_batch in events:
            if phases == FORWARD:
                for i in stages[stage]:
                    self._forward((i, micro_batch))
                continue
            self._backward_of_stage(stages[stage], micro_batch, phases)
            if micro_batching.update_each:
                rows = [self._update(*row) for row in self.buckets.take_updates()]
                # the next iteration waits for the last updates only
                carried += rows if micro_batch == micro_batching.parts - 1 else []
        for i in reversed(whole):
            self._recompute((i, 0))
            self._backward((i, 0))
        if self.servers:
            return self._program([self.servers.finish()])
        return self._program([*carried, *(self._update(*row) for row in self.buckets.take_updates())])

    # Forward pass

    def _forward(self, unit: LoweredUnit) -> None:
        """Bring a unit's inputs, compute its parts, and sum the statistics of a normalisation."""
        i, micro_batch = unit
        inputs = [self.layouts.bring(edge, micro_batch) for edge in self.graph.producers[i]]
        self.forward[unit] = tasks = self._compute(unit, "forward", backward=False)
        self._wait_for_inputs(i, tasks, inputs)
        self.parameters.await_borrowed(i, tasks)
        if self.servers:
            self.servers.await_parameters(i, tasks)
        output = self._with_statistics(unit, (np.arange(len(tasks)), tasks), backward=False)
        self.layouts.outputs[unit] = TaskRows.of(*output, len(tasks))

    def _recompute(self, unit: LoweredUnit) -> None:
        """Run the segment of a unit that is about to go back forward again, once for all its layers."""
        layer, micro_batch = unit
        segment = self.segments[layer]
        if segment < 0 or (segment, micro_batch) in self.recomputed:
            return
        self.recomputed.add((segment, micro_batch))
        for i, other in enumerate(self.segments):
            if other == segment:
                self._forward_again((i, micro_batch))

    def _forward_again(self, unit: LoweredUnit) -> None:
        """Compute a unit's output again, from the kept inputs of its segment and the outputs recomputed before it."""
        i, micro_batch = unit
        inside = [edge for edge in self.graph.producers[i] if self.segments[edge.producer] == self.segments[i]]
        inputs = [self.layouts.bring(edge, micro_batch, recomputed=True) for edge in inside]
        tasks = self._compute(unit, "forward", backward=False, recomputed=True)
        self.tasks.wait(tasks, self.forward[unit])
        self._wait_for_inputs(i, tasks, inputs)
        # statistics are kept from the first time
        self.layouts.recomputed_outputs[unit] = TaskRows.of(np.arange(len(tasks)), tasks, len(tasks))

    def _wait_for_inputs(self, i: int, tasks: Ints, inputs: Sequence[TaskPairs]) -> None:
        """Let the tasks of a layer, one a part, wait for pairs (device, task that brings an input)."""
        part_on = self.spaces[i].part_on(self.batched.device_count)
        for device, arrived in inputs:
            self.tasks.wait(tasks[part_on[device]], arrived)

    # Backward pass

    def _backward_of_stage(self, layers: Sequence[int], micro_batch: int, phases: Sequence[str]) -> None:
        """Compute some gradients of a stage, whose devices send none to the stages before until they have them all.

        Frameworks compute both gradients of a stage by one call and send that of its input after it: the published
        times of the schedules count with that.
        """
        units = [(i, micro_batch) for i in reversed(layers)]
        for unit in units:
            self._recompute(unit)
            self._backward(unit, phases)
        if len(self.micro_batching.stages) < 2 or "activation_gradient" not in phases:
            return
        last = np.full(self.batched.device_count, -1, dtype=np.int64)
        for gradients in (self.gradient, self.weight_gradient):
            for unit in filter(gradients.__contains__, units):
                np.maximum.at(last, self.spaces[unit[0]].devices, gradients[unit])
        for unit in filter(self.gradient.__contains__, units):
            self.gradient[unit] = last[self.spaces[unit[0]].devices]

    def _backward(self, unit: LoweredUnit, phases: Sequence[str] = BACKWARD) -> None:
        """Compute some gradients of a unit; the first time also bring the gradients of its output."""
        i = unit[0]
        if not self.graph.has_gradient(i):
            return
        if unit not in self.before_backward:
            self.before_backward[unit] = self._begin_backward(unit)
        part, after = self.before_backward[unit]
        for phase in phases:
            if not self.graph.has_phase(i, phase):
                continue
            tasks = self._compute(unit, phase, backward=True)
            self.tasks.wait(tasks[part], after)
            if phase == "activation_gradient":
                self.gradient[unit] = tasks
            else:
                self.weight_gradient[unit] = tasks
                self.finished[i] += 1
                self._synchronise(unit)

    def _begin_backward(self, unit: LoweredUnit) -> TaskPairs:
        """Return pairs (part, task that its backward tasks wait for): gradients, statistics, recomputation."""
        gradients = self.layouts.bring_back(unit, self.gradient)
        part, after = self._with_statistics(unit, gradients, backward=True)
        if unit in self.layouts.recomputed_outputs:
            again = self.layouts.recomputed_outputs[unit].task
            return np.append(part, np.arange(len(again))), np.append(after, again)
        return part, after

    def _synchronise(self, unit: LoweredUnit) -> None:
        """Synchronise the gradients that a unit completes: of its layer, and of those whose parameters it borrows."""
        for layer in dict.fromkeys([*self.parameters.owners(unit[0]), unit[0]]):
            if self.graph.has_phase(layer, "update") and layer not in self.synchronised:
                self._synchronise_layer((layer, unit[1]))

    def _synchronise_layer(self, unit: LoweredUnit) -> None:
        """Synchronise the gradients of a layer: of this micro-batch, or of all once the last one is there."""
        layer = unit[0]
        each, lent = self.micro_batching.update_each, self.parameters.lent(layer)
        is_there = unit in self.weight_gradient if each else self.finished[layer] == self.micro_batching.of(layer)
        if not is_there or any(self.finished[i] < self.micro_batching.of(i) for i in lent):
            return
        if not each:
            self.synchronised.add(layer)
        together = [unit[1]] if each else range(self.micro_batching.of(layer))
        tasks = np.array([self.weight_gradient[layer, micro_batch] for micro_batch in together])
        part, after = np.tile(np.arange(tasks.shape[1]), len(tasks)), tasks.ravel()
        if lent:
            back = self.parameters.bring_back(layer, self.weight_gradient)
            part, after = np.append(part, back[0]), np.append(after, back[1])
        if self.servers:
            self.servers.push(unit, (part, after))
        else:
            self.buckets.add(unit, self.spaces[layer], (part, after), float(self.computed_s.max()))

    def _update(self, unit: LoweredUnit, ready: TaskPairs) -> Ints:
        """Update a layer's parameters, last in program order: a device's stream runs updates after its backward pass.

        Args:
            unit: The layer, with its last micro-batch.
            ready: Pairs (part, task that its update waits for).

        Returns:
            Pairs (task that reads the parameters, update task of the iteration before that it waits for), shape (N, 2).
        """
        part, after = ready
        tasks = self._compute(unit, "update", backward=True)
        self.tasks.wait(tasks[part], after)
        carried = np.column_stack([self.forward[unit[0], 0], tasks])
        return np.concatenate([carried, self.parameters.refreshed(unit[0], tasks)])

    # Both passes

    def _compute(self, unit: LoweredUnit, phase: str, *, backward: bool, recomputed: bool = False) -> Ints:
        """Append one task a part in a new group; returns their ids, shape (parts,)."""
        self.tasks.group += 1
        i, micro_batch = unit
        devices = self.spaces[i].devices
        self.computed_s[devices] += self.times[i][phase]
        return self.tasks.add(
            phase, i, len(devices), device=devices, part=np.arange(len(devices)), backward=backward,
            work_s=self.times[i][phase], micro_batch=micro_batch, recomputed=recomputed,
        )  # fmt: skip

    def _with_statistics(self, unit: LoweredUnit, ready: TaskPairs, *, backward: bool) -> TaskPairs:
        """Sum the statistics of a reduced normalisation once all is ready.

        Args:
            unit: The unit.
            ready: Pairs (part, task).
            backward: Whether these are statistics of gradients.

        Returns:
            The same pairs, and those that bring the sums; the same alone where there are no statistics.
        """
        if not self.batched.model.sync_times.statistics_bytes(unit[0]):
            return ready
        summed = self.gradient_syncs.statistics(*unit, self.spaces[unit[0]], ready, backward=backward)
        return np.concatenate([ready[0], summed[0]]), np.concatenate([ready[1], summed[1]])

    def _program(self, carried: list[Ints]) -> Program:
        """Assemble the program from the tasks.

        Args:
            carried: Arrays of pairs (task, task of the iteration before that it waits for).
        """
        low, high = self.transfers.region_columns(self.tasks.size)
        after_start, after = self.tasks.dependencies()
        return Program(
            graph=self.graph,
            cluster=self.batched.model.cluster,
            spaces=tuple(self.spaces),
            micro_batching=self.micro_batching,
            micro_batch_spaces=tuple(self.batched.micro_spaces),
            segments=self.segments,
            compressed=self.compressed,
            transferred_by=self.layouts.transferred_by,
            borrowed_by=self.parameters.carried_by,
            region_low=low,
            region_high=high,
            collectives=self.gradient_syncs.collectives,
            after_start=after_start,
            after=after,
            sync_order=(),
            carried=np.concatenate([np.empty((0, 2), dtype=np.int64), *carried]),
            conditions=self.batched.model.conditions,
            buckets=self.buckets.layers,
            bucket_choices=self.gradient_syncs.bucket_choices,
            host_copies=self.servers.copies if self.servers else {},
            **self.tasks.columns(),
        )
