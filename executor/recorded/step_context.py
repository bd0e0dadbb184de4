"""What a step sees of the part that it computes: its tensors by the indices of their axes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from executor.recorded.views import ResultView, ViewAxes, selection, sizes_of
from executor.runtime.boxes import Box
from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from planner.operations.computation import Step
from planner.strategies.zigzag import PositionOrder

_T = TypeVar("_T")


class Geometry:
    """What a step of a part has found out about its tensors' sizes, strides and constants.

    A step asks the same in every iteration, in the same order, unless its tensors' strides change.  Finding the answers
    takes the host longer than a small kernel runs, and those that lie in tables would be copied to a GPU each time.
    """

    def __init__(self) -> None:
        self._found: dict[Any, Any] = {}
        self._asked = 0

    def begin(self) -> None:
        """Begin an evaluation of the step."""
        self._asked = 0

    def of(self, tensor: Tensor, find: Callable[[], _T]) -> _T:
        """Return what the next question about a tensor has as its answer, which ``find`` finds."""
        self._asked += 1
        key = self._asked, tensor.shape, tensor.stride(), tensor.device
        if key not in self._found:
            self._found[key] = find()
        found: _T = self._found[key]
        return found


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
    """Axis of a constant that is a slice of the channels."""
    first: tuple[int, ...] = ()
    """First index that is held of each axis of a constant; empty where all of it is held."""

    def held(self, axis: int) -> Ints:
        """Return the indices of an axis of a constant that are held."""
        first = self.first[axis] if self.first else 0
        return np.arange(first, first + self.tensor.shape[axis])


@lru_cache(maxsize=256)
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
    geometry: Geometry
    dtype: torch.dtype
    device: torch.device
    order: PositionOrder | None = None
    """Order of the positions of the layer's output; None: as they are."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the axes of the whole result."""
        return sizes_of(self.view.axes)

    def is_sample(self, axis: int) -> bool:
        """Return whether an axis of the result is that of the samples, and nothing else."""
        factors = self.view.axes[axis]
        return len(factors) == 1 and factors[0].dim == 0

    def positions(self, axis: int, index: Ints) -> Ints:
        """Return the positions that some indices of an axis of the result are; the indices of an axis of others."""
        if self.order is None or [each.dim for each in self.view.axes[axis]] != [self.order.dim]:
            return index
        return self.order.places[index]

    def read(self, name: str, indices: Sequence[Ints | None], *, samples: int | None = None) -> Tensor:
        """Return some indices of each axis of an operand.

        Args:
            name: Name of the argument.
            indices: Indices of each axis; None for all.
            samples: Axis of the samples; a constant has the same elements for each, and the first are returned.
        """
        value = self.values[name]
        box, what = value.box, f"{self.where}: {name}"

        def rows() -> list[Ints]:
            return [every(size) if row is None else row for row, size in zip(indices, value.sizes, strict=True)]

        if box is not None:
            return self.geometry.of(value.tensor, lambda: selection(value.tensor, box, value.axes, rows(), what)).of(
                value.tensor
            )
        tensor = value.tensor
        for axis, chosen in self.geometry.of(tensor, lambda: _chosen(value, rows(), samples, what)).items():
            tensor = tensor.narrow(axis, *chosen) if isinstance(chosen, tuple) else tensor.index_select(axis, chosen)
        return tensor

    def placed(self, result: Tensor, box: Box) -> Tensor:
        """Return the region of the output that a result holds, in the order of the output's dimensions."""
        result = result.expand(self.view.sizes)
        return self.geometry.of(result, lambda: self.view.placing(result, box)).of(result)

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
            row = indices[j + shift] if value.box is not None else self.positions(j + shift, indices[j + shift])
            rows.append(every(1) if size == 1 else row)
        return self.read(name, rows, samples=samples)


def check_one_sample(tensor: Tensor, axis: int, what: str) -> None:
    """Refuse a constant that differs along an axis of samples."""
    if tensor.device.type != "meta" and not bool((tensor == tensor.narrow(axis, 0, 1)).all()):
        raise ConfigError(f"{what} differs between samples and depends on no data")


def _chosen(
    value: StepTensor, rows: Sequence[Ints], samples: int | None, what: str
) -> dict[int, tuple[int, int] | Tensor]:
    """Return what to read of a constant along each axis that is not read whole: first index and length, or indices."""
    tensor, chosen = value.tensor, dict[int, tuple[int, int] | Tensor]()
    for axis, (row, size) in enumerate(zip(rows, tensor.shape, strict=True)):
        if axis == samples:
            if size > 1:
                check_one_sample(tensor, axis, what)
                chosen[axis] = 0, 1
            continue
        held = row - (value.first[axis] if value.first else 0)
        if len(held) and (held.min() < 0 or held.max() >= size):
            raise ConfigError(f"{what} has {size} indices of an axis, of which {held.max()} is read")
        if not len(held) or (np.diff(held) != 1).any():
            chosen[axis] = torch.from_numpy(held).to(tensor.device)
        elif len(held) < size:
            chosen[axis] = int(held[0]), len(held)
    return chosen
