"""Collectives among groups of ranks, as every rank of a group begins them in one order.

Over NCCL they are those of the back end.  Over gloo every rank sends to each other one what that needs: as many bytes
as round a ring, of unequal parts too, which gloo's own collectives do not take; and sums add up in the order of the
ranks, so that devices which compute the same have the same to the last bit.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from executor.communication.connections import Post, connections_for
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice
from executor.supervision.rank_work import group_timeout


class GroupExchange:
    """Messages between all members of a group; every rank must make its exchanges in the same order."""

    def __init__(
        self,
        view: RankProgram,
        device: ComputeDevice,
        recorder: Recorder,
        purpose: str,
        groups: Iterable[tuple[int, ...]],
    ) -> None:
        self._rank, self._program, self._recorder, self._device = view.rank, view.program, recorder, device
        members = sorted(set(groups))
        self.native = self._groups_of(members)
        """Process group of each set of devices, where the back end runs collectives of all parts; else empty."""
        self._connections = connections_for(purpose) if members and not self.native else None

    def _groups_of(self, devices: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], Any]:
        if self._device.backend != "nccl":
            return {}
        return {members: dist.new_group(list(members), timeout=group_timeout()) for members in devices}

    def exchange(
        self, devices: Sequence[int], tasks: Sequence[int], outgoing: Sequence[Tensor], incoming: Sequence[Tensor]
    ) -> None:
        """Send a tensor to each other member, and receive one of each.

        Args:
            devices: Members of the group.
            tasks: Tasks of the program that this is a part of.
            outgoing: Tensors to send, by member; that of the rank itself is not read.
            incoming: Tensors to receive, by member; that of the rank itself is not written.
        """
        others = [i for i, device in enumerate(devices) if device != self._rank]
        tag = self._program.size + tasks[0]
        receives, sends = (
            [Post(tensors[i], devices[i], tag) for i in others if tensors[i].numel()]
            for tensors in (incoming, outgoing)
        )
        assert self._connections is not None, "ranks over gloo have connections for their collectives"
        self._connections.send_and_receive(receives, sends)
        sent = sum(outgoing[i].numel() * outgoing[i].element_size() for i in others)
        sizes = self._program.size_bytes[list(tasks)]
        for task, share in zip(tasks, (sizes / sizes.sum()).tolist(), strict=True):
            self._recorder.sent(task, sent * share)

    def close(self) -> None:
        """Close the process groups; all ranks must call it together."""
        for group in self.native.values():
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)
