"""Generated data: inputs in [-1, 1) or whole numbers, labels or values in [-1, 1), all of equal probability."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.data.dataset import PURPOSE, DataRequirements
from executor.runtime.boxes import Box
from executor.runtime.positional_random import key_of, uniform
from planner.graph.data_sources import DATA

_INPUTS, _TARGETS = 0, 1
_REPEATED = -1
"""Number used in place of the step where all steps have the same samples."""


class _Generator:
    """A generator of random samples, each a function of seed, step and position."""

    def __init__(
        self, expected: DataRequirements, *, seed: int, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self._expected, self._seed, self._dtype, self._device = expected, seed, dtype, device

    def _sample_inputs(self, step: int, box: Box, count: int, name: str) -> Tensor:
        expected, number = self._expected.inputs[name], list(self._expected.inputs).index(name)
        # the first input has the key that it has where it is the only one; further ones have keys of their own
        key = key_of(self._seed, PURPOSE, step, _INPUTS, *([number] if number else []))
        whole = (count, *expected.sample)
        if words := expected.words:
            # float64, so that the words are the same whatever type the network has
            unit = uniform(key, box, whole, dtype=torch.float64, device=self._device)
            return unit.mul_(words).floor_().to(expected.type_in(self._dtype))
        return self._signed(key, box, whole)

    def _sample_targets(self, step: int, low: int, high: int, count: int) -> Tensor:
        key, expected = key_of(self._seed, PURPOSE, step, _TARGETS), self._expected
        if expected.labelled:
            # float64, so that the classes are the same whatever type the network has
            box = Box((low, *(0 for _ in expected.positions)), (high, *expected.positions))
            unit = uniform(key, box, (count, *expected.positions), dtype=torch.float64, device=self._device)
            return unit.mul_(expected.classes).to(torch.int64)
        box = Box((low, *(0 for _ in expected.outputs)), (high, *expected.outputs))
        return self._signed(key, box, (count, *expected.outputs))

    def _signed(self, key: int, box: Box, whole: tuple[int, ...]) -> Tensor:
        dtype = torch.promote_types(self._dtype, torch.float32)
        return uniform(key, box, whole, dtype=dtype, device=self._device).mul_(2).sub_(1).to(self._dtype)


class Endless(_Generator):
    """A data set with new samples in every step."""

    samples = None

    def inputs(self, step: int, box: Box, name: str = DATA) -> Tensor:
        """Return a region of a mini-batch; see ``Dataset.inputs``."""
        return self._sample_inputs(step, box, self._expected.batch, name)

    def targets(self, step: int, low: int, high: int) -> Tensor:
        """Return the targets of samples of a mini-batch; see ``Dataset.targets``."""
        return self._sample_targets(step, low, high, self._expected.batch)


class Repeated(_Generator):
    """A source with a fixed number of random samples, to which a network can overfit."""

    def __init__(
        self, samples: int, expected: DataRequirements, *, seed: int, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        super().__init__(expected, seed=seed, dtype=dtype, device=device)
        self.samples = samples
        self._targets = self._sample_targets(_REPEATED, 0, samples, samples)

    def inputs(self, rows: NDArray[np.int64], box: Box, name: str) -> Tensor:
        """Return a region of each of some samples; see ``Source.inputs``."""
        dtype = self._expected.inputs[name].type_in(self._dtype)
        values = torch.empty(len(rows), *box.shape, dtype=dtype, device=self._device)
        for i, row in enumerate(rows.tolist()):
            sample = Box((row, *box.low), (row + 1, *box.high))
            values[i] = self._sample_inputs(_REPEATED, sample, self.samples, name)[0]
        return values

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the targets of some samples; see ``Source.targets``."""
        return self._targets[torch.from_numpy(rows).to(self._targets.device)]
