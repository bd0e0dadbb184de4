"""Exact count of a process's allocations by torch's allocator, from the profiler's events.

The processor's allocator keeps no statistics.  It reports to the profiler the size of every allocation and of every
release of memory allocated since the profiler began, also for tensors within one operation.  Only allocations of the
thread that starts the meter are counted: meanwhile collectives run on it, not beside it.  Memory that libraries take
without torch's allocator, such as gloo's buffers, is not counted.
"""

import gc
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from executor.runtime.devices import ComputeDevice

if TYPE_CHECKING:
    from executor.training.session import Session


ALLOCATED = (
    "peak",
    "parameters",
    "optimizer_state",
    "gradient_sync_buffers",
    "message_buffers",
    "activations_and_rest",
)
"""Kinds of memory that are allocated at the peak: the total, and its parts."""

_EVENT = "[memory]"


@dataclass(frozen=True, slots=True, eq=False)
class HeldBytes:
    """Memory of a process over time, above that at the start of its meter, in exact steps."""

    time_s: NDArray[np.float64]
    """Times of allocations and releases, shape (N,), ascending, on the clock of ``time.perf_counter``."""
    held_bytes: NDArray[np.float64]
    """Bytes held from each time on, shape (N,)."""

    @property
    def peak_bytes(self) -> float:
        """Peak; 0 where nothing was allocated."""
        return float(self.held_bytes.max(initial=0.0))

    @property
    def peak_time_s(self) -> float:
        """Time at which the peak was first reached."""
        return float(self.time_s[self.held_bytes.argmax()]) if len(self.time_s) else float("nan")

    def at(self, time_s: float) -> float:
        """Return the bytes held at a time."""
        index = int(np.searchsorted(self.time_s, time_s, side="right")) - 1
        return float(self.held_bytes[index]) if index >= 0 else 0.0


class MemoryMeter:
    """Count of allocations from ``start`` to ``stop``; torch's operations are slower meanwhile."""

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        """Begin to count."""
        self._profile.start()
        self._offset_s = time.time_ns() * 1e-9 - time.perf_counter()

    def stop(self) -> HeldBytes:
        """End the count, and return the memory over time."""
        self._profile.stop()
        assert self._profile.profiler is not None
        results = self._profile.profiler.kineto_results
        assert results is not None
        events: list[Any] = results.events()  # the type stubs do not declare their sizes
        rows = [(event.start_ns(), event.nbytes()) for event in events if event.name() == _EVENT]
        rows.sort(key=lambda row: row[0])
        moments = np.array([row[0] for row in rows], dtype=np.float64) * 1e-9 - self._offset_s
        return HeldBytes(moments, np.cumsum([float(row[1]) for row in rows]))


def _storage_bytes(tensors: Iterable[Tensor]) -> float:
    """Return the bytes of the storages of tensors, each storage counted once."""
    return float(sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()))


class AllocationMeter:
    """Peak of one rank's allocations since the meter was made; on a GPU by the allocator's own statistics."""

    def __init__(self, device: ComputeDevice) -> None:
        self._device, self._cuda = device, device.torch_device.type == "cuda"
        self._peak_bytes, self._before_bytes = 0.0, 0.0
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._before_bytes = float(torch.cuda.memory_allocated())
        else:
            gc.collect()
            device.in_turn = True
            self._meter = MemoryMeter()
            self._meter.start()

    def stop(self) -> None:
        """End the measurement."""
        if self._cuda:
            self._peak_bytes = float(torch.cuda.max_memory_allocated()) - self._before_bytes
        else:
            self._peak_bytes = self._meter.stop().peak_bytes
            self._device.in_turn = False

    def split(self, session: "Session") -> list[float]:
        """Return the peak in bytes by ``ALLOCATED``: the sizes of tensors that are allocated once, and the rest."""
        divided = {i: session.units.pieces(i) for i in session.parameters}
        whole = (t for i, row in session.parameters.items() for name, t in row.items() if name not in divided[i])
        parameters = _storage_bytes(whole) + session.units.held_bytes
        state = _storage_bytes(
            t for row in session.optimizers.values() for tensors in row.state.values() for t in tensors
        )
        gradients = session.worker.gradient_bytes()
        messages = _storage_bytes(session.worker.message_buffers())
        rest = self._peak_bytes - parameters - state - gradients - messages
        return [self._peak_bytes, parameters, state, gradients, messages, rest]
