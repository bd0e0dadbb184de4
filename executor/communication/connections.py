"""Messages of tensors between ranks, over gloo on a connection of its own for each direction.

A rank of gloo that sends holds the lock of the connection while it writes; what arrives on the same connection
meanwhile wakes gloo's own thread, which asks for that lock again and again and takes the processor from the sender
that holds it, for as long as a time slice of the system.  Where two ranks send to each other, a quarter of all
exchanges took more than 4 ms by that, and 2.4 ms in the mean, instead of 0.3 (64 kB, two busy ranks on two cores).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor

from executor.processes import group_timeout

__all__ = ["Connections", "Post", "connections_for"]


class Post(NamedTuple):
    """A message that is to be sent or to be taken."""

    content: Tensor
    """What is sent, or where it arrives."""
    peer: int
    """The rank at its other end."""
    tag: int


class Connections:
    """Connections between all ranks; every rank must make them together."""

    def __init__(self) -> None:
        up, self._apart = dist.new_group(timeout=group_timeout()), dist.get_backend() == "gloo"
        down = dist.new_group(timeout=group_timeout()) if self._apart else up
        self._rank, self._groups = dist.get_rank(), (up, down)

    def send(self, post: Post) -> dist.Work:
        """Begin to send a message."""
        work = dist.isend(post.content, post.peer, self._groups[post.peer < self._rank], post.tag)
        assert work is not None
        return work

    def receive(self, post: Post) -> dist.Work:
        """Begin to expect a message."""
        work = dist.irecv(post.content, post.peer, self._groups[self._rank < post.peer], post.tag)
        assert work is not None
        return work

    def exchange(self, receives: Sequence[Post], sends: Sequence[Post]) -> None:
        """Send and take messages, and wait until all have left and arrived."""
        if self._apart:
            # receives first: what is sent waits for notice of them
            work = [*map(self.receive, receives), *map(self.send, sends)]
        else:
            kinds = ((dist.irecv, receives), (dist.isend, sends))
            posts = [
                dist.P2POp(operation, post.content, post.peer, self._groups[0], post.tag)
                for operation, rows in kinds
                for post in rows
            ]
            work = dist.batch_isend_irecv(posts) if posts else []
        for one in work:
            one.wait()


def connections_for(purpose: str) -> Connections:
    """The connections that all messages of a purpose use, one after another, as long as the default group is open.

    Every rank must ask for them together, at least the first time.  To make them takes tens of milliseconds.
    """
    return _made(dist.group.WORLD, purpose)


@lru_cache(maxsize=16)
def _made(_world: dist.ProcessGroup, _purpose: str) -> Connections:
    return Connections()
