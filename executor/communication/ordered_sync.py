"""Gradients synchronised in the order of the program, slice by slice, into the rank's next iteration."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor
from typing_extensions import override

from executor.communication.gradient_sync import GradientSync
from executor.communication.reduction import Reducer
from executor.program.buckets import Reduction
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, Handle
from executor.runtime.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class _Slice:
    """One slice of a layer's buffer, which is reduced by itself."""

    reduction: Reduction
    content: Tensor


class OrderedSync(GradientSync):
    """Sums slices of gradients as soon as all slices before them in the program's order have begun.

    The program of ``view`` must have an order of gradient synchronisation.  Arguments as for ``GradientSync``.
    """

    def __init__(self, view: RankProgram, device: ComputeDevice, recorder: Recorder, options: RunOptions) -> None:
        super().__init__(view, device, recorder, options)
        self._carrier = self._reducer = Reducer(view, recorder, statistics=False, device=device.torch_device)
        self._lanes.append(device.lane("gradients"))
        program = view.program
        mine = [task for task in program.sync_order if view.rank in program.collectives[task].devices]
        slices: dict[int, Tensor] = {}
        for layer in sorted({int(program.layer[task]) for task in mine}):
            tasks = sorted(task for task in mine if program.layer[task] == layer)
            slices |= zip(tasks, self._allocate([layer]).tensor_split(len(tasks)), strict=True)
        self._order = []
        for task in mine:
            layer, collective = int(program.layer[task]), program.collectives[task]
            reduction = Reduction(layer, (task,), collective.devices, collective.round.is_ring)
            self._order.append(_Slice(reduction, slices[task]))
        self._next = 0
        self._computed: set[int] = set()
        """Layers whose gradients of this iteration are computed."""
        self._handle: dict[int, Handle] = {}
        """The last slice of each layer that was given to the lane."""

    @override
    def _begin(self, layer: int) -> Sequence[Handle]:
        self._computed.add(layer)
        begun: list[Handle] = []
        while (part := self._order[self._next]).reduction.layer in self._computed:
            handle = self._lanes[0].submit(partial(self._sum, part, self._recorder.iteration))
            self._handle[part.reduction.layer] = handle
            begun.append(handle)
            self._next = (self._next + 1) % len(self._order)
            if self._next == 0:
                self._computed.clear()
        return begun

    def _sum(self, part: _Slice, iteration: int) -> None:
        (task,) = part.reduction.tasks
        with self._recorder.of(iteration):
            if part.reduction.native:
                self._recorder.start(task)
            self._reducer.sum(part.reduction, part.content)
            if part.reduction.native:
                self._recorder.end(task)

    @override
    def _last(self, layer: int) -> Handle:
        return self._handle[layer]
