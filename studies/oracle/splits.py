"""Splits of the layers by the cases, and the times of the part that a device holds, for all cases at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from groundwork.array_types import Floats
from planner.cost.compute_time import kernel_s
from planner.cost.cost_model import CostModel
from planner.graph.computation_graph import LAYER_PHASES, Layer
from planner.graph.shapes import IN_CHANNEL
from planner.parallel.degrees import largest_divisor
from planner.parallel.input_channel_split import reducing_operation
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
        sums = reducing_operation(layer) is not None and not layer.reads_data
        part = _parts(layer, bool(sizes.flat[i]), sums, splits)
        for phase in LAYER_PHASES:
            if model.graph.has_phase(i, phase):
                inner = model.graph.has_phase(i, "activation_gradient")
                columns = [_seconds(model, k, layer, phase, part, inner) for k in range(len(model.profiles))]
                times[phase][:, i] = np.where(used, np.column_stack(columns), 0.0).max(axis=1)
        _reduced(model, i, [c for c, split in enumerate(splits) if sums and split.channels > 1], splits, times)
    return times


def _seconds(
    model: CostModel, profile: int, layer: Layer, phase: str, part: dict[str, Floats], inner: bool = True
) -> Floats:
    graph = model.graph
    return kernel_s(model.profiles[profile], graph.name, layer, phase, part, graph.element_bytes, inner=inner)


def _parts(layer: Layer, flat: bool, sums: bool, splits: Sequence[Split]) -> dict[str, Floats]:
    """Return the sizes of the largest part in each dimension of the output, shape (C,) each.

    Args:
        layer: The layer.
        flat: Whether the layer has no positions to split.
        sums: Whether a split of its input channels makes partial sums, which keep all output channels.
        splits: Splits of C cases.
    """
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
    return part


def _reduced(model: CostModel, i: int, cases: Sequence[int], splits: Sequence[Split], times: dict[str, Floats]) -> None:
    """Set the times of a layer that sums over its input channels, where each device reads a part of them.

    As in plans, a device computes the product of one slice of the channels, then, for an equal share of the output
    channels, the sum of the partial products with the operations that follow.

    Args:
        model: Prices of the network on the cluster.
        i: The layer.
        cases: Cases that split the layer's input channels.
        splits: Splits of all cases.
        times: Times by phase, shape (C, G) each, which are changed.
    """
    for c in cases:
        channels = splits[c].channels
        graph = model.with_slices(_slices(model, channels)).graph
        slices = [k for k, origin in enumerate(graph.origin) if origin == i]
        used = np.unique(model.profile_of[: splits[c].devices]).tolist()
        if len(slices) == 1:  # no degree but 1 divides the channels
            continue
        for phase in LAYER_PHASES:
            times[phase][c, i] = 0.0
            for k in slices:
                if graph.has_phase(k, phase):
                    part = _slice_part(graph.layers[k], splits[c])
                    times[phase][c, i] += max(float(_seconds(model, p, graph.layers[k], phase, part)[0]) for p in used)


def _slices(model: CostModel, channels: int) -> dict[str, int]:
    """Return the number of slices of every layer that can have several, as in the strategy ``channel``."""
    degrees = {}
    for layer in model.graph.layers:
        if reducing_operation(layer) is not None and not layer.reads_data:
            shared = math.gcd(layer.input_shapes[0].size("channel"), layer.output.size("channel"))
            degrees[layer.name] = largest_divisor(shared, channels)
    return {name: degree for name, degree in degrees.items() if degree > 1}


def _slice_part(layer: Layer, split: Split) -> dict[str, Floats]:
    """Return the sizes of a device's part of a sliced layer.

    The part is one slice of a partial product, or a share of the output channels of the sum of partial products.
    """
    part = {dim: float(size) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    part["sample"] = float(np.ceil(split.samples))
    if IN_CHANNEL in part:
        part[IN_CHANNEL] = 1.0
    else:
        part["channel"] /= layer.input_shapes[0].size(IN_CHANNEL)
    return {dim: np.array([size]) for dim, size in part.items()}
