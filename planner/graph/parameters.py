"""Parameters of layers, and those that several layers use: one of them trains the tensor, the others borrow it.

A table of words that also makes the scores of all words at the end of a network::

    words (trains the table)  ->  ...  ->  head (borrows the table)

The table is one parameter.  Its way from ``words`` to ``head`` is like that of a tensor: where the devices of ``head``
lack regions of it they are sent there, and the gradients of these regions come back and are added.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from groundwork.errors import ConfigError
from planner.graph.shapes import SUMMED, IntervalMap, Shape

if TYPE_CHECKING:
    from planner.graph.computation_graph import Layer


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


def shared_parameters(
    layers: "Sequence[Layer]", index: Mapping[str, int]
) -> dict[tuple[int, int, int], SharedParameter]:
    """Return the parameters that layers borrow.

    Returns:
        By the layer that trains it, the layer that borrows it, and a slot of the latter that follows its inputs.

    Raises:
        ConfigError: The layer that trains a parameter is missing, comes later or has no such parameter.
    """
    rows: dict[tuple[int, int, int], SharedParameter] = {}
    for i, layer in enumerate(layers):
        for number, parameter in enumerate(layer.parameters):
            if parameter.shared:
                owner = index.get(parameter.shared, i)
                rows[owner, i, len(layer.inputs) + number] = _shared(layers[owner], layer, parameter)
    return rows


def _shared(owner: "Layer", layer: "Layer", parameter: Parameter) -> SharedParameter:
    """Return one borrowed parameter."""
    where = f"parameter {parameter.name} of layer {layer.name}"
    key = _key(layer, parameter)
    trained = [
        each
        for each in owner.parameters
        if _key(owner, each) == key and each.shape == parameter.shape and not each.shared
    ]
    if owner is layer or not trained:
        raise ConfigError(
            f"{where} is shared: layer {parameter.shared} must come before it and train a parameter of the same key "
            f"and shape"
        )
    shape = Shape(tuple(map(str, range(max(len(parameter.shape), 1)))), parameter.shape or (1,))
    return SharedParameter(
        name=trained[0].name,
        borrowed=parameter.name,
        shape=shape,
        held=parameter_maps(trained[0], owner.output),
        needed=parameter_maps(parameter, layer.output),
        frozen=parameter.frozen or trained[0].frozen,
    )


def _key(layer: "Layer", parameter: Parameter) -> str:
    """Return the key of a layer's parameter in the ``state_dict``, or a name for one that has none."""
    return dict(layer.keys).get(parameter.name, "")
