"""Interfaces of data sets, and the order of their samples."""

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.data.requirements import DataRequirements, RequiredInput
from executor.runtime.boxes import Box, whole_box
from executor.runtime.positional_random import key_of, uniform
from planner.graph.data_sources import DATA

PURPOSE = 2
"""Part of the key that separates the data's random numbers from those of other purposes with the same seed."""
_ORDER = 2
_UINT8_HALF = 128.0


class Dataset(Protocol):
    """Mini-batches by step, from 0; their samples do not depend on the regions that ranks read."""

    @property
    def samples(self) -> int | None:
        """Number of samples of one epoch; None where they are generated without end."""
        ...

    def inputs(self, step: int, box: Box, name: str = DATA) -> Tensor:
        """Return a region of the mini-batch of a step."""
        ...

    def targets(self, step: int, low: int, high: int) -> Tensor:
        """Return the targets of samples [low, high) of the mini-batch of a step.

        Returns:
            Labels, int64, for a softmax: shape (high - low,), or (high - low, positions) where each position has one;
            values of the shape of the loss's input for a squared error.
        """
        ...


class Source(Protocol):
    """Numbered samples, to be read in any order."""

    @property
    def samples(self) -> int:
        """Number of samples."""
        ...

    def inputs(self, rows: NDArray[np.int64], box: Box, name: str) -> Tensor | NDArray[Any]:
        """Return the region ``box`` (channel, positions) of an input of some samples; bytes stand for [-1, 1)."""
        ...

    def targets(self, rows: NDArray[np.int64]) -> Tensor | NDArray[Any]:
        """Return the labels or values of some samples."""
        ...


def type_in(required: RequiredInput, dtype: torch.dtype) -> torch.dtype:
    """Return the type of an input's elements in a network of a type: half precision does not know all words apart."""
    return torch.promote_types(dtype, torch.float32) if required.words else dtype


class Shuffled:
    """A data set that reads a source epoch by epoch, each in a random order of its own.

    The last incomplete batch of an epoch is dropped; a source has at least one batch.
    """

    def __init__(
        self,
        source: Source,
        expected: DataRequirements,
        *,
        seed: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.samples = source.samples
        self._source, self._batch, self._seed = source, expected.batch, seed
        self._required = expected.inputs
        self._dtype, self._device = dtype, device

    def inputs(self, step: int, box: Box, name: str = DATA) -> Tensor:
        """Return a region of a mini-batch; see ``Dataset.inputs``."""
        values = self._moved(self._read(step, box, name))
        if values.dtype == torch.uint8:
            return values.to(self._dtype).div_(_UINT8_HALF).sub_(1)
        return values.to(type_in(self._required[name], self._dtype))

    def targets(self, step: int, low: int, high: int) -> Tensor:
        """Return the targets of samples of a mini-batch; see ``Dataset.targets``."""
        values = self._moved(torch.as_tensor(self._source.targets(self._rows(step, low, high))))
        return values.to(self._dtype) if values.dtype.is_floating_point else values.to(torch.int64)

    def _moved(self, values: Tensor) -> Tensor:
        """Return values on the device; a GPU copies them while the host goes on, which pinned memory allows."""
        pinned = values.pin_memory() if torch.device(self._device).type == "cuda" else values
        return pinned.to(self._device, non_blocking=True)

    def _read(self, step: int, box: Box, name: str) -> Tensor:
        """Return the region as the source delivers it."""
        rows = self._rows(step, box.low[0], box.high[0])
        return torch.as_tensor(self._source.inputs(rows, Box(box.low[1:], box.high[1:]), name))

    def _rows(self, step: int, low: int, high: int) -> NDArray[np.int64]:
        """Return the source's numbers of samples [low, high) of the mini-batch of a step."""
        # whole batches only: the samples left over at the end of an epoch are not read in it
        epoch, batch = divmod(step, self.samples // self._batch)
        return _order(self._seed, epoch, self.samples)[batch * self._batch + low : batch * self._batch + high]


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, samples: int) -> NDArray[np.int64]:
    """Return a permutation of the samples: sorted by random numbers, so that no library's release changes it."""
    key = key_of(seed, PURPOSE, epoch, _ORDER)
    return np.argsort(
        uniform(key, whole_box((samples,)), (samples,), dtype=torch.float64, device="cpu").numpy(), kind="stable"
    )
