"""Collectives that bring activations, and their gradients, from one layout on a mesh into another."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from executor.communication.group_exchange import GroupExchange
from executor.program.rank_parts import LayerUnit
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.program.redistributions import RankRedistribution, RankStep, RedistributionKey
from executor.runtime.devices import ComputeDevice, Handle
from executor.supervision.status_board import RankState, RankStatus
from planner.graph.computation_graph import Edge


class Redistributor:
    """Runs the redistributions of a rank, in the order of their phases, beside its arithmetic.

    Args:
        view: Redistributions in which the rank takes part.  All ranks must make their ``Redistributor`` together.
        device: Runs them.
        recorder: Records the start and end of tasks.
        status: The rank's row of the status board.
        timeout_s: Longest time for which one may keep the rank waiting.
    """

    def __init__(
        self, view: RankProgram, device: ComputeDevice, recorder: Recorder, status: RankStatus, timeout_s: float
    ) -> None:
        self._rank, self._program, self._device, self._recorder = view.rank, view.program, device, recorder
        self._status, self._timeout_s, self._completions = status, timeout_s, view.completions
        self._lane = device.lane("activations") if view.redistributions or view.completions else None
        moves = view.program.moves_activations
        groups = (each.devices for task, each in view.program.collectives.items() if moves[task])
        self._exchange = GroupExchange(view, device, recorder, "activations", groups)
        self.clear()

    def clear(self) -> None:
        """Begin an iteration."""
        self._handles: dict[RedistributionKey, tuple[Handle, int]] = {}
        self._results: dict[RedistributionKey, Tensor] = {}

    def begin(self, row: RankRedistribution, values: Tensor, *, overlap: bool) -> None:
        """Begin a redistribution of the rank's part, which is not written, and wait for it without ``overlap``."""
        assert self._lane is not None, "a rank has a lane for its redistributions"

        def work() -> None:
            self._results[row.key] = self._run(row, values)

        first = next(step.tasks[0] for step in row.steps if step.tasks)
        self._handles[row.key] = self._lane.submit(work), first
        self._lane.keep(values)
        if not overlap:
            self.wait(row.key)

    def complete(self, unit: LayerUnit, values: Tensor, *, backward: bool, again: bool = False) -> Tensor:
        """Return the part's share of the sum of partial sums, or the gradient of these from those of all shares."""
        layer, micro_batch = unit
        row = self._completions[Edge(layer, layer, -1), micro_batch, backward, again]
        self.begin(row, values, overlap=False)
        return self.take(row.key)

    def wait(self, key: RedistributionKey) -> None:
        """Wait for the end of a redistribution that has begun."""
        handle, task = self._handles[key]
        self._status.at(task, RankState.WAITING)
        handle.wait(self._timeout_s)

    def take(self, key: RedistributionKey) -> Tensor:
        """Return, once, the rank's part in the layout after a redistribution that has been waited for."""
        result = self._results.pop(key)
        if result.is_cuda:
            result.record_stream(torch.cuda.current_stream())  # it was allocated for the stream of the lane
        return result

    def close(self) -> None:
        """End threads and connections; all ranks must call it together."""
        if self._lane is not None:
            self._lane.close()
        self._exchange.close()

    def _run(self, row: RankRedistribution, values: Tensor) -> Tensor:
        """Return the part after all steps."""
        order = [0, *range(2, values.dim()), 1] if row.rows else [*range(values.dim())]
        values = values.permute(order)
        for step in row.steps:
            place = order.index(step.dim) if step.dim >= 0 else -1
            if step.collective == "slice":
                ((low, high),) = step.spans
                values = values.narrow(place, low, high - low)
                continue
            for task in step.tasks:
                self._recorder.start(task)
            if step.collective == "all-to-all":
                values = self._all_to_all(step, values, place, order.index(step.gathered))
            elif step.collective == "all-gather":
                values = self._all_gather(step, values, place)
            elif step.collective == "reduce-scatter":
                values = self._reduce_scatter(step, values, place)
            else:
                values = self._all_reduce(step, values)
            for task in step.tasks:
                self._recorder.end(task)
            self._recorder.joined(list(step.tasks), self._program.size_bytes[list(step.tasks)].tolist())
        return values.permute([order.index(dim) for dim in range(len(order))])

    def _all_to_all(self, step: RankStep, values: Tensor, place: int, gathered: int) -> Tensor:
        """Send each member its part of one dimension, and put together what arrives along another."""
        own, count = step.devices.index(self._rank), len(step.devices)
        outgoing = [values.narrow(place, low, high - low).contiguous() for low, high in step.spans]
        sizes = _sized(outgoing[own], gathered, count * values.shape[gathered])
        result = values.new_empty(sizes)
        pieces = list(result.tensor_split(count, gathered))
        incoming = [each if each.is_contiguous() else torch.empty_like(outgoing[own]) for each in pieces]
        if self._exchange.native:
            dist.all_to_all(incoming, outgoing, group=self._exchange.native[step.devices])
        else:
            self._exchange.exchange(step.devices, step.tasks, outgoing, incoming)
            incoming[own] = outgoing[own]
        for piece, arrived in zip(pieces, incoming, strict=True):
            if piece is not arrived:
                piece.copy_(arrived)
        return result

    def _all_gather(self, step: RankStep, values: Tensor, place: int) -> Tensor:
        """Put together the parts of all members along one dimension."""
        parts = [values.new_empty(_sized(values, place, high - low)) for low, high in step.spans]
        if self._exchange.native:
            dist.all_gather(parts, values.contiguous(), group=self._exchange.native[step.devices])
        else:
            own = step.devices.index(self._rank)
            parts[own] = values.contiguous()
            self._exchange.exchange(step.devices, step.tasks, [parts[own]] * len(parts), parts)
        return torch.cat(parts, place)

    def _reduce_scatter(self, step: RankStep, values: Tensor, place: int) -> Tensor:
        """Return the sum over all members of the rank's part of one dimension."""
        parts = [values.narrow(place, low, high - low).contiguous() for low, high in step.spans]
        if not self._exchange.native:
            return self._summed(step, parts)
        result = torch.empty_like(parts[step.devices.index(self._rank)])
        dist.reduce_scatter(result, parts, group=self._exchange.native[step.devices])
        return result

    def _all_reduce(self, step: RankStep, values: Tensor) -> Tensor:
        """Return the sum over all members."""
        if self._exchange.native:
            result = values.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(result, group=self._exchange.native[step.devices])
            return result
        flat, own = values.contiguous().view(-1), step.devices.index(self._rank)
        if len(step.devices) == 2:  # as many bytes, in one exchange
            return self._summed(step, [flat, flat]).view(values.shape)
        share = self._summed(step, flat.tensor_split(len(step.devices)))  # before the whole is allocated
        result = torch.empty_like(flat)
        parts = list(result.tensor_split(len(step.devices)))
        parts[own].copy_(share)
        del share
        self._exchange.exchange(step.devices, step.tasks, [parts[own]] * len(parts), parts)
        return result.view(values.shape)

    def _summed(self, step: RankStep, parts: Sequence[Tensor]) -> Tensor:
        """Return the sum over all members of this rank's part; ``parts``: what the rank has of each member's."""
        own = step.devices.index(self._rank)
        arrived = [parts[own] if i == own else torch.empty_like(parts[own]) for i in range(len(parts))]
        self._exchange.exchange(step.devices, step.tasks, parts, arrived)
        first, second, *others = (arrived[i] for i in sorted(range(len(parts)), key=lambda i: step.devices[i]))
        result, other = (second, first) if first is parts[own] else (first, second)  # what has arrived may be written
        for term in (other, *others):  # in the order of the ranks, to the last bit: two terms commute
            result.add_(term)
        return result


def _sized(values: Tensor, place: int, size: int) -> list[int]:
    """Return the sizes of a tensor with another size of one dimension."""
    return [size if dim == place else each for dim, each in enumerate(values.shape)]
