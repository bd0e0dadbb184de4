"""Splits of the layers by the cases, and the times of the part that a device holds, for all cases at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES, Layer
from planner.graph.shapes import SUMMED
from planner.strategies.degrees import largest_divisor, sums_of_channels
from studies.oracle.layer_sizes import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Split of the layers in one case."""

    devices: int
    """Number of devices; the first ones of the cluster are used."""
    samples: float
    """Samples that a layer computes at once; in a pipeline those of a micro-batch."""
    filters: int = 1
    """Degree of the output channels."""
    channels: int = 1
    """Degree of the input channels; layers that read the data are split by filters instead."""
    grid: tuple[int, ...] = ()
    """Degrees of the positions; layers without positions are split by filters."""

    @property
    def grid_parts(self) -> int:
        """Number of parts of the grid."""
        return int(np.prod(self.grid, dtype=np.int64))


def layer_times(model: CostModel, sizes: Sizes, splits: Sequence[Split]) -> dict[str, Floats]:
    """Return the times of the largest part of every layer on the slowest device that is used.

    Args:
        model: Prices of the network on the cluster; its batch does not matter.
        sizes: Sizes of the same network's layers.
        splits: Splits of C cases.

    Returns:
        Seconds for each of ``LAYER_PHASES``, shape (C, G) each.
    """
    used = np.array([np.isin(np.arange(len(model.profiles)), model.profile_of[: s.devices]) for s in splits])
    times = {phase: np.zeros((len(splits), len(sizes.y))) for phase in LAYER_PHASES}
    for i, layer in enumerate(model.graph.layers):
        part = _parts(layer, bool(sizes.flat[i]), splits)
        for phase in LAYER_PHASES:
            if model.graph.has_phase(i, phase):
                inner = model.graph.has_phase(i, "activation_gradient")
                columns = [
                    kernel_s(p, model.graph.name, layer, phase, part, model.graph.element_bytes, inner=inner)
                    for p in model.profiles
                ]
                times[phase][:, i] = np.where(used, np.column_stack(columns), 0.0).max(axis=1)
    return times


def _parts(layer: Layer, flat: bool, splits: Sequence[Split]) -> dict[str, Floats]:
    """Return the sizes of the largest part in each output dimension, and its slices of a sum, shape (C,) each."""
    sums = sums_of_channels(layer)
    degrees = np.ones((len(splits), len(layer.output.dims)))
    for c, split in enumerate(splits):
        if flat or not split.grid:
            degrees[c, 1] = split.filters * split.grid_parts * (1 if sums else split.channels)
        else:
            degrees[c, 2:] = split.grid
    part = {"sample": np.array([np.ceil(split.samples) for split in splits])}
    for d, (dim, size) in enumerate(zip(layer.output.dims, layer.output.sizes, strict=True)):
        if dim != "sample":
            degree = np.minimum(degrees[:, d], size) if dim in layer.parallel_dims else np.ones(len(splits))
            part[dim] = np.ceil(size / degree)
    if sums and any(split.channels > 1 for split in splits):
        shared = math.gcd(sums, layer.output.size("channel"))  # as in the strategy ``channel``
        part[SUMMED] = np.array([float(largest_divisor(shared, split.channels)) for split in splits])
    return part
