"""Messages between ranks: regions of tensors, sent as soon as they exist.

On processors every receive is posted an iteration ahead, so that nothing that is sent waits for its notice.  On GPUs
all ranks send and receive phase by phase, in one order, since NCCL matches messages by their order.
"""

import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from typing_extensions import override

from executor.communication.connections import Connections, Post, connections_for
from executor.program import Message, RankProgram, Recorder
from executor.runtime import ComputeDevice, Handle

__all__ = ["GlooTransport", "NcclTransport", "Transport", "transport_of"]


class Transport(ABC):
    """How one rank sends and receives the messages of its program."""

    @property
    def buffers(self) -> list[Tensor]:
        """Where messages arrive, as far as these are always there."""
        return []

    @abstractmethod
    def exchange(self, outgoing: Sequence[tuple[Message, Tensor]], incoming: Sequence[Message]) -> None:
        """Send the messages of one phase, and get ready for those that the others send in it; does not wait."""

    @abstractmethod
    def take(self, message: Message) -> Tensor:
        """The content of a message, flat, once it has arrived.

        Raises:
            TimeoutError: It does not arrive in time.
            RuntimeError: The connection broke.
        """

    @abstractmethod
    def release(self, message: Message) -> None:
        """The content has been read: its buffer may take the next iteration's."""

    @abstractmethod
    def end_iteration(self) -> None:
        """Wait until everything sent has left."""

    @abstractmethod
    def close(self) -> None:
        """End what runs beside."""


def _buffer(message: Message, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Where a message arrives: its numbers, or its codes."""
    if message.kind is None:
        return torch.empty(message.elements, dtype=dtype, device=device)
    return torch.empty(sum(message.sizes), dtype=torch.uint8, device=device)


@dataclass
class _Arrival:
    """Where one message of every iteration arrives."""

    message: Message
    buffer: Tensor
    connections: Connections
    posted: "queue.SimpleQueue[dist.Work]" = field(default_factory=queue.SimpleQueue)
    arrived: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    left: int = 0
    """Iterations for which it is still to be posted."""

    def post(self) -> None:
        if self.left > 0:
            self.left -= 1
            post = Post(self.buffer, self.message.source, self.message.tasks[0])
            self.posted.put(self.connections.receive(post))


class GlooTransport(Transport):
    """Messages over gloo.

    Args:
        view: What this rank sends and receives.
        iterations: How often.
        dtype: Of the tensors.
        recorder: Told when transfers begin and end.
        timeout_s: How long a message may keep its reader waiting.
    """

    def __init__(
        self, view: RankProgram, *, iterations: int, dtype: torch.dtype, recorder: Recorder, timeout_s: float
    ) -> None:
        self._recorder, self._timeout_s = recorder, timeout_s
        self._sending: deque[tuple[dist.Work, Tensor]] = deque()
        self._posted: queue.SimpleQueue[dist.Work | threading.Event | None] = queue.SimpleQueue()
        self._sent, self._forgotten = 0, 0  # how many have left, and of how many the content is gone
        self._error: BaseException | None = None
        threading.Thread(target=self._watch_sent, name="sent", daemon=True).start()
        self._connections = connections_for("messages")
        self._arrivals: dict[Message, _Arrival] = {}
        peers: dict[int, list[_Arrival]] = {}
        for phase in sorted(view.incoming):
            for message in view.incoming[phase]:
                arrival = _Arrival(message, _buffer(message, dtype, "cpu"), self._connections, left=iterations)
                self._arrivals[message] = arrival
                peers.setdefault(message.source, []).append(arrival)
                arrival.post()
        for peer, arrivals in peers.items():
            # messages of one rank come over one connection, in the order in which it sends them
            threading.Thread(target=self._watch, args=(arrivals, iterations), name=f"from-{peer}", daemon=True).start()

    @property
    @override
    def buffers(self) -> list[Tensor]:
        return [arrival.buffer for arrival in self._arrivals.values()]

    def _watch(self, arrivals: Sequence[_Arrival], iterations: int) -> None:
        for iteration in range(iterations):
            for arrival in arrivals:
                try:
                    arrival.posted.get().wait()
                except Exception as error:  # handed to whoever waits
                    arrival.error = error
                    arrival.arrived.set()
                    return
                for task in arrival.message.tasks:
                    self._recorder.end(task, iteration=iteration)
                arrival.arrived.set()

    def _watch_sent(self) -> None:
        """Count what has left, so that its memory does not wait for the end of the iteration."""
        while (work := self._posted.get()) is not None:
            if isinstance(work, threading.Event):
                work.set()
                continue
            try:
                work.wait()
            except Exception as error:  # handed to whoever waits
                self._error = error
            del work  # the rank's own thread frees the content
            self._sent += 1

    def _forget(self) -> None:
        while self._forgotten < self._sent:
            self._sending.popleft()
            self._forgotten += 1

    @override
    def exchange(self, outgoing: Sequence[tuple[Message, Tensor]], incoming: Sequence[Message]) -> None:
        self._forget()
        for message, content in outgoing:
            for task, size in zip(message.tasks, message.sizes, strict=True):
                self._recorder.start(task)
                self._recorder.sent(task, size)
            work = self._connections.send(Post(content, message.target, message.tasks[0]))
            self._sending.append((work, content))
            self._posted.put(work)

    @override
    def take(self, message: Message) -> Tensor:
        arrival = self._arrivals[message]
        if not arrival.arrived.wait(self._timeout_s):
            raise TimeoutError(f"rank {message.source} sent nothing within {self._timeout_s:g} s")
        if arrival.error is not None:
            raise RuntimeError(f"connection to rank {message.source} broke: {arrival.error}") from arrival.error
        return arrival.buffer

    @override
    def release(self, message: Message) -> None:
        arrival = self._arrivals[message]
        arrival.arrived.clear()
        arrival.post()

    @override
    def end_iteration(self) -> None:
        if not self._sending:
            return
        self._posted.put(left := threading.Event())
        if not left.wait(self._timeout_s):
            raise TimeoutError(f"a message was not taken within {self._timeout_s:g} s")
        if self._error is not None:
            raise RuntimeError(f"a connection broke: {self._error}") from self._error
        self._forget()

    @override
    def close(self) -> None:
        self._posted.put(None)


class NcclTransport(Transport):
    """Messages over NCCL, on a stream of their own; arguments as for ``GlooTransport``."""

    def __init__(self, view: RankProgram, *, device: ComputeDevice, dtype: torch.dtype, recorder: Recorder) -> None:
        self._device, self._recorder, self._dtype = device, recorder, dtype
        self._lane = device.lane("messages")
        self._arrived: dict[Message, tuple[Handle, Tensor]] = {}

    @override
    def exchange(self, outgoing: Sequence[tuple[Message, Tensor]], incoming: Sequence[Message]) -> None:
        buffers = [_buffer(message, self._dtype, self._device.torch_device) for message in incoming]

        def work() -> None:
            sends = [dist.P2POp(dist.isend, content, message.target) for message, content in outgoing]
            receives = [
                dist.P2POp(dist.irecv, buffer, message.source)
                for message, buffer in zip(incoming, buffers, strict=True)
            ]
            for message, _ in outgoing:
                for task, size in zip(message.tasks, message.sizes, strict=True):
                    self._recorder.start(task)
                    self._recorder.sent(task, size)
            for request in dist.batch_isend_irecv([*receives, *sends]):
                request.wait()
            for message in incoming:
                for task in message.tasks:
                    self._recorder.end(task)

        handle = self._lane.submit(work)
        for _, content in outgoing:
            self._lane.keep(content)
        for message, buffer in zip(incoming, buffers, strict=True):
            self._arrived[message] = (handle, buffer)

    @override
    def take(self, message: Message) -> Tensor:
        handle, buffer = self._arrived[message]
        handle.wait(0.0)
        return buffer

    @override
    def release(self, message: Message) -> None:
        del self._arrived[message]

    @override
    def end_iteration(self) -> None:
        pass  # the streams keep the order

    @override
    def close(self) -> None:
        self._lane.close()


def transport_of(
    view: RankProgram,
    device: ComputeDevice,
    *,
    iterations: int,
    dtype: torch.dtype,
    recorder: Recorder,
    timeout_s: float,
) -> Transport:
    """The transport of a rank's device; arguments as for ``GlooTransport``."""
    if device.backend == "nccl":
        return NcclTransport(view, device=device, dtype=dtype, recorder=recorder)
    return GlooTransport(view, iterations=iterations, dtype=dtype, recorder=recorder, timeout_s=timeout_s)
