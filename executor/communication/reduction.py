"""Sums over replicas: gradients and batch-norm statistics, by the rounds of the program or the back end's own ring.

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
from executor.processes import group_timeout
from executor.program import Chain, RankProgram, Recorder
from executor.runtime import DTYPES
from planner.lowering import PAIR_BYTES, Collective

__all__ = ["Reducer", "total"]


class Reducer:
    """Sums one buffer after another; every rank must make its reducers in the same order.

    Args:
        view: What this rank takes part in.
        recorder: Told when tasks begin and end.
        statistics: What it sums: statistics of normalisations, or gradients.
        device: Where codes arrive.
    """

    def __init__(
        self, view: RankProgram, recorder: Recorder, *, statistics: bool, device: torch.device | str = "cpu"
    ) -> None:
        self._device = device
        self._program, self._rank, self._recorder = view.program, view.rank, recorder
        collectives = [
            collective
            for task, collective in view.program.collectives.items()
            if view.program.statistics[task] == statistics
        ]
        rings = {collective.devices for collective in collectives if collective.round.is_ring}
        pairs = {devices for devices in rings if len(devices) == 2 and dist.get_backend() == "gloo"}
        self._groups = {
            devices: dist.new_group(list(devices), timeout=group_timeout()) for devices in sorted(rings - pairs)
        }
        self._connections: Connections | None = None
        if pairs or not all(collective.round.is_ring for collective in collectives):
            # rounds send point to point beside the messages of the program
            self._connections = connections_for("statistics" if statistics else "gradients")
        self._taken = torch.empty(0)
        if pairs and not statistics:
            self._taken = self._place_of_two()

    def begin(self, chain: Chain, content: Tensor) -> dist.Work | None:
        """Begin a sum that gloo does by threads of its own, which need not wait for this process's Python."""
        if not (chain.native and chain.devices in self._groups and dist.get_backend() == "gloo"):
            return None
        work: dist.Work | None = dist.all_reduce(content, group=self._groups[chain.devices], async_op=True)
        return work

    def sum(self, chain: Chain, content: Tensor) -> None:
        """Sum a flat buffer over the devices of a chain, in place; waits until it is done."""
        if chain.native:
            if chain.devices in self._groups:
                dist.all_reduce(content, group=self._groups[chain.devices])
            else:
                self._sum_pair(content, chain.devices[chain.devices[0] == self._rank], chain.tasks[0])
            return
        for task in chain.tasks:
            self._recorder.start(task)
            self._run(task, self._program.collectives[task], content)
            self._recorder.end(task)

    def pass_codes(self, task: int, codes: Mapping[int, Tensor]) -> dict[int, list[tuple[int, Tensor]]]:
        """Run a round whose messages each carry the codes of one piece of the buffer.

        Args:
            task: The round.
            codes: By piece, what this rank sends.

        Returns:
            By piece, the codes that it takes, with their senders.
        """
        collective = self._program.collectives[task]
        steps, first = collective.round, collective.round.first_piece(0)
        size, tag = round(collective.buffer_bytes * steps.share), self._program.size + task
        arrived: dict[int, list[tuple[int, Tensor]]] = {}
        receives, sends = list[Post](), list[Post]()
        self._recorder.start(task)
        for m in np.flatnonzero((steps.source == self._rank) | (steps.target == self._rank)).tolist():
            source, target, piece = int(steps.source[m]), int(steps.target[m]), int(first[m])
            if target == self._rank:
                arriving = torch.empty(size, dtype=torch.uint8, device=self._device)
                arrived.setdefault(piece, []).append((source, arriving))
                receives.append(Post(arriving, source, tag))
            else:
                sends.append(Post(codes[piece], target, tag))
                self._recorder.sent(task, size)
        self._exchange(receives, sends)
        self._recorder.end(task)
        return arrived

    def close(self) -> None:
        """Give the connections back; all ranks must call it together."""
        for group in self._groups.values():
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def _exchange(self, receives: Sequence[Post], sends: Sequence[Post]) -> None:
        assert self._connections is not None
        self._connections.exchange(receives, sends)

    def _place_of_two(self) -> Tensor:
        """Where what the other of two ranks adds to gradients arrives; as long as is ever needed."""
        program, sizes = self._program, dict[int, float]()
        for task, sums in program.collectives.items():
            if len(sums.devices) == 2 and self._rank in sums.devices and not program.statistics[task]:
                sizes[int(program.layer[task])] = sums.buffer_bytes
        size = math.ceil(min(sum(sizes.values()), PAIR_BYTES) / program.graph.element_bytes / 2)
        return torch.empty(size, dtype=DTYPES[program.graph.element_bytes])

    def _sum_pair(self, content: Tensor, peer: int, tag: int) -> None:
        """Sum half of a buffer for both, and leave the other half to the peer, some of it at a time."""
        most = PAIR_BYTES // content.element_size()
        size = -(-min(content.numel(), most) // 2)
        if self._taken.numel() < size or self._taken.dtype != content.dtype:
            self._taken = torch.empty(size, dtype=content.dtype)
        for part in content.split(most):
            lower, upper = part.tensor_split(2)
            mine, theirs = (lower, upper) if self._rank < peer else (upper, lower)
            taken = self._taken[: mine.numel()]
            assert self._connections is not None
            send, receive = self._connections.send, self._connections.receive
            # what comes back is expected from the start, so that it does not wait for notice of that
            arrival, result = _begun(receive, taken, peer, tag), _begun(receive, theirs, peer, tag)
            first = _begun(send, theirs, peer, tag)
            arrival()
            mine += taken
            second = _begun(send, mine, peer, tag)
            for wait in (result, first, second):
                wait()

    def _run(self, task: int, collective: Collective, content: Tensor) -> None:
        """The messages of one round that this rank sends or takes, repeat by repeat."""
        steps = collective.round
        bounds = np.arange(steps.pieces + 1) * content.numel() // steps.pieces
        mine = np.flatnonzero((steps.source == self._rank) | (steps.target == self._rank))
        for repeat in range(steps.repeats):
            first = steps.first_piece(repeat)
            receives, sends = list[Post](), list[Post]()
            taken: dict[tuple[int, int], list[tuple[int, Tensor]]] = {}
            for m in mine.tolist():
                piece = slice(int(bounds[first[m]]), int(bounds[first[m] + steps.width]))
                if piece.start == piece.stop:  # fewer numbers than pieces
                    continue
                tag = self._program.size + task
                if steps.target[m] == self._rank:
                    source, arriving = int(steps.source[m]), torch.empty_like(content[piece])
                    own = [(self._rank, content[piece])] if repeat < steps.adds[m] else []
                    taken.setdefault((piece.start, piece.stop), own).append((source, arriving))
                    receives.append(Post(arriving, source, tag))
                else:
                    sends.append(Post(content[piece], int(steps.target[m]), tag))
                    self._recorder.sent(task, content[piece].numel() * content.element_size())
            self._exchange(receives, sends)
            for (low, high), terms in taken.items():
                content[low:high] = total(terms)


def _begun(begin: Callable[[Post], dist.Work], tensor: Tensor, peer: int, tag: int) -> Callable[[], object]:
    """Begin to send or to take a tensor; nothing where it is empty.  Returns what waits for its end."""
    return begin(Post(tensor, peer, tag)).wait if tensor.numel() else bool


def total(terms: Sequence[tuple[int, Tensor]]) -> Tensor:
    """Sum in the order of the ranks, so that all replicas get the same to the last bit."""
    tensors = [tensor for _, tensor in sorted(terms, key=lambda term: term[0])]
    result = tensors[0] if len(tensors) == 1 else tensors[0] + tensors[1]
    for tensor in tensors[2:]:
        result += tensor
    return result
