"""Point-to-point messages of tensors, over gloo on one connection for each direction.

A rank of gloo that sends holds the lock of the connection while it writes.  What arrives on the same connection
meanwhile wakes gloo's own thread, which tries to take that lock again and again, and keeps the processor from the
sender that holds it for as long as a time slice of the system.  Where two ranks sent to each other over one
connection, a quarter of all pairs of messages took more than 4 ms by that, and 2.4 ms in the mean, instead of 0.3 ms
(64 kB, two busy ranks on two cores).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch.distributed as dist
from torch import Tensor

from executor.supervision.rank_work import group_timeout


class Post(NamedTuple):
    """A message to send or to receive."""

    content: Tensor
    """The content that is sent, or the buffer in which the message arrives."""
    peer: int
    """The rank at the other end."""
    tag: int


class Connections:
    """Connections between all ranks; every rank must make them together."""

    def __init__(self) -> None:
        up, self._separate = dist.new_group(timeout=group_timeout()), dist.get_backend() == "gloo"
        down = dist.new_group(timeout=group_timeout()) if self._separate else up
        self._rank, self._groups = dist.get_rank(), (up, down)

    def send(self, post: Post) -> dist.Work:
        """Begin to send a message."""
        work = dist.isend(post.content, post.peer, self._groups[post.peer < self._rank], post.tag)
        assert work is not None
        return work

    def receive(self, post: Post) -> dist.Work:
        """Begin to receive a message."""
        work = dist.irecv(post.content, post.peer, self._groups[self._rank < post.peer], post.tag)
        assert work is not None
        return work

    def send_and_receive(self, receives: Sequence[Post], sends: Sequence[Post]) -> None:
        """Send and receive messages, and wait until all have left and arrived."""
        if self._separate:
            # receives first: a sender waits for the notice that its message is expected
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
    """Return the connections that all messages of a purpose share as long as the default process group is open.

    All ranks must call this together, at least the first time.  New connections take tens of milliseconds.
    """
    return _cached(dist.group.WORLD, purpose)


@lru_cache(maxsize=16)
def _cached(_world: dist.ProcessGroup, _purpose: str) -> Connections:
    return Connections()
