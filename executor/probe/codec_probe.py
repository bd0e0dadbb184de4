"""Times of compression and decompression on this device, as gradient synchronisation and transfers need them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from executor.compression.base import DataType
from executor.compression.registry import data_type
from executor.probe.measured_rows import TimeSamples
from executor.runtime.devices import ComputeDevice, Mark
from hwprofiles.compute.compute_profile import CODEC_TARGETS, CODEC_TASKS, CodecSpeed

_ELEMENTS = {"cpu": (2**12, 2**16, 2**20), "cuda": (2**12, 2**18, 2**24)}
"""Elements in a message, by kind of device."""
_COLUMNS = 256
"""Elements in a row of a region of a tensor; between two rows lie as many that belong to other regions."""
_GRADIENTS, _ACTIVATIONS = CODEC_TARGETS
_COMPRESS, _DECOMPRESS, _SUM = CODEC_TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecRow:
    """Times of messages of one type and size."""

    type: str
    place: str
    """Use of the message, one of ``CODEC_TARGETS``."""
    task: str
    """Task of the codec, one of ``CODEC_TASKS``."""
    elements: int
    samples: TimeSamples


class CodecProbe:
    """Times of data types: every ``sample`` runs each task of each type once, at every size, one after another.

    The timed work is that of a run: making the message, the residual where the type keeps one, a region gathered
    from its tensor.  Between two samples of the same task, caches see all other tasks.
    """

    def __init__(self, types: Sequence[str], device: ComputeDevice, elements: Sequence[int] | None = None) -> None:
        """Make the tensors.

        Raises:
            ConfigError: A type is unknown.
        """
        self._device, self._seconds = device, list[list[float]]()
        kinds = {kind.spec.text: kind for kind in map(data_type, types)}
        counts = elements or _ELEMENTS[device.torch_device.type]
        self._cases: list[tuple[str, str, str, int]] = []
        self._work: list[Callable[[], Any]] = []
        for text, kind in kinds.items():
            for count in counts:
                # Types with a residual compress gradients alone.
                for place in CODEC_TARGETS[: 1 if kind.feedback else 2]:
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
        """Sum over all tasks of each sample, in seconds."""
        return TimeSamples(tuple(map(sum, self._seconds)))

    def rows(self) -> list[CodecRow]:
        """Return one row a type, place, task and size, with a time for every sample so far; at least one."""
        columns = zip(self._cases, zip(*self._seconds, strict=True), strict=True)
        return [
            CodecRow(type=text, place=place, task=task, elements=count, samples=TimeSamples(column))
            for (text, place, task, count), column in columns
        ]


def _tasks(kind: DataType, place: str, count: int, device: torch.device) -> dict[str, Callable[[], Any]]:
    """Return the work of a type on messages of ``count`` elements, by task."""
    rows = max(count // _COLUMNS, 1)
    # The region is the left half of its tensor, so its rows are not contiguous:  rrrr....
    #                                                                              rrrr....
    whole = torch.randn(rows, 2 * -(-count // rows), device=device).mul_(1e-3)
    region = whole[:, : whole.shape[1] // 2]
    if place == _ACTIVATIONS:
        sent = kind.compress(region).message
        return {_COMPRESS: lambda: kind.compress(region), _DECOMPRESS: lambda: kind.decompress(sent, region.shape)}
    values = region.reshape(-1)
    residual = torch.zeros_like(values) if kind.feedback else None
    message, content, total = (
        kind.compress(values, residual).message,
        torch.empty_like(values),
        torch.zeros_like(values),
    )

    def encode() -> None:
        out = torch.zeros(len(message), dtype=torch.uint8, device=device)
        kind.compress(values, residual, out=out)

    def decode() -> None:
        content.copy_(kind.decompress(message, values.shape))

    def add() -> None:
        total.add_(kind.decompress(message, values.shape))

    return {_COMPRESS: encode, _DECOMPRESS: decode, _SUM: add}


def speed_of(elements: Sequence[int], seconds: Sequence[float]) -> CodecSpeed:
    """Fit a straight line through times of messages of several sizes, with the least relative errors.

    Args:
        elements: Elements in each message, all different.
        seconds: Time of each message.

    Returns:
        A line that neither begins below zero nor falls.
    """
    times = np.asarray(seconds, dtype=np.float64)
    # Rows are divided by the measured time, so that least squares weighs errors relative to it.
    shares = np.column_stack([np.ones(len(times)), np.asarray(elements, dtype=np.float64)]) / times[:, None]
    fixed_s, element_s = np.linalg.lstsq(shares, np.ones(len(times)), rcond=None)[0].tolist()
    if len(times) == 1 or fixed_s < 0 or element_s <= 0:
        fixed_s, element_s = 0.0, float(shares[:, 1].sum() / (shares[:, 1] ** 2).sum())
    return CodecSpeed(fixed_s=fixed_s, elements_per_s=1 / element_s)


def speeds_of(rows: Iterable[CodecRow]) -> dict[tuple[str, str, str], CodecSpeed]:
    """Return speeds by type, place and task, as a profile holds them."""
    groups: dict[tuple[str, str, str], list[CodecRow]] = {}
    for row in rows:
        groups.setdefault((row.type, row.place, row.task), []).append(row)
    return {
        key: speed_of([row.elements for row in group], [row.samples.median_s for row in group])
        for key, group in groups.items()
    }
