"""Where a rank computes: a processor or a GPU, with its clock and what runs beside its arithmetic.

One code path serves both.  Work that runs beside the arithmetic goes to a lane: a thread on a processor, a
stream on a GPU; either takes its work in order.
"""

import ctypes
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from typing_extensions import override

from hwprofiles import ConfigError

__all__ = ["DTYPES", "ComputeDevice", "CpuDevice", "CudaDevice", "Handle", "Lane", "Mark", "device_of"]

Mark = float | torch.cuda.Event
"""A moment: of the host's clock, or of a stream."""


DTYPES = {4: torch.float32, 8: torch.float64}
"""By bytes of an element."""


class Handle(ABC):
    """Work that a lane has taken on."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Let what the rank computes next come after this work.

        Raises:
            TimeoutError: It is not done in time.
            Exception: What the work raised.
        """


class Lane(ABC):
    """Runs work in order, beside the arithmetic and after all that the arithmetic had been given by then."""

    @abstractmethod
    def submit(self, work: Callable[[], None]) -> Handle:
        """Take on a piece of work; marks that it takes are those of the lane."""

    @abstractmethod
    def keep(self, tensor: torch.Tensor) -> None:
        """Let a tensor's memory live until the work submitted so far is done."""

    @abstractmethod
    def close(self) -> None:
        """End the lane; work not begun is dropped."""


class ComputeDevice(ABC):
    """Where one rank computes."""

    torch_device: torch.device
    backend: str
    """Of ``torch.distributed``."""

    @abstractmethod
    def mark(self) -> Mark:
        """This moment, for the arithmetic given so far."""

    @abstractmethod
    def seconds(self, mark: Mark) -> float:
        """A mark on the host's clock (``time.perf_counter``), once the device is synchronised."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for everything given so far."""

    @abstractmethod
    def lane(self, name: str) -> Lane:
        """A new lane."""

    @abstractmethod
    def peak_memory_bytes(self) -> float:
        """Most memory in use so far: of the process, or of the device's allocator."""


@dataclass
class _Job(Handle):
    work: Callable[[], None]
    done: threading.Event
    error: BaseException | None = None

    def wait(self, timeout_s: float) -> None:
        if not self.done.wait(timeout_s):
            raise TimeoutError(f"nothing came of a collective within {timeout_s:g} s")
        if self.error is not None:
            raise self.error


class _Thread(Lane):
    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.work()
            except Exception as error:  # handed to whoever waits
                job.error = error
            job.done.set()

    def submit(self, work: Callable[[], None]) -> Handle:
        job = _Job(work, threading.Event())
        self._jobs.put(job)
        return job

    def keep(self, tensor: torch.Tensor) -> None:
        pass  # the work itself refers to it

    def close(self) -> None:
        self._jobs.put(None)


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's ``mallopt``."""


def _keep_freed_memory() -> None:
    """Let freed memory stay with the process, where the C library is glibc.

    It would give tensors of some megabytes back and fetch them, page by page, again: convolutions of small images
    with few channels then take more than twice as long.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((_MMAP_THRESHOLD, 2**30), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20)):
            mallopt(parameter, value)


class CpuDevice(ComputeDevice):
    """A processor; marks are times of the host's clock."""

    torch_device = torch.device("cpu")
    backend = "gloo"

    def __init__(self) -> None:
        _keep_freed_memory()

    @override
    def mark(self) -> Mark:
        return time.perf_counter()

    @override
    def seconds(self, mark: Mark) -> float:
        assert isinstance(mark, float)
        return mark

    @override
    def synchronize(self) -> None:
        pass

    @override
    def lane(self, name: str) -> Lane:
        return _Thread(name)

    @override
    def peak_memory_bytes(self) -> float:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


@dataclass
class _Queued(Handle):
    end: torch.cuda.Event

    def wait(self, timeout_s: float) -> None:
        torch.cuda.current_stream().wait_event(self.end)


class _Stream(Lane):
    def __init__(self) -> None:
        self._stream = torch.cuda.Stream(priority=-1)  # messages before arithmetic: others wait for them

    def submit(self, work: Callable[[], None]) -> Handle:
        self._stream.wait_stream(torch.cuda.current_stream())
        end = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            work()
            end.record()
        return _Queued(end)

    def keep(self, tensor: torch.Tensor) -> None:
        tensor.record_stream(self._stream)

    def close(self) -> None:
        pass


class CudaDevice(ComputeDevice):
    """A GPU; marks are events on its streams."""

    backend = "nccl"

    def __init__(self, index: int) -> None:
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        self._origin = self._next_origin = self._moment()

    @override
    def mark(self) -> Mark:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @override
    def seconds(self, mark: Mark) -> float:
        assert isinstance(mark, torch.cuda.Event)
        event, event_s = self._origin
        return event_s + float(event.elapsed_time(mark)) * 1e-3

    @override
    def synchronize(self) -> None:
        # An origin for every iteration: clocks drift, and times between events have only 24 bits.
        self._origin, self._next_origin = self._next_origin, self._moment()

    def _moment(self) -> tuple[torch.cuda.Event, float]:
        """An event with its time on the host's clock, once all work is done."""
        torch.cuda.synchronize()
        event, begin_s = torch.cuda.Event(enable_timing=True), time.perf_counter()
        event.record()
        event.synchronize()
        return event, (begin_s + time.perf_counter()) / 2

    @override
    def lane(self, name: str) -> Lane:
        return _Stream()

    @override
    def peak_memory_bytes(self) -> float:
        return float(torch.cuda.max_memory_allocated())


def device_of(name: str, local_rank: int, *, local_ranks: int = 1) -> ComputeDevice:
    """The device of a rank.

    Args:
        name: ``cpu``, ``cuda``, or ``auto``: CUDA where there is a GPU for every rank of the machine.
        local_rank: Place of the rank on its machine.
        local_ranks: Ranks on its machine.

    Raises:
        ConfigError: ``cuda`` where there is no GPU for this rank, or an unknown name.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu or cuda, got {name!r}")
    count = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if local_rank < count and (name == "cuda" or local_ranks <= count):
        return CudaDevice(local_rank)
    if name == "cuda":
        raise ConfigError(f"device cuda must have a GPU for each local rank: rank {local_rank}, {count} GPUs here")
    return CpuDevice()
