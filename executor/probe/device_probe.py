"""What a device is, and how fast it multiplies, copies and starts kernels."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from executor.runtime import ComputeDevice

__all__ = ["DeviceFacts", "device_name", "measure_device", "times_s"]

_REPETITIONS = 7
_LAUNCHES = 300
_PRODUCT = {"cpu": 1024, "cuda": 8192}
"""Side of the matrices of a product that shows the peak: some milliseconds of work."""
_COPY_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}
"""Far more than caches hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One rank's device, as a profile describes it."""

    name: str
    """Of the processor or the GPU."""
    threads: int
    """That the rank computes with; on a GPU, of its host."""
    memory_bytes: float
    """The rank's share of the machine's memory, or of its control group; on a GPU all of the GPU's."""
    multiprocessors: int
    arithmetic: str
    """``float32`` or ``tf32``."""
    peak_flop_per_s: float
    """Of the fastest of several products of large square matrices."""
    memory_bytes_per_s: float
    """Bytes read and written by a copy of a large array."""
    launch_overhead_s: float
    """Of the smallest kernel, one after another."""
    software: str
    """Versions, separated by commas."""
    measured: str
    """UTC date and time."""

    @property
    def label(self) -> str:
        """Name and threads."""
        return f"{self.name}, {self.threads} thread{'s' if self.threads > 1 else ''}"


def times_s(device: ComputeDevice, work: Callable[[], object], repetitions: int = _REPETITIONS) -> list[float]:
    """Seconds of each repetition of some work on a device, after one that is not counted."""
    work()
    marks = []
    for _ in range(repetitions):
        begin = device.mark()
        work()
        marks.append((begin, device.mark()))
    device.synchronize()
    return [max(device.seconds(end) - device.seconds(begin), 1e-9) for begin, end in marks]


@torch.no_grad()
def measure_device(device: ComputeDevice, *, processes: int = 1) -> DeviceFacts:
    """Measure the device of this process; where several share a machine, all do so at the same time.

    Args:
        device: Of this rank.
        processes: Ranks on this machine, among which its memory is divided.
    """
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
    return DeviceFacts(
        name=device_name(device),
        threads=torch.get_num_threads(),
        memory_bytes=float(gpu.total_memory) if gpu else _memory_bytes() / processes,
        multiprocessors=gpu.multi_processor_count if gpu else torch.get_num_threads(),
        arithmetic=_arithmetic() if gpu else "float32",
        peak_flop_per_s=2 * side**3 / product_s,
        memory_bytes_per_s=2 * _COPY_BYTES[kind] / copy_s,
        launch_overhead_s=launch_s,
        software=_software(device),
        measured=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def device_name(device: ComputeDevice) -> str:
    """Name of the GPU, or of the processor."""
    where = device.torch_device
    return torch.cuda.get_device_properties(where).name if where.type == "cuda" else _processor()


def _arithmetic() -> str:
    """Whether products, or at least convolutions, may round to TF32."""
    newer = torch.cuda.get_device_capability() >= (8, 0)
    return "tf32" if newer and (torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32) else "float32"


def _software(device: ComputeDevice) -> str:
    versions = [f"torch {torch.__version__}", f"Python {platform.python_version()}", platform.platform(terse=True)]
    if device.torch_device.type == "cuda":
        versions.append(f"CUDA {torch.version.cuda}")
    if device.backend == "nccl":
        versions.append(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    else:
        versions.append(f"{device.backend} of this torch")
    return ", ".join(versions)


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_bytes() -> float:
    """Physical memory, or what the control group allows of it."""
    bounds = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    own = Path("/proc/self/cgroup")
    groups = [line.rpartition(":")[2] for line in own.read_text().splitlines()] if own.exists() else []
    root = Path("/sys/fs/cgroup")
    files = [root / group.lstrip("/") / "memory.max" for group in ("", *groups)]
    for file in (*files, root / "memory" / "memory.limit_in_bytes"):
        text = file.read_text().strip() if file.exists() else ""
        if text.isdigit():
            bounds.append(float(text))
    return min(bounds)
