"""What a rank keeps of the forward pass: outputs, and the inputs assembled of them, until their last use."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from executor.communication import ReceivedRegions
from executor.layers import PartLayer
from executor.layers.kernels import memory_format
from executor.program import Consumers, Delivered, Input, LayerUnit, Message, RankProgram
from executor.runtime import Box

__all__ = ["Activations"]

_Made = tuple[LayerUnit, bool]
"""What makes an output, the first time or again."""


class Activations:
    """Outputs of a rank's parts: read here, sent, and forgotten once all of that is done.

    Args:
        view: What the rank makes and sends.
        readers: Who reads it here.
        arrivals: What others send.
        parts: By unit, what reads and makes tensors.
        dtype, device: Of the tensors.
    """

    def __init__(
        self, view: RankProgram, readers: Consumers, arrivals: ReceivedRegions, parts: Mapping[LayerUnit, PartLayer], *,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        self._view, self._again, self._readers, self._arrivals = view, view.program.again, readers, arrivals
        self._parts, self._dtype, self._device = parts, dtype, device
        backward = view.program.backward
        self._sends: dict[_Made, int] = defaultdict(int)
        for messages in view.outgoing.values():
            for message in messages:
                if not backward[message.tasks[0]]:
                    self._sends[self._made_by(message)] += 1
        self._arriving: dict[tuple[Delivered, bool], list[tuple[Message, int]]] = defaultdict(list)
        for phase in sorted(view.incoming):
            for message in view.incoming[phase]:
                for place, task in enumerate(message.tasks):
                    if not backward[task]:
                        self._arriving[view.edge_of[task], bool(self._again[task])].append((message, place))
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._outputs: dict[_Made, Tensor] = {}
        self._uses: dict[_Made, int] = {}
        self._assembled: dict[tuple[Delivered, bool], Tensor] = {}
        self._reads: dict[tuple[Delivered, bool], int] = {}
        self._held: dict[LayerUnit, dict[int, Tensor]] = {}

    def wait(self, unit: LayerUnit, *, again: bool) -> None:
        """Wait for what others send of what a unit reads."""
        for row in self._readers.brought(unit, again):
            for message, _ in self._arriving[row.key, again]:
                self._arrivals.wait(message)

    def inputs(self, unit: LayerUnit, given: Mapping[int, Tensor], *, again: bool) -> list[Tensor]:
        """What a unit reads, slot by slot: what is given, and tensors in the layout that the rank's part reads."""
        rows = self._readers.inputs[unit]
        return [given[slot] if slot in given else self._input(row, again) for slot, row in enumerate(rows)]

    def _input(self, row: Input | None, again: bool) -> Tensor:
        """A tensor, assembled for its first reader."""
        assert row is not None
        key = row.key, again
        if key not in self._assembled:
            self._assembled[key] = self._assemble(row, again)
            self._reads[key] = self._readers.count(row, again)
            if self._view.part[row.edge.producer] >= 0:
                self._used((row.source, again))
        return self._assembled[key]

    def _assemble(self, row: Input, again: bool) -> Tensor:
        if row.own == row.box and row.box.elements:
            output = self._outputs[row.source, again]
            return output if row.box == row.frame else output[row.box.within(row.frame)]
        last = any(self._parts[edge.consumer, row.sub_batch].reads_last for edge in row.readers)
        layout = memory_format(last, self._dtype, self._device)
        whole = torch.empty(row.box.shape, dtype=self._dtype, device=self._device, memory_format=layout)
        if row.own.elements:
            whole[row.own.within(row.box)] = self._outputs[row.source, again][row.own.within(row.frame)]
        for message, place in self._arriving[row.key, again]:
            task, box = message.tasks[place], message.boxes[place]
            whole[box.within(row.box)] = self._arrivals.region(task)
            self._arrivals.consumed(task)
        return whole

    def have_read(self, unit: LayerUnit, *, again: bool) -> None:
        """A unit has read its inputs; the last reader of a tensor is its end."""
        for row in self._readers.brought(unit, again):
            self._reads[row.key, again] -= 1
            if self._reads[row.key, again] == 0:
                del self._assembled[row.key, again]

    def hold(self, unit: LayerUnit, inputs: Sequence[Tensor]) -> None:
        """Keep what a segment reads from outside until it is computed again."""
        rows = zip(self._readers.inputs[unit], inputs, strict=True)
        self._held[unit] = {
            slot: values
            for slot, (row, values) in enumerate(rows)
            if row is None or not self._readers.inside(unit[0], row)
        }

    def take_held(self, unit: LayerUnit) -> dict[int, Tensor]:
        """By slot, what was held for a unit."""
        return self._held.pop(unit, {})

    def keep(self, unit: LayerUnit, output: Tensor, *, again: bool) -> None:
        """Hold an output for those who read or send it."""
        readers = sum(self._readers.count(row, again) > 0 for row in self._readers.taken_by[unit])
        uses = self._sends[unit, again] + readers
        if uses:
            self._outputs[unit, again], self._uses[unit, again] = output, uses

    def region(self, transfer: int, box: Box) -> Tensor:
        """What a transfer of the forward pass sends."""
        view = self._view
        return self._outputs[view.unit_of(transfer), bool(self._again[transfer])][
            box.within(view.frame(view.edge_of[transfer]))
        ]

    def was_sent(self, message: Message) -> None:
        """A message of the forward pass is on its way."""
        self._used(self._made_by(message))

    def _made_by(self, message: Message) -> _Made:
        return self._view.unit_of(message.tasks[0]), bool(self._again[message.tasks[0]])

    def _used(self, made: _Made) -> None:
        """An output was sent or read once more; the last time it is forgotten."""
        self._uses[made] -= 1
        if self._uses[made] == 0:
            del self._outputs[made]
