"""Offsets between the clocks of the ranks and that of rank 0."""

import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist

from executor.rendezvous.all_ranks import of_all_ranks

_TRIES = 40


def clock_offset_s(device: torch.device) -> float:
    """Return the offset from this rank's ``time.perf_counter`` to that of rank 0; all ranks must call it together.

    Processes of one machine share the clock.  Ranks of other machines send short messages to rank 0 and back: half the
    duration of the fastest round trip bounds the error.

    Returns:
        Seconds to add to this rank's clock.

    Source:
        Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    machines = of_all_ranks(boot.read_text() if boot.exists() else socket.gethostname())
    rank, offset_s = dist.get_rank(), 0.0
    for other in range(1, len(machines)):
        if machines[other] == machines[0]:
            continue
        if rank == 0:
            # Return each message of the other rank with the time at which it arrived.
            message = torch.zeros(1, dtype=torch.float64, device=device)
            for _ in range(_TRIES):
                dist.recv(message, other)
                float(message)  # waits for the device
                message.fill_(time.perf_counter())
                dist.send(message, other)
        elif rank == other:
            offset_s = _measure_offset(device)
    return offset_s


def _measure_offset(device: torch.device) -> float:
    """Return the offset to the clock of rank 0 by the fastest of several round trips."""
    message = torch.zeros(1, dtype=torch.float64, device=device)
    best_s, offset_s = float("inf"), 0.0
    for _ in range(_TRIES):
        begin = time.perf_counter()
        dist.send(message, 0)
        dist.recv(message, 0)
        there_s = float(message)  # waits for the device
        end = time.perf_counter()
        if end - begin < best_s:
            best_s, offset_s = end - begin, there_s - (begin + end) / 2
    return offset_s
