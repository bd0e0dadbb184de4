"""Devices that ranks compute on: a processor or a GPU, with its clock and with lanes for concurrent work.

One code path serves both.  Work that runs concurrently with arithmetic goes to a lane: a thread on a processor, a
stream on a GPU.  A lane runs its work in order.
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

from groundwork.errors import ConfigError

Mark = float | torch.cuda.Event
"""A moment: a time of the host's clock, or an event on a stream."""


def torch_type(name: str) -> torch.dtype:
    """Return the type of elements that a role has, such as ``bfloat16``."""
    found: torch.dtype = getattr(torch, name)
    return found


class Handle(ABC):
    """Work that was submitted to a lane."""

    @abstractmethod
    def wait(self, timeout_s: float) -> None:
        """Make the arithmetic that follows wait for this work.

        Args:
            timeout_s: Longest time that the host waits; a GPU's host does not wait.

        Raises:
            TimeoutError: The work is not done in time.
            Exception: The error that the work raised.
        """


class Lane(ABC):
    """Runs work in order, concurrently with arithmetic; work waits for all arithmetic that was begun before it."""

    @abstractmethod
    def submit(self, work: Callable[[], None]) -> Handle:
        """Submit work; the marks that it makes are those of the lane."""

    @abstractmethod
    def keep(self, tensor: torch.Tensor) -> None:
        """Keep a tensor's memory until the work submitted so far is done."""

    @abstractmethod
    def close(self) -> None:
        """End the lane; no more work may be submitted."""


class ComputeDevice(ABC):
    """The device of one rank."""

    torch_device: torch.device
    backend: str
    """Back end of ``torch.distributed``."""
    runs_ahead: bool
    """Whether the host goes on while the device works on what was submitted."""
    in_turn = False
    """Whether lanes of a processor run their work at once, on the thread that submits it; the same on all ranks."""

    @abstractmethod
    def mark(self) -> Mark:
        """Return a mark of the moment when the arithmetic submitted so far is done."""

    @abstractmethod
    def seconds(self, mark: Mark) -> float:
        """Return the time of a mark on the host's clock (``time.perf_counter``); the device must be synchronised."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work submitted so far."""

    @abstractmethod
    def lane(self, name: str) -> Lane:
        """Return a new lane."""

    @abstractmethod
    def peak_memory_bytes(self) -> float:
        """Return the peak memory so far: of the process, or of the device's allocator."""


@dataclass
class _Job(Handle):
    """Work of a thread."""

    work: Callable[[], None] | None
    done: threading.Event
    error: BaseException | None = None

    def run(self) -> None:
        assert self.work is not None, "work is run once"
        try:
            self.work()
        except Exception as error:  # raised in the thread that waits for the job
            self.error = error
        self.work = None  # with the tensors that it refers to
        self.done.set()

    def wait(self, timeout_s: float) -> None:
        if not self.done.wait(timeout_s):
            raise TimeoutError(f"nothing came of a collective within {timeout_s:g} s")
        if self.error is not None:
            raise self.error


class _Thread(Lane):
    """A lane of a processor."""

    def __init__(self, name: str, device: ComputeDevice) -> None:
        self._device = device
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()

    def submit(self, work: Callable[[], None]) -> Handle:
        job = _Job(work, threading.Event())
        if self._device.in_turn:
            job.run()
        else:
            self._jobs.put(job)
        return job

    def keep(self, tensor: torch.Tensor) -> None:
        pass  # the work itself refers to the tensor

    def close(self) -> None:
        self._jobs.put(None)


_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's ``mallopt``."""


def _keep_freed_memory() -> None:
    """Keep freed memory in the process, where the C library is glibc.

    By default it returns tensors of some megabytes to the system and fetches them again, page by page: convolutions of
    small images with few channels then take more than twice as long.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in ((_MMAP_THRESHOLD, 2**30), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * 2**20)):
            mallopt(parameter, value)


class CpuDevice(ComputeDevice):
    """A processor; marks are times of the host's clock."""

    torch_device = torch.device("cpu")
    backend = "gloo"
    runs_ahead = False

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
        return _Thread(name, self)

    @override
    def peak_memory_bytes(self) -> float:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


@dataclass
class _Queued(Handle):
    """Work of a stream."""

    end: torch.cuda.Event

    def wait(self, timeout_s: float) -> None:
        torch.cuda.current_stream().wait_event(self.end)


class _Stream(Lane):
    """A lane of a GPU."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream(priority=-1)  # messages go before arithmetic: other ranks wait for them

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
    runs_ahead = True

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
        # A new origin for every iteration: clocks drift, and times between events have only 24 bits.
        self._origin, self._next_origin = self._next_origin, self._moment()

    def _moment(self) -> tuple[torch.cuda.Event, float]:
        """Wait for all work, and return an event with its time on the host's clock."""
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
    """Return the device of a rank, which from then on computes float32 in float32, and times convolutions once.

    PyTorch's own default lets cuDNN round the operands of convolutions to TF32, but not those of other products, and
    takes the kernel that cuDNN expects to be fastest; the one that is was 16 % faster for VGG-16 on an H200.

    Args:
        name: ``cpu``, ``cuda``, or ``auto``: CUDA where there is a GPU for every rank of the machine.
        local_rank: Index of the rank on its machine.
        local_ranks: Number of ranks on its machine.

    Raises:
        ConfigError: ``cuda`` where there is no GPU for this rank, or an unknown name.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device must be auto, cpu or cuda, got {name!r}")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    count = torch.cuda.device_count() if name != "cpu" and torch.cuda.is_available() else 0
    if local_rank < count and (name == "cuda" or local_ranks <= count):
        return CudaDevice(local_rank)
    if name == "cuda":
        raise ConfigError(f"device cuda must have a GPU for each local rank: rank {local_rank}, {count} GPUs here")
    return CpuDevice()
