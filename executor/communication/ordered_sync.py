"""Gradients summed in the order of the program, slice by slice, while the rank goes on with its next iteration."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor
from typing_extensions import override

from executor.communication.gradient_sync import GradientSync
from executor.program import Chain, RankProgram, Recorder
from executor.runtime import ComputeDevice, Handle

__all__ = ["OrderedSync"]


@dataclass(frozen=True, slots=True)
class _Slice:
    chain: Chain
    content: Tensor


class OrderedSync(GradientSync):
    """Sums a layer's gradients as soon as those that come first in the order are summed; arguments as for its base.

    The program of the view has an order of sums.
    """

    def __init__(
        self, view: RankProgram, device: ComputeDevice, recorder: Recorder, *, overlap: bool = True, timeout_s: float
    ) -> None:
        super().__init__(view, device, recorder, overlap=overlap, timeout_s=timeout_s)
        self._lanes.append(device.lane("gradients"))
        program = view.program
        mine = [task for task in program.sums if view.rank in program.collectives[task].devices]
        slices: dict[int, Tensor] = {}
        for layer in sorted({int(program.layer[task]) for task in mine}):
            tasks = sorted(task for task in mine if program.layer[task] == layer)
            slices |= zip(tasks, self._make_places([layer]).tensor_split(len(tasks)), strict=True)
        self._order = [_Slice(_chain(view, task), slices[task]) for task in mine]
        self._next = 0
        self._made: set[int] = set()
        """Layers whose gradients of this iteration exist."""
        self._handle: dict[int, Handle] = {}
        """By layer, of its last slice that was given to the lane."""

    @override
    def _begin(self, layer: int) -> Sequence[Handle]:
        self._made.add(layer)
        given: list[Handle] = []
        while (part := self._order[self._next]).chain.layer in self._made:
            handle = self._lanes[0].submit(partial(self._sum, part, self._recorder.iteration))
            self._handle[part.chain.layer] = handle
            given.append(handle)
            self._next = (self._next + 1) % len(self._order)
            if self._next == 0:
                self._made.clear()
        return given

    def _sum(self, part: _Slice, iteration: int) -> None:
        (task,) = part.chain.tasks
        with self._recorder.of(iteration):
            if part.chain.native:
                self._recorder.start(task)
            self._reducer.sum(part.chain, part.content)
            if part.chain.native:
                self._recorder.end(task)

    @override
    def _last(self, layer: int) -> Handle:
        return self._handle[layer]


def _chain(view: RankProgram, task: int) -> Chain:
    collective = view.program.collectives[task]
    return Chain(int(view.program.layer[task]), (task,), collective.devices, collective.round.is_ring)
