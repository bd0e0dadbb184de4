"""What a step sees of the part that it computes: its tensors by the indices of their axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from executor.recorded.views import ResultView, ViewAxes, sizes_of, view_of
from executor.runtime import Box
from hwprofiles import ConfigError, Ints
from planner.operations import Step

__all__ = ["StepContext", "StepTensor", "every"]


@dataclass(frozen=True, slots=True, eq=False)
class StepTensor:
    """A tensor that a step reads."""

    tensor: Tensor
    """Elements of the region; of a constant the slice that the part holds."""
    box: Box | None
    """The region; None for constants."""
    axes: ViewAxes = ()
    """ViewAxes of the view; none for constants."""
    sizes: tuple[int, ...] = ()
    """Sizes of the axes, of the whole tensor."""
    along: int | None = None
    """Axis of a constant that is a slice of the channels, from ``first`` on."""
    first: int = 0


def every(size: int) -> Ints:
    """Return all indices of an axis."""
    return np.arange(size, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepContext:
    """One step of one part."""

    where: str
    """The layer and the operation, for messages."""
    step: Step
    view: ResultView
    """Result that the step computes."""
    values: Mapping[str, StepTensor]
    """Tensors by the name of the argument."""
    dtype: torch.dtype
    device: torch.device

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the axes of the whole result."""
        return sizes_of(self.view.axes)

    def is_sample(self, axis: int) -> bool:
        """Return whether an axis of the result is that of the samples, and nothing else."""
        factors = self.view.axes[axis]
        return len(factors) == 1 and factors[0].dim == 0

    def read(self, name: str, indices: Sequence[Ints | None], *, samples: int | None = None) -> Tensor:
        """Return some indices of each axis of an operand.

        Args:
            name: Name of the argument.
            indices: Indices of each axis; None for all.
            samples: Axis of the samples; a constant has the same elements for each, and the first are returned.
        """
        value = self.values[name]
        rows = [every(size) if row is None else row for row, size in zip(indices, value.sizes, strict=True)]
        if value.box is not None:
            return view_of(value.tensor, value.box, value.axes, rows, f"{self.where}: {name}")
        tensor = value.tensor
        for axis, row in enumerate(rows):
            if axis == samples and tensor.shape[axis] > 1:
                tensor = self._one_sample(name, tensor, axis)
            elif axis != samples:
                first = value.first if axis == value.along else 0
                tensor = _selected(tensor, axis, row - first, f"{self.where}: {name}")
        return tensor

    def _one_sample(self, name: str, tensor: Tensor, axis: int) -> Tensor:
        """Return the first of equal samples of a constant."""
        first = tensor.narrow(axis, 0, 1)
        if tensor.device.type != "meta" and not bool((tensor == first).all()):
            raise ConfigError(f"{self.where}: {name} differs between samples and depends on no data")
        return first

    def aligned(self, name: str, indices: Sequence[Ints]) -> Tensor:
        """Return what an operand that is broadcast from the right has at some indices of the result."""
        value, sizes = self.values[name], self.sizes
        shift = len(sizes) - len(value.sizes)
        if shift < 0:
            raise ConfigError(f"{self.where}: {name} has more axes than the result")
        rows: list[Ints | None] = []
        samples = None
        for j, size in enumerate(value.sizes):
            sample = value.box is None and self.is_sample(j + shift)
            if size not in (1, sizes[j + shift]) and not sample:
                raise ConfigError(f"{self.where}: {name} has {size} of {sizes[j + shift]} indices of an axis")
            samples = j if sample else samples
            rows.append(every(1) if size == 1 else indices[j + shift])
        return self.read(name, rows, samples=samples)


def _selected(tensor: Tensor, axis: int, row: Ints, what: str) -> Tensor:
    """Return some indices of an axis."""
    if len(row) == tensor.shape[axis] and np.array_equal(row, every(len(row))):
        return tensor
    if len(row) and (row.min() < 0 or row.max() >= tensor.shape[axis]):
        raise ConfigError(f"{what} has {tensor.shape[axis]} indices of an axis, of which {row.max()} is read")
    if len(row) and np.array_equal(row, np.arange(row[0], row[0] + len(row))):
        return tensor.narrow(axis, int(row[0]), len(row))
    return tensor.index_select(axis, torch.from_numpy(row).to(tensor.device))
