"""Description of a device, and its speed at products, copies and launches of kernels."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch

from executor.runtime.devices import ComputeDevice
from hwprofiles.devices.device import GPU_RESERVE, MemoryReserve

_REPETITIONS = 7
_LAUNCHES = 300
"""Kernels in one sample of the launch overhead."""
_PRODUCT = {"cpu": 1024, "cuda": 8192}
"""Side of the matrices whose product shows the peak, by kind of device: some milliseconds of work."""
_COPY_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}
"""Size of the array that is copied, by kind of device: far more than caches hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Device of one rank, as a compute profile describes it."""

    name: str
    threads: int
    """Number of threads that the rank computes with; with a GPU, of its host."""
    memory_bytes: float
    """Share of the rank in the memory of the machine or of its control group; with a GPU, all of the GPU."""
    memory_reserve: MemoryReserve
    """What of it programs cannot use."""
    multiprocessors: int
    """Multiprocessors of a GPU; threads on a processor."""
    peak_flop_per_s: float
    """Speed of the fastest of several products of large square matrices."""
    memory_bytes_per_s: float
    """Bytes read and written by a copy of a large array."""
    launch_overhead_s: float
    """Time of the smallest kernel, in a sequence of them."""
    software: str
    """Versions of the software, separated by commas."""
    measured: str

    @property
    def label(self) -> str:
        """Name with the number of threads."""
        return f"{self.name}, {self.threads} thread{'s' if self.threads > 1 else ''}"


def times_s(device: ComputeDevice, work: Callable[[], object]) -> list[float]:
    """Return the seconds of each repetition of some work on a device, after one that is not counted."""
    work()
    marks = []
    for _ in range(_REPETITIONS):
        begin = device.mark()
        work()
        marks.append((begin, device.mark()))
    device.synchronize()
    return [max(device.seconds(end) - device.seconds(begin), 1e-9) for begin, end in marks]


@torch.no_grad()
def measure_device(device: ComputeDevice, *, processes: int = 1) -> DeviceFacts:
    """Measure the device of this process; where several share a machine, all do so at the same time."""
    kind = device.torch_device.type
    side = _PRODUCT[kind]
    left, right = torch.randn(2, side, side, device=device.torch_device)
    product = torch.empty_like(left)
    product_s = min(times_s(device, lambda: torch.mm(left, right, out=product)))
    source = torch.zeros(_COPY_BYTES[kind] // 4, device=device.torch_device)
    target = torch.zeros_like(source)
    copy_s = sorted(times_s(device, lambda: target.copy_(source)))[_REPETITIONS // 2]
    little = torch.zeros(1, device=device.torch_device)

    def launches() -> None:
        for _ in range(_LAUNCHES):
            little.add_(1)

    launch_s = sorted(times_s(device, launches))[_REPETITIONS // 2] / _LAUNCHES
    gpu = torch.cuda.get_device_properties(device.torch_device) if kind == "cuda" else None
    versions = [f"torch {torch.__version__}", f"Python {platform.python_version()}", platform.platform(terse=True)]
    if device.torch_device.type == "cuda":
        versions.append(f"CUDA {torch.version.cuda}")
    if device.backend == "nccl":
        versions.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    else:
        versions.append(f"{device.backend} of this torch")
    return DeviceFacts(
        name=device_name(device),
        threads=torch.get_num_threads(),
        memory_bytes=float(gpu.total_memory) if gpu else _memory_bytes() / processes,
        memory_reserve=GPU_RESERVE if gpu else MemoryReserve(),
        multiprocessors=gpu.multi_processor_count if gpu else torch.get_num_threads(),
        peak_flop_per_s=2 * side**3 / product_s,
        memory_bytes_per_s=2 * _COPY_BYTES[kind] / copy_s,
        launch_overhead_s=launch_s,
        software=", ".join(versions),
        measured=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def device_name(device: ComputeDevice) -> str:
    """Return the name of the GPU, or of the processor."""
    where = device.torch_device
    return torch.cuda.get_device_properties(where).name if where.type == "cuda" else _processor()


def _processor() -> str:
    """Return the name of the processor, from the kernel where it says it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_bytes() -> float:
    """Return the physical memory, or the limit of the control group if that is smaller.

    ``psutil`` knows nothing of control groups, so this reads the kernel's own files.
    """
    bounds = [float(psutil.virtual_memory().total)]
    own = Path("/proc/self/cgroup")
    groups = [line.rpartition(":")[2] for line in own.read_text().splitlines()] if own.exists() else []
    root = Path("/sys/fs/cgroup")
    files = [root / group.lstrip("/") / "memory.max" for group in ("", *groups)]
    for file in (*files, root / "memory" / "memory.limit_in_bytes"):
        text = file.read_text().strip() if file.exists() else ""
        if text.isdigit():
            bounds.append(float(text))
    return min(bounds)
