"""Sums over replicas, of gradients and batch-norm statistics: by the program's rounds or by the back end's own ring.

Over gloo two ranks sum by messages: its own ring would send both ways over one connection
(``executor.communication.connections``).
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from executor.communication.connections import Connections, Post, connections_for
from executor.program.buckets import Reduction
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import torch_type
from executor.supervision.rank_work import group_timeout
from planner.graph.type_roles import TYPE_BYTES
from planner.lowering.program import Collective
from planner.memory.cpu_backend import PAIR_BYTES


class Reducer:
    """Sums one buffer after another; every rank must make its reducers in the same order.

    Args:
        view: Reductions that this rank takes part in.
        recorder: Records the start and end of tasks.
        statistics: Whether it sums statistics of normalisations; else gradients.
        device: The device on which compressed messages arrive.
    """

    def __init__(
        self, view: RankProgram, recorder: Recorder, *, statistics: bool, device: torch.device | str = "cpu"
    ) -> None:
        self._device = device
        self._program, self._rank, self._recorder = view.program, view.rank, recorder
        sums = view.program.statistics if statistics else view.program.syncs_gradients
        collectives = [collective for task, collective in view.program.collectives.items() if sums[task]]
        rings = {collective.devices for collective in collectives if collective.round.is_ring}
        pairs = {devices for devices in rings if len(devices) == 2 and dist.get_backend() == "gloo"}
        self._groups = {
            devices: dist.new_group(list(devices), timeout=group_timeout()) for devices in sorted(rings - pairs)
        }
        self._connections: Connections | None = None
        if pairs or not all(collective.round.is_ring for collective in collectives):
            # rounds send point to point while the program's own messages travel
            self._connections = connections_for("statistics" if statistics else "gradients")
        self._pair_buffer = torch.empty(0)
        if pairs and not statistics:
            self._pair_buffer = self._largest_pair_buffer()

    def begin(self, reduction: Reduction, content: Tensor) -> dist.Work | None:
        """Begin a reduction that gloo runs in its own threads, which need not wait for this process's Python.

        Returns:
            The work to wait for; None where ``sum`` has to run the reduction.
        """
        if not (reduction.native and reduction.devices in self._groups and dist.get_backend() == "gloo"):
            return None
        work: dist.Work | None = dist.all_reduce(content, group=self._groups[reduction.devices], async_op=True)
        return work

    def sum(self, reduction: Reduction, content: Tensor) -> None:
        """Sum a flat buffer over the devices of a reduction, in place; returns when it is done."""
        if reduction.native:
            if reduction.devices in self._groups:
                dist.all_reduce(content, group=self._groups[reduction.devices])
            else:
                peer = reduction.devices[reduction.devices[0] == self._rank]
                self._sum_pair(content, peer, reduction.tasks[0])
            return
        for task in reduction.tasks:
            self._recorder.start(task)
            self._run(task, self._program.collectives[task], content)
            self._recorder.end(task)

    def pass_compressed(self, task: int, chunks: Mapping[int, Tensor]) -> dict[int, list[tuple[int, Tensor]]]:
        """Run a round whose messages each carry one compressed chunk of the buffer.

        Returns:
            Compressed chunks that this rank receives, with their senders, by index.
        """
        collective = self._program.collectives[task]
        steps, first = collective.round, collective.round.first_chunk(0)
        size, tag = round(collective.buffer_bytes * steps.share), self._program.size + task
        arrived: dict[int, list[tuple[int, Tensor]]] = {}
        receives, sends = list[Post](), list[Post]()
        self._recorder.start(task)
        for m in np.flatnonzero((steps.source == self._rank) | (steps.target == self._rank)).tolist():
            source, target, chunk = int(steps.source[m]), int(steps.target[m]), int(first[m])
            if target == self._rank:
                arriving = torch.empty(size, dtype=torch.uint8, device=self._device)
                arrived.setdefault(chunk, []).append((source, arriving))
                receives.append(Post(arriving, source, tag))
            else:
                sends.append(Post(chunks[chunk], target, tag))
                self._recorder.sent(task, size)
        self._send_and_receive(receives, sends)
        self._recorder.end(task)
        return arrived

    def close(self) -> None:
        """Close the process groups; all ranks must call it together."""
        for group in self._groups.values():
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def _send_and_receive(self, receives: Sequence[Post], sends: Sequence[Post]) -> None:
        assert self._connections is not None
        self._connections.send_and_receive(receives, sends)

    def _largest_pair_buffer(self) -> Tensor:
        """Return a buffer for the other rank's gradients, as long as any reduction of two ranks needs."""
        program, sizes = self._program, dict[int, float]()
        for task, collective in program.collectives.items():
            if len(collective.devices) == 2 and self._rank in collective.devices and program.syncs_gradients[task]:
                sizes[int(program.layer[task])] = collective.buffer_bytes
        size = math.ceil(min(sum(sizes.values()), PAIR_BYTES) / TYPE_BYTES[program.types.message] / 2)
        return torch.empty(size, dtype=torch_type(program.types.message))

    def _sum_pair(self, content: Tensor, peer: int, tag: int) -> None:
        """Sum a buffer over two ranks, up to ``PAIR_BYTES`` at a time, of which each rank sums one half for both.

        The rank with the lower number, for one chunk::

            lower half                              upper half
            receive the peer's elements             send to the peer
            add them to the own elements            (the peer adds)
            send the sum                            receive the sum
        """
        most = PAIR_BYTES // content.element_size()
        size = -(-min(content.numel(), most) // 2)
        if self._pair_buffer.numel() < size or self._pair_buffer.dtype != content.dtype:
            self._pair_buffer = torch.empty(size, dtype=content.dtype)
        for chunk in content.split(most):
            lower, upper = chunk.tensor_split(2)
            mine, theirs = (lower, upper) if self._rank < peer else (upper, lower)
            received = self._pair_buffer[: mine.numel()]
            assert self._connections is not None
            send, receive = self._connections.send, self._connections.receive
            # the receive of the sum is posted at the start, so that its sender need not wait for the notice of it
            arrival, result = _begun(receive, received, peer, tag), _begun(receive, theirs, peer, tag)
            first = _begun(send, theirs, peer, tag)
            arrival()
            mine += received
            second = _begun(send, mine, peer, tag)
            for wait in (result, first, second):
                wait()

    def _run(self, task: int, collective: Collective, content: Tensor) -> None:
        """Send and receive this rank's messages of one round, repeat by repeat, and add what it receives.

        A message carries ``width`` chunks of the buffer.  In the reducing repeats of a round the receiver adds its
        own chunk to those that it receives, in the order of the ranks; in the others it overwrites its own.
        """
        steps = collective.round
        bounds = np.arange(steps.chunks + 1) * content.numel() // steps.chunks
        mine = np.flatnonzero((steps.source == self._rank) | (steps.target == self._rank))
        for repeat in range(steps.repeats):
            first = steps.first_chunk(repeat)
            receives, sends = list[Post](), list[Post]()
            received: dict[tuple[int, int], list[tuple[int, Tensor]]] = {}
            for m in mine.tolist():
                chunk = slice(int(bounds[first[m]]), int(bounds[first[m] + steps.width]))
                if chunk.start == chunk.stop:  # fewer elements than chunks
                    continue
                tag = self._program.size + task
                if steps.target[m] == self._rank:
                    source, arriving = int(steps.source[m]), torch.empty_like(content[chunk])
                    own = [(self._rank, content[chunk])] if repeat < steps.adds[m] else []
                    received.setdefault((chunk.start, chunk.stop), own).append((source, arriving))
                    receives.append(Post(arriving, source, tag))
                else:
                    sends.append(Post(content[chunk], int(steps.target[m]), tag))
                    self._recorder.sent(task, content[chunk].numel() * content.element_size())
            self._send_and_receive(receives, sends)
            for (low, high), terms in received.items():
                content[low:high] = sum_in_rank_order(terms)


def _begun(begin: Callable[[Post], dist.Work], tensor: Tensor, peer: int, tag: int) -> Callable[[], object]:
    """Begin to send or to receive a tensor, unless it is empty; return the function that waits for its end."""
    return begin(Post(tensor, peer, tag)).wait if tensor.numel() else bool


def sum_in_rank_order(terms: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Return the sum of (rank, tensor) pairs in the order of the ranks: equal to the last bit on all replicas."""
    tensors = [tensor for _, tensor in sorted(terms, key=lambda term: term[0])]
    result = tensors[0] if len(tensors) == 1 else tensors[0] + tensors[1]
    for tensor in tensors[2:]:
        result += tensor
    return result
