"""Times of messages between the processes, and of all-reduces over them."""

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from executor.communication.connections import Connections, Post, connections_for
from executor.probe.measured_rows import TimeSamples
from executor.rendezvous.all_ranks import of_all_ranks
from executor.runtime.devices import ComputeDevice

MESSAGE_BYTES = (4, 64, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 2**20, 8 * 2**20, 32 * 2**20)
SUM_BYTES = (4, 64 * 1024, 2**20, 8 * 2**20, 32 * 2**20)
_PAIRS = 3
"""Pairs of ranks that are measured of each class, on one machine and on two; a row is the median over them."""
_LONG_BYTES = 4 * 2**20
"""Size from which messages are repeated less often."""
_OVERHEAD_BYTES = (1024, 4 * 2**20)
_AT_ONCE = 4
"""Messages in one sample of processor time, which the system counts in coarse ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """Times of a message one way between two ranks, with no other message on the way."""

    between: bool
    """True for ranks on two machines, False for ranks on one."""
    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRow:
    """Times in which all ranks send to the next rank at once."""

    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRow:
    """Times of the back end's all-reduce over the first ranks."""

    ranks: int
    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRow:
    """Processor time of a rank, over all its threads, while all ranks send to the next rank or all-reduce a buffer."""

    adds: bool
    """True for an all-reduce of a buffer that is copied first, False for a message that is copied before it is sent and
    after it is received."""
    ranks: int
    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLinks:
    """Measurements of all messages between processes."""

    machines: tuple[str, ...]
    """Machine of each rank."""
    messages: tuple[MessageRow, ...] = ()
    rings: tuple[RingRow, ...] = ()
    sums: tuple[SumRow, ...] = ()
    overheads: tuple[OverheadRow, ...] = ()
    """Empty where the processor does not move messages itself."""


def machine() -> str:
    """Return a name that all processes of one host share: the host's name and its network namespace."""
    network = Path("/proc/self/ns/net")
    return f"{socket.gethostname()} {network.readlink() if network.exists() else ''}".strip()


def measure_links(device: ComputeDevice, *, watch: Callable[[], None] = lambda: None) -> MeasuredLinks:
    """Measure all kinds of links; all ranks must call it together.

    Receives are posted before messages are sent, with which gloo is faster.  Messages go back and forth between two
    ranks while the others are silent; a sample is half a round trip.
    """
    ranks = dist.get_world_size()
    machines = of_all_ranks(machine())
    if ranks == 1:
        return MeasuredLinks(machines=tuple(machines))
    messages = []
    for between in (False, True):
        every = combinations(range(ranks), 2)
        pairs = [(a, b) for a, b in every if (machines[a] != machines[b]) == between][:_PAIRS]
        for size in MESSAGE_BYTES if pairs else ():
            watch()
            one_way = tuple(time for pair in pairs for time in _one_way(device, pair, size))
            messages.append(MessageRow(between=between, size_bytes=size, samples=TimeSamples(one_way)))
    connections = connections_for("messages")
    rings = []
    for size in MESSAGE_BYTES[-3:]:
        watch()
        out, into = _buffer(device, size), _buffer(device, size)
        times = _together(device, partial(_to_next, connections, out, into), size)
        rings.append(RingRow(size_bytes=size, samples=_over_ranks(times, max)))
    overheads = _overheads(device, connections, watch) if device.backend == "gloo" else []
    sums = []
    for count in sorted({2**k for k in range(1, ranks.bit_length()) if 2**k <= ranks} | {ranks}):
        group = dist.new_group(list(range(count)))
        for size in SUM_BYTES:
            watch()
            add_up = partial(dist.all_reduce, _buffer(device, size), group=group)
            times = _together(device, add_up if dist.get_rank() < count else lambda: None, size)
            sums.append(SumRow(ranks=count, size_bytes=size, samples=_over_ranks(times, max)))
    return MeasuredLinks(
        machines=tuple(machines),
        messages=tuple(messages),
        rings=tuple(rings),
        sums=tuple(sums),
        overheads=tuple(overheads),
    )


def _repetitions(size_bytes: int) -> int:
    return 5 if size_bytes > _LONG_BYTES else 20


def _buffer(device: ComputeDevice, size_bytes: int) -> torch.Tensor:
    return torch.zeros(size_bytes // 4, device=device.torch_device)


def _one_way(device: ComputeDevice, pair: tuple[int, int], size_bytes: int) -> list[float]:
    """Return, on every rank, half the round trips of a pair as its first rank measures them."""
    rank, times = dist.get_rank(), list[float]()
    dist.barrier()
    if rank in pair:
        other = pair[1 - pair.index(rank)]
        times = _ping(device, other, size_bytes) if rank == pair[0] else _pong(device, other, size_bytes)
    return of_all_ranks(times)[pair[0]]


def _posted(device: ComputeDevice, tensor: torch.Tensor, source: int) -> Callable[[], object]:
    """Post a receive, and return the function that waits for it.

    With NCCL a receive would block messages that are sent after it on the same stream, so the function posts it.
    """

    def received() -> None:
        dist.recv(tensor, source)
        device.synchronize()

    if device.backend == "nccl":
        return received
    work = dist.irecv(tensor, source)
    assert work is not None
    return work.wait


def _ping(device: ComputeDevice, other: int, size_bytes: int) -> list[float]:
    """Send messages and wait for their return; return half the times of the round trips, without the first."""
    there, back = _buffer(device, size_bytes), _buffer(device, size_bytes)
    times = []
    for _ in range(_repetitions(size_bytes) + 1):
        wait = _posted(device, back, other)
        begin = time.perf_counter()
        dist.send(there, other)
        wait()
        times.append((time.perf_counter() - begin) / 2)
    return times[1:]


def _pong(device: ComputeDevice, other: int, size_bytes: int) -> list[float]:
    """Send every message of ``_ping`` back; return no times."""
    there, back = _buffer(device, size_bytes), _buffer(device, size_bytes)
    wait = _posted(device, there, other)
    for number in range(_repetitions(size_bytes) + 1):
        wait()
        if number < _repetitions(size_bytes):
            wait = _posted(device, there, other)
        dist.send(back, other)
    device.synchronize()
    return []


def _to_next(connections: Connections, out: torch.Tensor, into: torch.Tensor) -> None:
    """Send to the next rank of the ring while receiving from the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    connections.send_and_receive([Post(into, (rank - 1) % ranks, 0)], [Post(out, (rank + 1) % ranks, 0)])


def _overheads(device: ComputeDevice, connections: Connections, watch: Callable[[], None]) -> list[OverheadRow]:
    """Return the processor time of messages of two sizes, and of all-reduces of the longer size."""

    def pass_on() -> None:
        out.copy_(tensor)
        _to_next(connections, out, into)
        tensor.copy_(into)

    def add_up() -> None:
        out.copy_(tensor)
        dist.all_reduce(out)

    rows = []
    for size, adds in [*((size, False) for size in _OVERHEAD_BYTES), (_OVERHEAD_BYTES[-1], True)]:
        watch()
        tensor, out, into = (_buffer(device, size) for _ in range(3))
        samples = _over_ranks(_spent(add_up if adds else pass_on, _repetitions(size)), median)
        rows.append(OverheadRow(adds=adds, ranks=dist.get_world_size(), size_bytes=size, samples=samples))
    return rows


def _spent(work: Callable[[], object], repetitions: int) -> list[float]:
    """Return samples of this process's processor time for work that all ranks do at once."""
    times = []
    for _ in range(repetitions + 1):
        dist.barrier()
        begin = time.process_time()
        for _ in range(_AT_ONCE):
            work()
        times.append((time.process_time() - begin) / _AT_ONCE)
    return times[1:]


def _together(device: ComputeDevice, work: Callable[[], object], size_bytes: int) -> list[float]:
    """Return the times of work that all ranks start at once."""
    times = []
    for _ in range(_repetitions(size_bytes) // 2 + 2):
        dist.barrier()
        device.synchronize()
        begin = time.perf_counter()
        work()
        device.synchronize()
        times.append(time.perf_counter() - begin)
    return times[1:]


def _over_ranks(times: list[float], choose: Callable[[Iterable[float]], float]) -> TimeSamples:
    """Return each sample as the slowest rank measured it, or another choice among those of all ranks."""
    return TimeSamples(tuple(choose(row) for row in zip(*of_all_ranks(times), strict=True)))
