"""Parameters of layers, and those that several layers use: one of them trains the tensor, the others borrow it.

A table of words that also makes the scores of all words at the end of a network::

    words (trains the table)  ->  ...  ->  head (borrows the table)

The table is one parameter.  Its way from ``words`` to ``head`` is like that of a tensor: where the devices of ``head``
lack regions of it they are sent there, and the gradients of these regions come back and are added.
"""

from dataclasses import dataclass, field

import numpy as np

from planner.graph.shapes import SUMMED, IntervalMap, Shape


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trained tensor of a layer."""

    name: str
    shape: tuple[int, ...]
    split: bool = True
    """True if a split of the layer's channels splits the tensor, False if every part holds all of it."""
    shared: str = ""
    """Layer that trains the tensor, if another one does: tied weights are one parameter, that of the first layer."""
    axis: int = field(default=0, repr=False)
    """Axis that a split of the layer's channels splits."""
    summed: int | None = field(default=None, repr=False)
    """Axis that a split of the index over which the layer sums splits, if any."""
    summed_block: int = field(default=1, repr=False)
    """Elements of that axis for each index that is summed over: positions of a channel that a layer flattens."""
    sections: bool = field(default=False, repr=False)
    """True if the axis before ``axis`` counts sections of the channels, and both are one axis in a ``state_dict``."""
    frozen: bool = field(default=False, repr=False)
    """True if no layer trains the tensor: it has no gradient and no optimizer state."""

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
        return int(np.prod(self.shape, dtype=np.int64))


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
    whole = [IntervalMap(dim=None)] * max(len(parameter.shape), 1)
    # weights of transposed convolutions have no axis of output channels that a plan of theirs may split: all is held
    if parameter.split and parameter.shape and parameter.shape[parameter.axis] == output.size("channel"):
        whole[parameter.axis] = IntervalMap(dim="channel")
    if parameter.summed is not None:
        whole[parameter.summed] = IntervalMap(dim=SUMMED, group_in=parameter.summed_block)
    return tuple(whole)
