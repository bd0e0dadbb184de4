"""Parameters of layers, and those that several layers use: one of them trains the tensor, the others borrow it.

A table of words that also makes the scores of all words at the end of a network::

    words (trains the table)  ->  ...  ->  head (borrows the table)

The table is one parameter.  Its way from ``words`` to ``head`` is like that of a tensor: where the devices of ``head``
lack regions of it they are sent there, and the gradients of these regions come back and are added.
"""

import math
from dataclasses import dataclass

from planner.graph.shapes import SUMMED, IntervalMap, Shape, interval_map


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trained tensor of a layer."""

    name: str
    shape: tuple[int, ...]
    indices: tuple[str | None, ...] = ("channel",)
    """Index of the layer that each axis runs over, a split of which splits the axis: a dimension of the output, or
    ``SUMMED``; None: every part holds all of it.  None are left out at the end."""
    shared: str = ""
    """Layer that trains the tensor, if another one does: tied weights are one parameter, that of the first layer."""
    summed_block: int = 1
    """Elements of an axis for each index that is summed over: positions of a channel that a layer flattens."""
    sections: bool = False
    """True if the axis before the channels' counts sections of them, and both are one axis in a ``state_dict``."""
    frozen: bool = False
    """True if no layer trains the tensor: it has no gradient and no optimizer state."""

    @property
    def split(self) -> tuple[str, ...]:
        """Dimensions of the layer's output of which a split splits the tensor."""
        return tuple(each for each in self.indices if each not in (None, SUMMED))

    @property
    def axis(self) -> int:
        """Axis that a split of the layer's channels splits; 0 without."""
        return self.indices.index("channel") if "channel" in self.indices else 0

    @property
    def module_shape(self) -> tuple[int, ...]:
        """Shape in the ``state_dict`` of the module."""
        if not self.sections:
            return self.shape
        before, behind = self.shape[: self.axis - 1], self.shape[self.axis + 1 :]
        return (*before, self.shape[self.axis - 1] * self.shape[self.axis], *behind)

    @property
    def elements(self) -> int:
        """Number of elements that the layer trains: none of a tensor that another layer trains, or that is frozen."""
        return 0 if self.shared or self.frozen else self.stored

    @property
    def stored(self) -> int:
        """Number of elements of the tensor, whichever layer trains it."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class SharedParameter:
    """A parameter that one layer trains and another one borrows."""

    name: str
    """Name in the layer that trains it."""
    borrowed: str
    """Name in the layer that borrows it."""
    shape: Shape
    """Its sizes; dimensions are numbered, for they are none of an output."""
    held: tuple[IntervalMap, ...]
    """Interval of each dimension that a part of the layer that trains it holds."""
    needed: tuple[IntervalMap, ...]
    """Interval that a part of the layer that borrows it needs."""
    frozen: bool
    """True if it is not trained: its gradient does not come back."""


def parameter_maps(parameter: Parameter, output: Shape) -> tuple[IntervalMap, ...]:
    """Return the interval of each dimension of a parameter that a part of its layer holds."""
    maps = [interval_map(dim=None)] * max(len(parameter.shape), 1)
    for axis, (index, size) in enumerate(zip(parameter.indices, parameter.shape, strict=False)):
        if index == SUMMED:
            maps[axis] = interval_map(dim=SUMMED, group_in=parameter.summed_block)
        # weights of transposed convolutions have no axis of output channels that a plan may split: all is held
        elif index is not None and size == output.size(index):
            maps[axis] = interval_map(dim=index)
    return tuple(maps)
