"""Messages between ranks: regions of tensors, sent as soon as they exist.

On processors every receive is posted an iteration ahead, so that no sender waits for the notice that its message is
expected.  On GPUs all ranks send and receive phase by phase, in one order, since NCCL matches messages by their order.
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
from executor.program.messages import Message
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, Handle


class Transport(ABC):
    """The means by which one rank sends and receives the messages of its program."""

    @property
    def buffers(self) -> list[Tensor]:
        """Buffers in which messages arrive, as far as they are allocated once."""
        return []

    @abstractmethod
    def start_phase(self, outgoing: Sequence[tuple[Message, Tensor]], incoming: Sequence[Message]) -> None:
        """Begin to send the messages of one phase and to receive those that other ranks send in it; do not wait."""

    @abstractmethod
    def receive(self, message: Message) -> Tensor:
        """Return the flat content of a message once it has arrived.

        Raises:
            TimeoutError: It does not arrive in time.
            RuntimeError: The connection broke.
        """

    @abstractmethod
    def release(self, message: Message) -> None:
        """Free the buffer of a message that has been read for the next iteration's message."""

    @abstractmethod
    def end_iteration(self) -> None:
        """Wait until all messages of the iteration have left."""

    @abstractmethod
    def close(self) -> None:
        """End threads and streams."""


def _buffer(message: Message, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return a buffer for a message: for its elements, or for its compressed regions."""
    if message.kind is None:
        return torch.empty(message.elements, dtype=dtype, device=device)
    return torch.empty(sum(message.sizes), dtype=torch.uint8, device=device)


@dataclass
class _Receive:
    """The receive of one message in every iteration."""

    message: Message
    buffer: Tensor
    connections: Connections
    posted: "queue.SimpleQueue[dist.Work]" = field(default_factory=queue.SimpleQueue)
    arrived: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    left: int = 0
    """Number of iterations for which the receive is still to be posted."""

    def post(self) -> None:
        """Post the receive of the next iteration, if there is one."""
        if self.left > 0:
            self.left -= 1
            post = Post(self.buffer, self.message.source, self.message.tasks[0])
            self.posted.put(self.connections.receive(post))


class GlooTransport(Transport):
    """Messages over gloo."""

    def __init__(
        self, view: RankProgram, *, iterations: int, dtype: torch.dtype, recorder: Recorder, timeout_s: float
    ) -> None:
        self._recorder, self._timeout_s = recorder, timeout_s
        self._sending: deque[tuple[dist.Work, Tensor]] = deque()
        self._posted: queue.SimpleQueue[dist.Work | threading.Event | None] = queue.SimpleQueue()
        self._sent, self._released = 0, 0  # messages that have left, and those whose content is released
        self._error: BaseException | None = None
        threading.Thread(target=self._watch_sent, name="sent", daemon=True).start()
        self._connections = connections_for("messages")
        self._receives: dict[Message, _Receive] = {}
        peers: dict[int, list[_Receive]] = {}
        for message in view.messages.received:
            receive = _Receive(message, _buffer(message, dtype, "cpu"), self._connections, left=iterations)
            self._receives[message] = receive
            peers.setdefault(message.source, []).append(receive)
            receive.post()
        for peer, receives in peers.items():
            # messages of one rank come over one connection, in the order in which it sends them
            threading.Thread(target=self._watch, args=(receives, iterations), name=f"from-{peer}", daemon=True).start()

    @property
    @override
    def buffers(self) -> list[Tensor]:
        return [receive.buffer for receive in self._receives.values()]

    def _watch(self, receives: Sequence[_Receive], iterations: int) -> None:
        """Wait for the messages of one peer, record their ends and wake their readers."""
        for iteration in range(iterations):
            for receive in receives:
                try:
                    receive.posted.get().wait()
                except Exception as error:  # raised in the thread that waits for the message
                    receive.error = error
                    receive.arrived.set()
                    return
                for task in receive.message.tasks:
                    self._recorder.end(task, iteration=iteration)
                receive.arrived.set()

    def _watch_sent(self) -> None:
        """Count messages that have left, so that their memory is released before the end of the iteration."""
        while (work := self._posted.get()) is not None:
            if isinstance(work, threading.Event):
                work.set()
                continue
            try:
                work.wait()
            except Exception as error:  # raised at the end of the iteration
                self._error = error
            del work  # the rank's own thread releases the content
            self._sent += 1

    def _release_sent(self) -> None:
        """Release the content of messages that have left."""
        while self._released < self._sent:
            self._sending.popleft()
            self._released += 1

    @override
    def start_phase(self, outgoing: Sequence[tuple[Message, Tensor]], incoming: Sequence[Message]) -> None:
        """Post the sends of one phase; its receives were posted when the ones before were released."""
        self._release_sent()
        for message, content in outgoing:
            for task, size in zip(message.tasks, message.sizes, strict=True):
                self._recorder.start(task)
                self._recorder.sent(task, size)
            work = self._connections.send(Post(content, message.target, message.tasks[0]))
            self._sending.append((work, content))
            self._posted.put(work)

    @override
    def receive(self, message: Message) -> Tensor:
        """Wait until a message has arrived, and return its buffer."""
        receive = self._receives[message]
        if not receive.arrived.wait(self._timeout_s):
            raise TimeoutError(f"rank {message.source} sent nothing within {self._timeout_s:g} s")
        if receive.error is not None:
            raise RuntimeError(f"connection to rank {message.source} broke: {receive.error}") from receive.error
        return receive.buffer

    @override
    def release(self, message: Message) -> None:
        """Post the receive of the same message of the next iteration."""
        receive = self._receives[message]
        receive.arrived.clear()
        receive.post()

    @override
    def end_iteration(self) -> None:
        """Wait until all messages of the iteration have left; raise where one has not in time."""
        if not self._sending:
            return
        self._posted.put(left := threading.Event())
        if not left.wait(self._timeout_s):
            raise TimeoutError(f"a message was not received within {self._timeout_s:g} s")
        if self._error is not None:
            raise RuntimeError(f"a connection broke: {self._error}") from self._error
        self._release_sent()

    @override
    def close(self) -> None:
        """End the thread that waits for sends."""
        self._posted.put(None)


class NcclTransport(Transport):
    """Messages over NCCL on a stream of their own; arguments as for ``GlooTransport``."""

    def __init__(self, view: RankProgram, *, device: ComputeDevice, dtype: torch.dtype, recorder: Recorder) -> None:
        self._device, self._recorder, self._dtype = device, recorder, dtype
        self._lane = device.lane("messages")
        self._arrived: dict[Message, tuple[Handle, Tensor]] = {}

    @override
    def start_phase(self, outgoing: Sequence[tuple[Message, Tensor]], incoming: Sequence[Message]) -> None:
        """Queue the sends and receives of one phase, as one batch, on the stream of messages."""
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
    def receive(self, message: Message) -> Tensor:
        """Let the current stream wait for a message, and return its buffer."""
        handle, buffer = self._arrived[message]
        handle.wait(0.0)
        return buffer

    @override
    def release(self, message: Message) -> None:
        """Forget a message that was taken in."""
        del self._arrived[message]

    @override
    def end_iteration(self) -> None:
        """Wait for nothing: the streams run in order."""

    @override
    def close(self) -> None:
        """End the stream of messages."""
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
    """Return the transport of a rank's device; arguments as for ``GlooTransport``."""
    if device.backend == "nccl":
        return NcclTransport(view, device=device, dtype=dtype, recorder=recorder)
    return GlooTransport(view, iterations=iterations, dtype=dtype, recorder=recorder, timeout_s=timeout_s)
