"""Data sets by their specifications."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.data.dataset import PURPOSE, Dataset, Shuffled, Source, type_in
from executor.data.images import ImageSource
from executor.data.requirements import DataRequirements
from executor.data.sources import opened_data
from executor.runtime.boxes import Box
from executor.runtime.positional_random import key_of, uniform
from planner.graph.computation_graph import ComputationGraph
from planner.graph.data_sources import DATA


class Prefetching(Shuffled):
    """A data set that reads the next step's regions in a thread while this step runs; arguments as for ``Shuffled``."""

    def __init__(self, source: Source, expected: DataRequirements, **named: Any) -> None:
        super().__init__(source, expected, **named)
        self._pool = ThreadPoolExecutor(1)
        self._ready: dict[tuple[str, Box], tuple[int, Future[Tensor]]] = {}

    def _read(self, step: int, box: Box, name: str) -> Tensor:
        ready = self._ready.get((name, box))
        value = ready[1].result() if ready and ready[0] == step else super()._read(step, box, name)
        if ready is None or ready[0] != step + 1:  # a second read in this step keeps what is prepared for the next
            self._ready[name, box] = step + 1, self._pool.submit(super()._read, step + 1, box, name)
        return value


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
            return unit.mul_(words).floor_().to(type_in(expected, self._dtype))
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
        dtype = type_in(self._expected.inputs[name], self._dtype)
        values = torch.empty(len(rows), *box.shape, dtype=dtype, device=self._device)
        for i, row in enumerate(rows.tolist()):
            sample = Box((row, *box.low), (row + 1, *box.high))
            values[i] = self._sample_inputs(_REPEATED, sample, self.samples, name)[0]
        return values

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the targets of some samples; see ``Source.targets``."""
        return self._targets[torch.from_numpy(rows).to(self._targets.device)]


def load_data(
    spec: str, graph: ComputationGraph, *, seed: int, dtype: torch.dtype, device: torch.device | str
) -> Dataset:
    """Open a data set, whose samples come in another random order in each epoch.

    Args:
        spec: ``generated``: random inputs and targets, new ones in every step; ``generated:1024``: as many random
            samples, the same in every epoch; ``FILE.npz`` with the arrays ``inputs`` (for further inputs
            of the model ``inputs_2`` and so on) and ``targets``;
            ``INPUTS.npy,TARGETS.npy``; or a folder of images with a folder for each class.  Inputs of bytes are
            scaled to [-1, 1).
        graph: The model, with its batch.
        seed: Seed of generated samples and of the order.
        dtype: Type of inputs, and of targets that are values.
        device: Device of both.

    Raises:
        ConfigError: The data cannot be read, do not fit the model, or are fewer than one batch.
    """
    expected = DataRequirements.of(graph)
    found = opened_data(spec, expected)
    if found is None:
        return Endless(expected, seed=seed, dtype=dtype, device=device)
    source: Source = (
        Repeated(found, expected, seed=seed, dtype=dtype, device=device) if isinstance(found, int) else found
    )
    kind = Prefetching if isinstance(found, ImageSource) else Shuffled
    return kind(source, expected, seed=seed, dtype=dtype, device=device)
