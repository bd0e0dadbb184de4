"""Interfaces of data sets, the shapes that a model requires of them, and the order of their samples."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from executor.runtime.boxes import Box, whole_box
from executor.runtime.positional_random import key_of, uniform
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.graph.data_sources import DATA
from planner.operations.loss import Loss
from planner.operations.streaming import Embedding

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

    def inputs(self, rows: NDArray[np.int64], box: Box, name: str) -> Tensor:
        """Return the region ``box`` (channel, positions) of an input of some samples; bytes stand for [-1, 1)."""
        ...

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the labels or values of some samples."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredInput:
    """Shape and kind of one input that a model requires."""

    array: str
    """Name of its array in files of several arrays."""
    sample: tuple[int, ...]
    """Channels and positions."""
    words: int = 0
    """Number of different whole numbers of which it is made, such as words; 0: it is made of values."""

    def type_in(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type of its elements in a network of a type: half precision does not know all words apart."""
        return torch.promote_types(dtype, torch.float32) if self.words else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRequirements:
    """Shapes and kind of the data that a model requires."""

    model: str
    batch: int
    inputs: dict[str, RequiredInput]
    """All inputs by their names in the model's graph, in order."""
    outputs: tuple[int, ...]
    """Sizes of the loss's input, for one sample."""
    labelled: bool
    """True if targets are labels; else they are values of the shape ``outputs``."""
    positions: tuple[int, ...] = ()
    """Sizes of the positions that have labels of their own; empty where a sample has one label."""

    @classmethod
    def of(cls, graph: ComputationGraph) -> "DataRequirements":
        """Return the shapes that a graph requires.

        Raises:
            ConfigError: The last layer of the graph is no loss.
        """
        last = graph.layers[-1]
        if not isinstance(last.operation, Loss):
            raise ConfigError(f"the last layer of {graph.name} must be a loss to be trained, got {last.operation.kind}")
        return cls(
            model=graph.name,
            batch=graph.batch,
            inputs={
                name: RequiredInput(
                    array=name.replace(DATA, "inputs").replace(":", "_"),
                    sample=shape.sizes[1:],
                    words=words_of(graph, name),
                )
                for name, shape in graph.data.items()
            },
            outputs=last.output.sizes[1:],
            labelled=last.operation.function != "mean_squared_error",
            positions=last.output.positions if last.operation.function == "softmax_per_position" else (),
        )

    def only_input(self, data: str) -> RequiredInput:
        """Return the input of a model that reads one.

        Raises:
            ConfigError: The model reads several.
        """
        if len(self.inputs) > 1:
            arrays = ", ".join(each.array for each in self.inputs.values())
            raise ConfigError(
                f"data {data} has one input, {self.model} reads {len(self.inputs)}: data must be generated, or an .npz "
                f"file with the arrays {arrays} and targets"
            )
        return next(iter(self.inputs.values()))

    @property
    def classes(self) -> int:
        """Number of classes of the labels."""
        return math.prod(self.outputs) // math.prod(self.positions)


def words_of(graph: ComputationGraph, name: str) -> int:
    """Return the number of rows of the smallest table that an input is looked up in; 0 where there is none."""
    readers = [layer for layer in graph.layers if name in layer.inputs and isinstance(layer.operation, Embedding)]
    return min((layer.parameters[0].shape[0] for layer in readers if layer.parameters), default=0)


class Shuffled:
    """A data set that reads a source epoch by epoch, each in a random order of its own.

    The last incomplete batch of an epoch is dropped.

    Raises:
        ConfigError: There are fewer samples than a batch has.
    """

    def __init__(
        self,
        source: Source,
        expected: DataRequirements,
        *,
        name: str,
        seed: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        if source.samples < expected.batch:
            raise ConfigError(
                f"data {name} must have at least the batch's {expected.batch} samples, got {source.samples}"
            )
        self.samples = source.samples
        self._source, self._batch, self._seed = source, expected.batch, seed
        self._required = expected.inputs
        self._dtype, self._device = dtype, device

    def inputs(self, step: int, box: Box, name: str = DATA) -> Tensor:
        """Return a region of a mini-batch; see ``Dataset.inputs``."""
        values = self._moved(self._read(step, box, name))
        if values.dtype == torch.uint8:
            return values.to(self._dtype).div_(_UINT8_HALF).sub_(1)
        return values.to(self._required[name].type_in(self._dtype))

    def targets(self, step: int, low: int, high: int) -> Tensor:
        """Return the targets of samples of a mini-batch; see ``Dataset.targets``."""
        values = self._moved(self._source.targets(self._rows(step, low, high)))
        return values.to(self._dtype) if values.dtype.is_floating_point else values.to(torch.int64)

    def _moved(self, values: Tensor) -> Tensor:
        """Return values on the device; a GPU copies them while the host goes on, which pinned memory allows."""
        pinned = values.pin_memory() if torch.device(self._device).type == "cuda" else values
        return pinned.to(self._device, non_blocking=True)

    def _read(self, step: int, box: Box, name: str) -> Tensor:
        """Return the region as the source delivers it."""
        rows = self._rows(step, box.low[0], box.high[0])
        return self._source.inputs(rows, Box(box.low[1:], box.high[1:]), name)

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
