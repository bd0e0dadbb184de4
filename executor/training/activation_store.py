"""Activations in memory: outputs of a rank's parts, and input tensors assembled from them, until their last use."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.communication.received_regions import ReceivedRegions
from executor.communication.redistributor import Redistributor
from executor.layers.base import PartLayer
from executor.layers.kernels.layout import memory_format
from executor.program.input_consumers import Consumers
from executor.program.messages import Message
from executor.program.rank_parts import InputKey, LayerUnit
from executor.program.rank_program import InputTensor, RankProgram
from executor.program.redistributions import RankRedistribution
from executor.runtime.boxes import Box
from planner.operations.pooling import Pooling

_OutputKey = tuple[LayerUnit, bool]
"""The unit that computes an output, and whether it is recomputed."""


class ActivationStore:
    """Outputs of a rank's parts, released once all consumers on the rank have read them and all messages are sent."""

    def __init__(
        self,
        view: RankProgram,
        consumers: Consumers,
        received: ReceivedRegions,
        redistributor: Redistributor,
        parts: Mapping[LayerUnit, PartLayer],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._view, self._again, self._consumers, self._received = view, view.program.recomputed, consumers, received
        self._parts, self._dtype, self._device = parts, dtype, device
        self._redistributor = redistributor
        self._redistributed = {row.key for row in view.redistributions}
        backward = view.program.backward | view.program.moves_parameters  # gradients and parameters are no activations
        self._sends: dict[_OutputKey, int] = defaultdict(int)
        """Number of messages with regions of each output."""
        for messages in view.messages.outgoing.values():
            for message in messages:
                if not backward[message.tasks[0]]:
                    self._sends[self._output_of(message)] += 1
        self._incoming: dict[tuple[InputKey, bool], list[tuple[Message, int]]] = defaultdict(list)
        """Regions that other ranks send of each input tensor: the message, and the region's index in it."""
        for message in view.messages.received:
            for index, task in enumerate(message.tasks):
                if not backward[task]:
                    self._incoming[view.messages.input_key[task], bool(self._again[task])].append((message, index))
        self._gathers: dict[_OutputKey, int] = defaultdict(int)
        """Number of times that each output is gathered again for the backward pass."""
        for row in view.redistributions:
            if row.backward and row.again:
                self._gathers[self._gathered_from(view.inputs[row.edge, row.micro_batch])] += 1
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._outputs: dict[_OutputKey, Tensor] = {}
        self._uses: dict[_OutputKey, int] = {}
        """Messages and assembled tensors that still need each output."""
        self._assembled: dict[tuple[InputKey, bool], Tensor] = {}
        self._reads: dict[tuple[InputKey, bool], int] = {}
        """Consumers that still have to read each assembled tensor."""
        self._held: dict[LayerUnit, dict[int, Tensor]] = {}
        self._gathered: dict[InputKey, tuple[Tensor, int]] = {}
        """Inputs that were gathered again, with the number of readers that have not got them."""

    def wait(self, unit: LayerUnit, *, again: bool) -> None:
        """Wait for the regions of a unit's inputs that other ranks send."""
        for row in self._consumers.delivered(unit, again):
            for message, _ in self._incoming[row.key, again]:
                self._received.wait(message)
            if (*row.key, False, again) in self._redistributed and (row.key, again) not in self._assembled:
                self._redistributor.wait((*row.key, False, again))

    def inputs(self, unit: LayerUnit, given: Mapping[int, Tensor], *, again: bool) -> list[Tensor]:
        """Return the inputs of a unit by slot, in the layout that the rank's part reads.

        Args:
            unit: The consumer.
            given: Inputs that are not assembled, by slot: training data, or those that were held for the recomputation.
            again: Whether the unit is recomputed.
        """
        rows = self._consumers.inputs_of[unit]
        return [given[slot] if slot in given else self._input(row, again) for slot, row in enumerate(rows)]

    def _input(self, row: InputTensor | None, again: bool) -> Tensor:
        """Return an input tensor, assembled when its first consumer reads it."""
        assert row is not None
        key = row.key, again
        if key not in self._assembled:
            self._reads[key] = self._consumers.count(row, again)
            if (*row.key, False, again) in self._redistributed:
                self._assembled[key] = self._redistributor.take((*row.key, False, again))
                return self._assembled[key]
            self._assembled[key] = self._assemble(row, again)
            if self._view.parts.index[row.edge.producer] >= 0:
                self._used((row.source, again))
        return self._assembled[key]

    def redistribute(self, row: RankRedistribution, *, overlap: bool) -> None:
        """Begin to bring an output of the rank into another layout, and wait for that without ``overlap``."""
        tensor = self._view.inputs[row.edge, row.micro_batch]
        source = self._gathered_from(tensor) if row.backward else (tensor.source, row.again)
        output, held = self._outputs[source], self._view.parts.held_for(row.edge)
        values = output if held == tensor.frame else output[held.within(tensor.frame)]
        self._redistributor.begin(row, values, overlap=overlap)
        self._used(source)

    def _gathered_from(self, row: InputTensor) -> _OutputKey:
        """Return the output from which an input is gathered again: that of the pass which its last reader goes back."""
        last = max(edge.consumer for edge in row.readers if edge in self._view.program.gathered_again)
        return row.source, self._view.program.segments[last] >= 0

    def again(self, unit: LayerUnit) -> dict[int, Tensor]:
        """Return the inputs of a unit that were gathered again, by slot, once each."""
        return {slot: self._taken(row) for slot, row in self._consumers.gathered_again[unit].items()}

    def _taken(self, row: InputTensor) -> Tensor:
        """Return an input that was gathered again to one of its readers."""
        if row.key not in self._gathered:
            self._redistributor.wait((*row.key, True, True))
            readers = sum(edge in self._view.program.gathered_again for edge in row.readers)
            self._gathered[row.key] = self._redistributor.take((*row.key, True, True)), readers
        values, readers = self._gathered.pop(row.key)
        if readers > 1:
            self._gathered[row.key] = values, readers - 1
        return values

    def _assemble(self, row: InputTensor, again: bool) -> Tensor:
        """Return an input tensor, a view of the rank's own output where that covers it, else a copy of all regions.

        ::

            output, by rank        |  rank 0  |  rank 1  |  rank 2  |
            box, read on rank 1          [===================]
            own                                [========]
            received regions             [===]            [==]
        """
        incoming = self._incoming[row.key, again]
        if row.own == row.box and row.box.elements and not incoming:
            output = self._outputs[row.source, again]
            return output if row.box == row.frame else output[row.box.within(row.frame)]
        parts = [self._parts[edge.consumer, row.micro_batch] for edge in row.readers]
        last = any(each.reads_last for each in parts)
        if row.own.elements and all(isinstance(part.layer.operation, Pooling) for part in parts):
            last = self._outputs[row.source, again].stride(1) == 1  # as on ranks that read what they have
        last = memory_format(last, self._dtype, self._device) == torch.channels_last or any(p.reads_rows for p in parts)
        order = [*range(len(row.box.shape))]
        whole = torch.empty_permuted(
            row.box.shape, [0, *order[2:], 1] if last else order, dtype=self._dtype, device=self._device
        )
        regions = list[tuple[int, Box, Tensor]]()
        part, tasks = self._view.program.part, [message.tasks[index] for message, index in incoming]
        if row.own.elements:
            own = self._outputs[row.source, again][row.own.within(row.frame)]
            regions.append((self._view.parts.index[row.edge.producer], row.own, own))
        boxes = [message.boxes[index] for message, index in incoming]
        regions += [(int(part[task]), box, self._received.region(task)) for task, box in zip(tasks, boxes, strict=True)]
        slices = self._view.parts.slices_of(row.edge.producer)
        for maker, box, region in sorted(regions, key=lambda each: int(slices[each[0]])):  # on all ranks in one order
            if slices[maker]:
                whole[box.within(row.box)] += region
            else:
                whole[box.within(row.box)] = region
        for task in tasks:
            self._received.release(task)
        return whole

    def have_read(self, unit: LayerUnit, *, again: bool) -> None:
        """Count that a unit has read its inputs; tensors whose last consumer it is are released."""
        for row in self._consumers.delivered(unit, again):
            self._reads[row.key, again] -= 1
            if self._reads[row.key, again] == 0:
                del self._assembled[row.key, again]

    def hold(self, unit: LayerUnit, inputs: Sequence[Tensor]) -> None:
        """Keep the inputs that a unit reads from outside of its segment until it is recomputed."""
        rows = zip(self._consumers.inputs_of[unit], inputs, strict=True)
        self._held[unit] = {
            slot: values
            for slot, (row, values) in enumerate(rows)
            if row is None or not self._consumers.same_segment(unit[0], row)
        }

    def take_held(self, unit: LayerUnit) -> dict[int, Tensor]:
        """Return and release the inputs that ``hold`` kept for a unit, by slot."""
        return self._held.pop(unit, {})

    def keep(self, unit: LayerUnit, output: Tensor, *, again: bool) -> None:
        """Store an output for the consumers that read it and the messages that send it."""
        readers = sum(self._consumers.count(row, again) > 0 for row in self._consumers.inputs_from[unit])
        uses = self._sends[unit, again] + readers + self._gathers[unit, again]
        if uses:
            self._outputs[unit, again], self._uses[unit, again] = output, uses

    def region(self, transfer: int, box: Box) -> Tensor:
        """Return the region that a transfer of the forward pass sends."""
        parts, key = self._view.parts, self._view.messages.input_key[transfer]
        return self._outputs[parts.unit_of(transfer), bool(self._again[transfer])][box.within(parts.frame(key))]

    def was_sent(self, message: Message) -> None:
        """Count that a message of the forward pass was handed to the transport, which keeps its content."""
        self._used(self._output_of(message))

    def _output_of(self, message: Message) -> _OutputKey:
        return self._view.parts.unit_of(message.tasks[0]), bool(self._again[message.tasks[0]])

    def _used(self, key: _OutputKey) -> None:
        """Count one use of an output, and release it after the last."""
        self._uses[key] -= 1
        if self._uses[key] == 0:
            del self._outputs[key]
