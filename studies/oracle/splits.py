"""How each case splits the layers, and the times of the part that a device holds, for all cases at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwprofiles import Floats
from planner.cost import CostModel, kernel_s
from planner.graph import IN_CHANNEL, LAYER_PHASES, Layer
from planner.parallel import largest_divisor, reducing_operation
from studies.oracle.layer_sizes import Sizes

__all__ = ["Split", "layer_times"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What one device holds in one case."""

    devices: int
    """The first so many of the cluster take part."""
    samples: float
    """Samples of a layer at once: of a micro-batch in a pipeline."""
    filters: int = 1
    """Degree of the output channels."""
    channels: int = 1
    """Degree of the input channels; layers that read the data are split by filters instead."""
    grid: tuple[int, ...] = ()
    """Degrees of the positions; layers without any are split by filters."""

    @property
    def places(self) -> int:
        """Parts of the grid."""
        return int(np.prod(self.grid, dtype=np.int64))


def layer_times(model: CostModel, sizes: Sizes, splits: Sequence[Split]) -> dict[str, Floats]:
    """Times of the largest part of every layer on the slowest device that takes part.

    Args:
        model: Prices; its batch does not matter.
        sizes: Of the same network.
        splits: C cases.

    Returns:
        For each of ``LAYER_PHASES``, seconds, shape (C, G).
    """
    used = np.array([np.isin(np.arange(len(model.profiles)), model.profile_of[: s.devices]) for s in splits])
    times = {phase: np.zeros((len(splits), len(sizes.y))) for phase in LAYER_PHASES}
    for i, layer in enumerate(model.graph.layers):
        sums = reducing_operation(layer) is not None and "input" not in layer.inputs
        part = _parts(layer, bool(sizes.flat[i]), sums, splits)
        for phase in LAYER_PHASES:
            if model.graph.has_phase(i, phase):
                columns = [_seconds(model, k, layer, phase, part) for k in range(len(model.profiles))]
                times[phase][:, i] = np.where(used, np.column_stack(columns), 0.0).max(axis=1)
        _reduced(model, i, [c for c, split in enumerate(splits) if sums and split.channels > 1], splits, times)
    return times


def _seconds(model: CostModel, profile: int, layer: Layer, phase: str, part: dict[str, Floats]) -> Floats:
    graph = model.graph
    return kernel_s(model.profiles[profile], graph.name, layer, phase, part, graph.element_bytes)


def _parts(layer: Layer, flat: bool, sums: bool, splits: Sequence[Split]) -> dict[str, Floats]:
    """Sizes of the largest part in each dimension, shape (C,) each."""
    degrees = np.ones((len(splits), len(layer.output.dims)))
    for c, split in enumerate(splits):
        if flat or not split.grid:
            # partial sums keep all output channels
            degrees[c, 1] = split.filters * split.places * (1 if sums else split.channels)
        else:
            degrees[c, 2:] = split.grid
    part = {"sample": np.array([np.ceil(split.samples) for split in splits])}
    for d, (dim, size) in enumerate(zip(layer.output.dims, layer.output.sizes, strict=True)):
        if dim != "sample":
            degree = np.minimum(degrees[:, d], size) if dim in layer.parallel_dims else np.ones(len(splits))
            part[dim] = np.ceil(size / degree)
    return part


def _reduced(model: CostModel, i: int, cases: Sequence[int], splits: Sequence[Split], times: dict[str, Floats]) -> None:
    """Times of a layer that sums over its input channels where it reads a part of them: its product and its sum.

    As plans have it: the product of one slice, then the sum with what follows it, of an equal share of the channels.
    """
    for c in cases:
        channels = splits[c].channels
        graph = model.with_slices(_slices(model, channels)).graph
        pieces = [k for k, origin in enumerate(graph.origin) if origin == i]
        used = np.unique(model.profile_of[: splits[c].devices]).tolist()
        if len(pieces) == 1:  # the degree divides no better than whole
            continue
        for phase in LAYER_PHASES:
            times[phase][c, i] = 0.0
            for k in pieces:
                if graph.has_phase(k, phase):
                    part = _piece(graph.layers[k], splits[c])
                    times[phase][c, i] += max(float(_seconds(model, p, graph.layers[k], phase, part)[0]) for p in used)


def _slices(model: CostModel, channels: int) -> dict[str, int]:
    """Slices of every layer that can have some, as the strategy ``channel`` has them."""
    found = {}
    for layer in model.graph.layers:
        if reducing_operation(layer) is not None and "input" not in layer.inputs:
            shared = math.gcd(layer.input_shapes[0].size("channel"), layer.output.size("channel"))
            found[layer.name] = largest_divisor(shared, channels)
    return {name: degree for name, degree in found.items() if degree > 1}


def _piece(layer: Layer, split: Split) -> dict[str, Floats]:
    """Sizes of a part of a partial product, one slice, or of a sum of them, a share of the channels."""
    part = {dim: float(size) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)}
    part["sample"] = float(np.ceil(split.samples))
    if IN_CHANNEL in part:
        part[IN_CHANNEL] = 1.0
    else:
        part["channel"] /= layer.input_shapes[0].size(IN_CHANNEL)
    return {dim: np.array([size]) for dim, size in part.items()}
