"""Allocations of a process, counted exactly: what torch's allocator gave and took back, by the profiler's events.

The processor's allocator keeps no books of its own.  Its reports to the profiler name the size of every allocation
and of every release of what was allocated since the profiler began, also of tensors that live inside one operation.
Only what the thread that starts the meter allocates is seen: the scratch of sums that run by rounds on another is not;
nor is what libraries take without torch's allocator, such as gloo's buffers and oneDNN's reordered weights.
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

from executor.runtime import ComputeDevice

if TYPE_CHECKING:
    from executor.training import Session

__all__ = ["ALLOCATED", "AllocationMeter", "HeldBytes", "MemoryMeter"]

ALLOCATED = ("peak", "parameters", "optimizer_state", "exchanged_gradients", "message_buffers", "activations_and_rest")
"""What is allocated at the peak: all, and what it is made of."""

_EVENT = "[memory]"


@dataclass(frozen=True, slots=True, eq=False)
class HeldBytes:
    """What a process held, above what was there when its meter started, in exact steps."""

    time_s: NDArray[np.float64]
    """Shape (N,), ascending, on ``time.perf_counter``'s clock: when something was allocated or released."""
    held_bytes: NDArray[np.float64]
    """Shape (N,): from then on."""

    @property
    def peak_bytes(self) -> float:
        """The most that was held; 0 where nothing was allocated."""
        return float(self.held_bytes.max(initial=0.0))

    @property
    def peak_time_s(self) -> float:
        """When that was first so."""
        return float(self.time_s[self.held_bytes.argmax()]) if len(self.time_s) else float("nan")

    def at(self, time_s: float) -> float:
        """Bytes held at a moment."""
        place = int(np.searchsorted(self.time_s, time_s, side="right")) - 1
        return float(self.held_bytes[place]) if place >= 0 else 0.0


class MemoryMeter:
    """Counts from ``start`` to ``stop``; slows torch's operations down meanwhile."""

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        """Begin to count."""
        self._profile.start()
        self._offset_s = time.time_ns() * 1e-9 - time.perf_counter()

    def stop(self) -> HeldBytes:
        """End, and add up."""
        self._profile.stop()
        assert self._profile.profiler is not None
        results = self._profile.profiler.kineto_results
        assert results is not None
        events: list[Any] = results.events()  # the stubs do not know their sizes
        rows = [(event.start_ns(), event.nbytes()) for event in events if event.name() == _EVENT]
        rows.sort(key=lambda row: row[0])
        moments = np.array([row[0] for row in rows], dtype=np.float64) * 1e-9 - self._offset_s
        return HeldBytes(moments, np.cumsum([float(row[1]) for row in rows]))


def _storage_bytes(tensors: Iterable[Tensor]) -> float:
    """Bytes of the storages of tensors, each storage once."""
    return float(sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values()))


class AllocationMeter:
    """What one rank allocates from now on, at its peak; on a GPU by the allocator's own books.

    Args:
        device: Where the rank computes.
    """

    def __init__(self, device: ComputeDevice) -> None:
        self._cuda = device.torch_device.type == "cuda"
        self._peak_bytes, self._before_bytes = 0.0, 0.0
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            self._before_bytes = float(torch.cuda.memory_allocated())
        else:
            gc.collect()
            self._meter = MemoryMeter()
            self._meter.start()

    def stop(self) -> None:
        """End of what is measured."""
        if self._cuda:
            self._peak_bytes = float(torch.cuda.max_memory_allocated()) - self._before_bytes
        else:
            self._peak_bytes = self._meter.stop().peak_bytes

    def split(self, session: "Session") -> list[float]:
        """Bytes by ``ALLOCATED``: what is always there by its tensors, and what is left of the peak."""
        parameters = _storage_bytes(t for row in session.parameters.values() for t in row.values())
        state = _storage_bytes(
            t for row in session.optimizers.values() for tensors in row.state.values() for t in tensors
        )
        gradients = _storage_bytes(session.worker.gradient_buffers())
        messages = _storage_bytes(session.worker.message_buffers())
        rest = self._peak_bytes - parameters - state - gradients - messages
        return [self._peak_bytes, parameters, state, gradients, messages, rest]
