"""Gradients summed in the order of the program, slice by slice, while the rank goes on with its next iteration."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from executor.devices import Device, Handle
from executor.rank_program import RankProgram
from executor.recorder import Recorder
from executor.reduction import GradientExchange, Reducer, Residual, flat_gradients
from executor.sums import Chain

__all__ = ["OrderedExchange", "exchange_of"]


@dataclass(slots=True)
class _Gradients:
    """Of one layer, where its sum is made."""

    flat: Tensor
    views: dict[str, Tensor]
    made: bool = False
    """In this iteration; its slices may be summed."""
    handle: Handle | None = None
    """Of the last slice that was given to the lane."""


@dataclass(frozen=True, slots=True)
class _Slice:
    chain: Chain
    low: int
    high: int
    """Numbers of the buffer."""


class OrderedExchange:
    """Sums gradients over replicas in the order of the program; in the place of a ``GradientExchange``.

    Args:
        view: What this rank takes part in; its program has an order of sums.
        device: Whose lane runs them.
        recorder: Told when tasks begin and end.
        overlap: Off: what can be summed is waited for before anything else is computed.
        timeout_s: How long a sum may keep the rank waiting.
    """

    def __init__(
        self, view: RankProgram, device: Device, recorder: Recorder, *, overlap: bool = True, timeout_s: float
    ) -> None:
        self.overlap, self._recorder, self._timeout_s = overlap, recorder, timeout_s
        self._reducer = Reducer(view, recorder, statistics=False, device=device.torch_device)
        self._lane = device.lane("gradients")
        program = view.program
        mine = [task for task in program.sums if view.rank in program.collectives[task].devices]
        self._gradients: dict[int, _Gradients] = {}
        for layer in sorted({int(program.layer[task]) for task in mine}):
            flat, views = flat_gradients(view, [layer], device.torch_device)
            self._gradients[layer] = _Gradients(flat, views[layer])
        self._order = [self._slice(view, task, mine) for task in mine]
        self._next = 0

    def _slice(self, view: RankProgram, task: int, mine: list[int]) -> _Slice:
        program, layer = view.program, int(view.program.layer[task])
        slices = sorted(other for other in mine if program.layer[other] == layer)
        size, at = self._gradients[layer].flat.numel(), slices.index(task)
        bounds = [number * size // len(slices) for number in range(len(slices) + 1)]
        collective = program.collectives[task]
        chain = Chain(layer, (task,), collective.devices, collective.round.is_ring)
        return _Slice(chain, bounds[at], bounds[at + 1])

    @property
    def buffers(self) -> list[Tensor]:
        """Where gradients are summed."""
        return [row.flat for row in self._gradients.values()]

    def submit(self, layer: int, gradients: Mapping[str, Tensor]) -> bool:
        """Sum a layer's gradients as soon as those that come first in the order are given to the lane.

        Returns:
            False where the layer has no replicas: its gradients are whole as they are.
        """
        row = self._gradients.get(layer)
        if row is None:
            return False
        for name, place in row.views.items():
            place.copy_(gradients[name])
        row.made = True
        given: list[Handle] = []
        while self._gradients[self._order[self._next].chain.layer].made:
            given.append(self._give(self._order[self._next]))
            self._next += 1
            if self._next == len(self._order):
                self._next = 0
                for other in self._gradients.values():
                    other.made = False
                break
        if not self.overlap:
            for handle in given:
                handle.wait(self._timeout_s)
        return True

    def _give(self, part: _Slice) -> Handle:
        row = self._gradients[part.chain.layer]
        row.handle = self._lane.submit(partial(self._sum, part, row.flat, self._recorder.iteration))
        return row.handle

    def _sum(self, part: _Slice, flat: Tensor, iteration: int) -> None:
        (task,) = part.chain.tasks
        with self._recorder.of(iteration):
            if part.chain.native:
                self._recorder.start(task)
            self._reducer.sum(part.chain, flat[part.low : part.high])
            if part.chain.native:
                self._recorder.end(task)

    def wait(self, layer: int) -> dict[str, Tensor]:
        """A layer's gradients, once they are summed; to be read before the next exist.

        Raises:
            TimeoutError: They are not summed in time.
            RuntimeError: A connection broke.
        """
        row = self._gradients[layer]
        assert row.handle is not None
        row.handle.wait(self._timeout_s)
        return row.views

    def residuals(self) -> dict[int, Residual]:
        """None: nothing is encoded."""
        return {}

    def close(self) -> None:
        """End what runs beside; all ranks must call it together."""
        self._lane.close()
        self._reducer.close()


def exchange_of(
    view: RankProgram, device: Device, recorder: Recorder, *, overlap: bool, timeout_s: float, join_bytes: float,
    stand_in: bool,
) -> GradientExchange | OrderedExchange:  # fmt: skip
    """What sums the gradients of a program; arguments as for ``GradientExchange``, whose joins an order replaces."""
    if view.program.sums:
        return OrderedExchange(view, device, recorder, overlap=overlap, timeout_s=timeout_s)
    return GradientExchange(
        view, device, recorder, overlap=overlap, timeout_s=timeout_s, join_bytes=join_bytes, stand_in=stand_in
    )
