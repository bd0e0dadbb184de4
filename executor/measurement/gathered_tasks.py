"""Measurements of all ranks, brought to rank 0; times of tasks piece by piece, and joined as they come."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from executor.measurement.measured_run import JoinedTasks, Measurement
from executor.program.recorder import RankMeasurement
from executor.runtime.devices import ComputeDevice
from groundwork.array_types import Floats

_CHUNK_BYTES = 16 * 2**20
"""Size of a message with the times of some iterations; one iteration may be larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """Measurements of one rank."""

    tasks: Sequence[RankMeasurement]
    paused: Sequence[bool]
    """As in ``Measurement``, as are the fields below, whose losses are this rank's shares."""
    losses: Sequence[float]
    allocated_bytes: Sequence[float] = ()
    notes: tuple[str, ...] = ()


def gather_measurement(
    own: RankResult, offset_s: float, device: ComputeDevice, on_chunk: Callable[[], None]
) -> Measurement | None:
    """Bring the measurements of all ranks to rank 0, and join them there; all ranks must call it together.

    Args:
        own: Measurements of this rank.
        offset_s: Offset from its clock to that of rank 0.
        device: Its device, for messages and with its peak of memory.
        on_chunk: Called after each message.

    Returns:
        The joined measurements on rank 0; elsewhere None.
    """
    # The peak is that of training: it is read before the measurements of others arrive.
    mine = own.losses, device.peak_memory_bytes(), own.allocated_bytes, own.notes
    tasks = gather_tasks(own.tasks, offset_s, device.torch_device, on_chunk)
    ranks = [mine] * dist.get_world_size() if tasks else None
    dist.gather_object(mine, ranks)
    if ranks is None or tasks is None:
        return None
    losses, peaks, allocated, notes = zip(*ranks, strict=True)
    return Measurement(
        start_s=tasks.start_s,
        end_s=tasks.end_s,
        sent_bytes=tasks.sent_bytes,
        paused=np.array(own.paused),
        loss=np.array(losses).sum(axis=0),
        peak_memory_bytes=np.array(peaks),
        allocated_bytes=np.array(allocated),
        notes=tuple(dict.fromkeys(note for row in notes for note in row)),
    )


def gather_tasks(
    own: Sequence[RankMeasurement], offset_s: float, device: torch.device, on_chunk: Callable[[], None]
) -> JoinedTasks | None:
    """Bring the measurements of all ranks to rank 0 piece by piece; all ranks must call it together.

    Returns:
        The joined measurements on rank 0; elsewhere None.
    """
    tasks = len(own[0].start_s)
    if dist.get_rank() > 0:
        for _, times in _chunks(own, offset_s):
            dist.send(torch.from_numpy(times).to(device), 0)
            on_chunk()
        return None
    joined = JoinedTasks(len(own), tasks)
    for first, times in _chunks(own, offset_s):
        joined.add(first, times)
    for other in range(1, dist.get_world_size()):
        for first, count in _spans(len(own), tasks):
            received = torch.empty(count, 3, tasks, dtype=torch.float64, device=device)
            dist.recv(received, other)
            joined.add(first, received.cpu().numpy())
            on_chunk()
    return joined


def _chunks(own: Sequence[RankMeasurement], offset_s: float) -> Iterator[tuple[int, Floats]]:
    """Yield the first iteration and the measurements, shape (iterations, 3, tasks), of each piece."""
    for first, count in _spans(len(own), len(own[0].start_s)):
        rows = own[first : first + count]
        yield first, np.array([[row.start_s + offset_s, row.end_s + offset_s, row.sent_bytes] for row in rows])


def _spans(iterations: int, tasks: int) -> Iterator[tuple[int, int]]:
    """Yield the first iteration and the number of iterations of each piece."""
    count = max(1, _CHUNK_BYTES // (3 * 8 * tasks))
    for first in range(0, iterations, count):
        yield first, min(count, iterations - first)
