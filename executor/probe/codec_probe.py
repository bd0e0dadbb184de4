"""Times of encoding and decoding on this device, as sums of gradients and tensors on their way need it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from executor.compression import DataType, data_type
from executor.probe.measured_rows import TimeSamples
from executor.runtime import ComputeDevice, Mark
from hwprofiles.compute import CODING_PLACES, CODING_TASKS, CodingSpeed
from planner.compression import compression_names

__all__ = ["CODED_TYPES", "CodingProbe", "CodingRow", "speed_of", "speeds_of"]

CODED_TYPES = tuple(name for name in compression_names() if name != "float32")
"""Data types that are measured if none are named."""
_NUMBERS = {"cpu": (2**12, 2**16, 2**20), "cuda": (2**12, 2**18, 2**24)}
"""In a message, by kind of device."""
_COLUMNS = 256
"""Numbers in a row of a region of a tensor; between rows lie as many that belong to others."""
_GRADIENTS, _ACTIVATIONS = CODING_PLACES
_COMPRESS, _DECOMPRESS, _SUM = CODING_TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingRow:
    """Times of messages of one type and size."""

    type: str
    """With its parameters."""
    place: str
    """One of ``CODING_PLACES``."""
    task: str
    """One of ``CODING_TASKS``."""
    numbers: int
    samples: TimeSamples


class CodingProbe:
    """Measures data types: every ``sample`` runs each task of each type once, at every size, one after another.

    What is timed is what a run does: making the message, the residual where the type keeps one, a region gathered
    from its tensor.  Between two samples of the same, caches see all others.

    Args:
        types: As ``planner.compression.data_types.compression`` reads them.
        device: Where.
        numbers: In a message; those of the device's kind if None.

    Raises:
        ConfigError: A type is unknown.
    """

    def __init__(self, types: Sequence[str], device: ComputeDevice, numbers: Sequence[int] | None = None) -> None:
        self._device, self._seconds = device, list[list[float]]()
        kinds = {kind.spec.text: kind for kind in map(data_type, types)}
        counts = numbers or _NUMBERS[device.torch_device.type]
        self._cases: list[tuple[str, str, str, int]] = []
        self._work: list[Callable[[], Any]] = []
        for text, kind in kinds.items():
            for count in counts:
                for place in CODING_PLACES[: 1 if kind.feedback else 2]:
                    for task, work in _tasks(kind, place, count, device.torch_device).items():
                        self._cases.append((text, place, task, count))
                        self._work.append(work)

    @torch.no_grad()
    def warm_up(self) -> None:
        """Run everything once, unmeasured."""
        for work in self._work:
            work()
        self._device.synchronize()

    @torch.no_grad()
    def sample(self) -> None:
        """Time everything once more."""
        marks: list[tuple[Mark, Mark]] = []
        self._device.synchronize()
        for work in self._work:
            begin = self._device.mark()
            work()
            marks.append((begin, self._device.mark()))
        self._device.synchronize()
        read = self._device.seconds
        self._seconds.append([max(read(end) - read(begin), 1e-9) for begin, end in marks])

    @property
    def sums_s(self) -> TimeSamples:
        """Of each sample, the sum over everything."""
        return TimeSamples(tuple(map(sum, self._seconds)))

    def rows(self) -> list[CodingRow]:
        """One row a type, place, task and size, with a time for every sample so far; at least one."""
        columns = zip(self._cases, zip(*self._seconds, strict=True), strict=True)
        return [
            CodingRow(type=text, place=place, task=task, numbers=count, samples=TimeSamples(column))
            for (text, place, task, count), column in columns
        ]


def _tasks(kind: DataType, place: str, count: int, device: torch.device) -> dict[str, Callable[[], Any]]:
    """What a type does with messages of so many numbers."""
    rows = max(count // _COLUMNS, 1)
    whole = torch.randn(rows, 2 * -(-count // rows), device=device).mul_(1e-3)
    region = whole[:, : whole.shape[1] // 2]
    if place == _ACTIVATIONS:
        sent = kind.encode(region).message
        return {
            _COMPRESS: lambda: kind.encode(region),
            _DECOMPRESS: lambda: kind.decode(sent, region.shape),
        }
    values = region.reshape(-1)
    residual = torch.zeros_like(values) if kind.feedback else None
    message, content, total = kind.encode(values, residual).message, torch.empty_like(values), torch.zeros_like(values)

    def encode() -> None:
        out = torch.zeros(len(message), dtype=torch.uint8, device=device)
        kind.encode(values, residual, out=out)

    def decode() -> None:
        content.copy_(kind.decode(message, values.shape))

    def add() -> None:
        total.add_(kind.decode(message, values.shape))

    return {_COMPRESS: encode, _DECOMPRESS: decode, _SUM: add}


def speed_of(numbers: Sequence[int], seconds: Sequence[float]) -> CodingSpeed:
    """The straight line through times of messages of several sizes that has the least relative errors.

    Args:
        numbers: In each message, all different.
        seconds: Of each.

    Returns:
        A line that neither begins below zero nor falls.
    """
    times = np.asarray(seconds, dtype=np.float64)
    shares = np.column_stack([np.ones(len(times)), np.asarray(numbers, dtype=np.float64)]) / times[:, None]
    fixed_s, number_s = np.linalg.lstsq(shares, np.ones(len(times)), rcond=None)[0].tolist()
    if len(times) == 1 or fixed_s < 0 or number_s <= 0:
        fixed_s, number_s = 0.0, float(shares[:, 1].sum() / (shares[:, 1] ** 2).sum())
    return CodingSpeed(fixed_s=fixed_s, numbers_per_s=1 / number_s)


def speeds_of(rows: Iterable[CodingRow]) -> dict[tuple[str, str, str], CodingSpeed]:
    """Speeds by type, place and task, as a profile holds them."""
    found: dict[tuple[str, str, str], list[CodingRow]] = {}
    for row in rows:
        found.setdefault((row.type, row.place, row.task), []).append(row)
    return {
        key: speed_of([row.numbers for row in same], [row.samples.median_s for row in same])
        for key, same in found.items()
    }
