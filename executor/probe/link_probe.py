"""Times of messages between the processes, and of sums over them."""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from executor.communication import Connections, Post, connections_for
from executor.probe.measured_rows import TimeSamples
from executor.runtime import ComputeDevice

__all__ = [
    "MESSAGE_BYTES",
    "SUM_BYTES",
    "MeasuredLinks",
    "MessageRow",
    "OverheadRow",
    "RingRow",
    "SumRow",
    "machine",
    "measure_links",
]

MESSAGE_BYTES = (4, 64, 1024, 8 * 1024, 64 * 1024, 256 * 1024, 2**20, 8 * 2**20, 32 * 2**20)
SUM_BYTES = (4, 64 * 1024, 2**20, 8 * 2**20, 32 * 2**20)
_PAIRS = 3
"""Of each class; a row is the median over them."""
_LONG_BYTES = 4 * 2**20
_OVERHEAD_BYTES = (1024, 4 * 2**20)
_AT_ONCE = 4
"""Exchanges of a sample of what processors spend, which they count in ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """One way between two ranks, nothing else on the way."""

    between: bool
    """Ranks on two machines; else on one."""
    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRow:
    """All ranks send to the next at the same time."""

    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRow:
    """The back end's all-reduce over the first ranks."""

    ranks: int
    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRow:
    """What a rank's processor spends, all its threads together, while all ranks send to the next or sum a buffer."""

    adds: bool
    """It sums a buffer that it copies together; else it copies a message together, and out of where one arrives."""
    ranks: int
    size_bytes: int
    samples: TimeSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLinks:
    """Everything measured between processes."""

    machines: tuple[str, ...]
    """By rank."""
    messages: tuple[MessageRow, ...] = ()
    rings: tuple[RingRow, ...] = ()
    sums: tuple[SumRow, ...] = ()
    overheads: tuple[OverheadRow, ...] = ()
    """Where the processor moves messages itself."""


def machine() -> str:
    """What processes of one host have in common: its name, and the network that it is in."""
    network = Path("/proc/self/ns/net")
    return f"{socket.gethostname()} {network.readlink() if network.exists() else ''}".strip()


def measure_links(device: ComputeDevice, *, watch: Callable[[], None] = lambda: None) -> MeasuredLinks:
    """Measure all kinds of links; all ranks must call it together.

    Receives are posted before anything is sent, which gloo rewards.  Messages go back and forth between two ranks
    while the others are silent; a sample is half a round trip.

    Args:
        device: Of this rank.
        watch: Called as each size begins.
    """
    ranks = dist.get_world_size()
    machines = [""] * ranks
    dist.all_gather_object(machines, machine())
    if ranks == 1:
        return MeasuredLinks(machines=tuple(machines))
    messages = []
    for between in (False, True):
        pairs = _pairs(machines, between=between)
        for size in MESSAGE_BYTES if pairs else ():
            watch()
            found = [_one_way(device, pair, size) for pair in pairs]
            messages.append(MessageRow(between=between, size_bytes=size, samples=_joined(found)))
    connections = connections_for("messages")
    rings = []
    for size in MESSAGE_BYTES[-3:]:
        watch()
        rings.append(RingRow(size_bytes=size, samples=_slowest(_ring(device, connections, size))))
    overheads = _overheads(device, connections, watch) if device.backend == "gloo" else []
    sums = []
    for count in sorted({2**k for k in range(1, ranks.bit_length()) if 2**k <= ranks} | {ranks}):
        group = dist.new_group(list(range(count)))
        for size in SUM_BYTES:
            watch()
            sums.append(SumRow(ranks=count, size_bytes=size, samples=_slowest(_sum(device, group, count, size))))
    return MeasuredLinks(
        machines=tuple(machines), messages=tuple(messages), rings=tuple(rings), sums=tuple(sums),
        overheads=tuple(overheads),
    )  # fmt: skip


def _pairs(machines: Sequence[str], *, between: bool) -> list[tuple[int, int]]:
    """The first pairs of a class."""
    pairs = [(a, b) for a, b in combinations(range(len(machines)), 2) if (machines[a] != machines[b]) == between]
    return pairs[:_PAIRS]


def _repetitions(size_bytes: int) -> int:
    return 5 if size_bytes > _LONG_BYTES else 20


def _buffer(device: ComputeDevice, size_bytes: int) -> torch.Tensor:
    return torch.zeros(size_bytes // 4, device=device.torch_device)


def _one_way(device: ComputeDevice, pair: tuple[int, int], size_bytes: int) -> list[float]:
    """Half round trips, as the first of the pair sees them; on every rank."""
    rank, times = dist.get_rank(), list[float]()
    dist.barrier()
    if rank in pair:
        other = pair[1 - pair.index(rank)]
        times = _ping(device, other, size_bytes) if rank == pair[0] else _pong(device, other, size_bytes)
    rows: list[list[float]] = [[]] * dist.get_world_size()
    dist.all_gather_object(rows, times)
    return rows[pair[0]]


def _posted(device: ComputeDevice, tensor: torch.Tensor, source: int) -> Callable[[], object]:
    """Expect a message; NCCL would hold up what is sent after on the same stream, so there it is posted when asked."""
    if device.backend == "nccl":
        return lambda: _received(device, tensor, source)
    work = dist.irecv(tensor, source)
    assert work is not None
    return work.wait


def _received(device: ComputeDevice, tensor: torch.Tensor, source: int) -> None:
    dist.recv(tensor, source)
    device.synchronize()


def _ping(device: ComputeDevice, other: int, size_bytes: int) -> list[float]:
    there, back = _buffer(device, size_bytes), _buffer(device, size_bytes)
    times = []
    for _ in range(_repetitions(size_bytes) + 1):
        arrival = _posted(device, back, other)
        begin = time.perf_counter()
        dist.send(there, other)
        arrival()
        times.append((time.perf_counter() - begin) / 2)
    return times[1:]


def _pong(device: ComputeDevice, other: int, size_bytes: int) -> list[float]:
    there, back = _buffer(device, size_bytes), _buffer(device, size_bytes)
    arrival = _posted(device, there, other)
    for number in range(_repetitions(size_bytes) + 1):
        arrival()
        if number < _repetitions(size_bytes):
            arrival = _posted(device, there, other)
        dist.send(back, other)
    device.synchronize()
    return []


def _ring(device: ComputeDevice, connections: Connections, size_bytes: int) -> list[float]:
    out, into = _buffer(device, size_bytes), _buffer(device, size_bytes)
    return _together(device, lambda: _to_next(connections, out, into), size_bytes)


def _to_next(connections: Connections, out: torch.Tensor, into: torch.Tensor) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    connections.send_and_receive([Post(into, (rank - 1) % ranks, 0)], [Post(out, (rank + 1) % ranks, 0)])


def _overheads(device: ComputeDevice, connections: Connections, watch: Callable[[], None]) -> list[OverheadRow]:
    """What processors spend on messages of two sizes, and on sums of the longer."""

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
        times = _spent(add_up if adds else pass_on, _repetitions(size))
        rows.append(OverheadRow(adds=adds, ranks=dist.get_world_size(), size_bytes=size, samples=_middle(times)))
    return rows


def _spent(work: Callable[[], object], repetitions: int) -> list[float]:
    """Processor time of this process for work that all ranks do together."""
    times = []
    for _ in range(repetitions + 1):
        dist.barrier()
        begin = time.process_time()
        for _ in range(_AT_ONCE):
            work()
        times.append((time.process_time() - begin) / _AT_ONCE)
    return times[1:]


def _sum(device: ComputeDevice, group: dist.ProcessGroup, count: int, size_bytes: int) -> list[float]:
    content = _buffer(device, size_bytes)
    if dist.get_rank() >= count:
        return _together(device, lambda: None, size_bytes)
    return _together(device, lambda: dist.all_reduce(content, group=group), size_bytes)


def _together(device: ComputeDevice, work: Callable[[], object], size_bytes: int) -> list[float]:
    """Times of work that all ranks start at once."""
    times = []
    for _ in range(_repetitions(size_bytes) // 2 + 2):
        dist.barrier()
        device.synchronize()
        begin = time.perf_counter()
        work()
        device.synchronize()
        times.append(time.perf_counter() - begin)
    return times[1:]


def _slowest(times: list[float]) -> TimeSamples:
    """Each sample as the slowest rank saw it."""
    rows: list[list[float]] = [[]] * dist.get_world_size()
    dist.all_gather_object(rows, times)
    return TimeSamples(tuple(max(row) for row in zip(*rows, strict=True)))


def _middle(times: list[float]) -> TimeSamples:
    """Each sample the median over the ranks."""
    rows: list[list[float]] = [[]] * dist.get_world_size()
    dist.all_gather_object(rows, times)
    return TimeSamples(tuple(median(row) for row in zip(*rows, strict=True)))


def _joined(pairs: Sequence[Sequence[float]]) -> TimeSamples:
    return TimeSamples(tuple(time for row in pairs for time in row))
