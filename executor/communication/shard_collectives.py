"""Collectives of divided storage, in place: gathers of a unit's parameters, and sums of its gradients into shards."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor

from executor.communication.group_exchange import GroupExchange
from executor.program.rank_program import RankProgram
from executor.program.rank_storage import Span, UnitCollective
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice
from groundwork.array_types import Bools
from planner.layouts.configurations import part_bounds


class ShardCollectives:
    """Runs collectives among replicas that divide what they hold; every rank must make them in the same order.

    Args:
        view: Program of the rank.
        device: Device whose back end carries them.
        recorder: Records the start and end of tasks, and the bytes that are sent.
        purpose: What is sent, which has connections of its own.
        tasks: Shape (T,): tasks of the program that may be run.
    """

    def __init__(
        self, view: RankProgram, device: ComputeDevice, recorder: Recorder, purpose: str, tasks: Bools
    ) -> None:
        self._rank, self._program, self._recorder = view.rank, view.program, recorder
        groups = (each.devices for task, each in view.program.collectives.items() if tasks[task])
        self._exchange = GroupExchange(view, device, recorder, purpose, groups)
        self.received = torch.empty(0)
        """Buffer in which others' shares of a sum arrive; as long as the largest needs."""

    def run(self, collective: UnitCollective, flat: Tensor, shards: Sequence[Span], *, iteration: int) -> None:
        """Run a collective, and record it.

        Args:
            collective: The collective.
            flat: Row of elements, which it writes: all of them where they are gathered or summed, and the rank's own
                shard where sums are scattered; then others are left as they are, or not.
            shards: Elements of each member; not used by an all-reduce.
            iteration: Iteration whose tasks it is, counted from 0.
        """
        tasks = list(collective.tasks)
        with self._recorder.of(iteration):
            for task in tasks:
                self._recorder.start(task)
            if self._exchange.native:
                self._native(collective, flat, shards)
            elif collective.kind == "all-gather":
                self._gather(collective, flat, shards)
            else:
                whole = collective.kind == "all-reduce"
                rows = list(pairwise(part_bounds(len(flat), len(collective.devices)).tolist())) if whole else shards
                self._scatter(collective, flat, rows)
                if whole:
                    self._gather(collective, flat, rows)
            for task in tasks:
                self._recorder.end(task)
            self._recorder.joined(tasks, self._program.size_bytes[tasks].tolist())

    def close(self) -> None:
        """Close the process groups; all ranks must call it together."""
        self._exchange.close()

    def _native(self, collective: UnitCollective, flat: Tensor, shards: Sequence[Span]) -> None:
        """Run a collective of the back end."""
        group = self._exchange.native[collective.devices]
        if collective.kind == "all-reduce":
            dist.all_reduce(flat, group=group)
            return
        parts = [flat[low:high] for low, high in shards]
        own = parts[collective.devices.index(self._rank)]
        if collective.kind == "all-gather":
            dist.all_gather(parts, own.clone(), group=group)
        else:
            summed = torch.empty_like(own)
            dist.reduce_scatter(summed, parts, group=group)
            own.copy_(summed)

    def _gather(self, collective: UnitCollective, flat: Tensor, shards: Sequence[Span]) -> None:
        """Send the own shard to all others, and receive theirs."""
        parts = [flat[low:high] for low, high in shards]
        own = parts[collective.devices.index(self._rank)]
        self._exchange.exchange(collective.devices, collective.tasks, [own] * len(parts), parts)

    def _scatter(self, collective: UnitCollective, flat: Tensor, shards: Sequence[Span]) -> None:
        """Send each other member its shard, receive its share of the own one, and add them up in the members' order."""
        parts, own = [flat[low:high] for low, high in shards], collective.devices.index(self._rank)
        size, count = len(parts[own]), len(parts)
        if self.received.numel() < (count - 1) * size or self.received.dtype != flat.dtype:
            self.received = flat.new_empty((count - 1) * size)
        arrived = list(self.received[: (count - 1) * size].view(count - 1, size))
        arrived.insert(own, parts[own])
        self._exchange.exchange(collective.devices, collective.tasks, parts, arrived)
        for term in arrived[1:]:
            arrived[0] += term
        if own > 0:
            parts[own].copy_(arrived[0])
