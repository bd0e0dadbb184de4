"""How each case splits the layers, and the times of the part that a device holds, for all cases at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.costs import CostModel, kernel_s
from planner.graph import PHASES, Layer
from planner.oracle.sizes import Sizes
from planner.shapes import Shape

__all__ = ["Split", "layer_times"]

Floats = NDArray[np.float64]


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
        For each of ``PHASES``, seconds, shape (C, G).
    """
    used = np.array([np.isin(np.arange(len(model.profiles)), model.profile_of[: s.devices]) for s in splits])
    times = {phase: np.zeros((len(splits), len(sizes.y))) for phase in PHASES}
    for i, layer in enumerate(model.graph.layers):
        part = _parts(layer, bool(sizes.flat[i]), bool(sizes.mixing[i] and not sizes.first[i]), splits)
        for phase in PHASES:
            if model.graph.has_phase(i, phase):
                columns = [_seconds(model, k, layer, phase, part) for k in range(len(model.profiles))]
                times[phase][:, i] = np.where(used, np.column_stack(columns), 0.0).max(axis=1)
        _reduced(model, i, sizes, splits, times)
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


def _reduced(model: CostModel, i: int, sizes: Sizes, splits: Sequence[Split], times: dict[str, Floats]) -> None:
    """Scale a layer's times where it reads a part of the input channels, by the profile's ratio for such a layer."""
    layer = model.graph.layers[i]
    cases = [c for c, split in enumerate(splits) if split.channels > 1]
    if not cases or not sizes.mixing[i] or sizes.first[i]:
        return
    part = {
        dim: np.full(len(cases), float(size)) for dim, size in zip(layer.output.dims, layer.output.sizes, strict=True)
    }
    part["sample"] = np.ceil([splits[c].samples for c in cases])
    profile = model.profiles[int(model.profile_of[0])]
    for phase, seconds in times.items():
        whole = profile.time_s(layer.kernels(phase, part), phase=phase, winograd=layer.operation.winograd)
        for k, c in enumerate(cases):
            one = {dim: sizes_of[k : k + 1] for dim, sizes_of in part.items()}
            narrow = _narrow(layer, splits[c].channels).kernels(phase, one)
            share = float(profile.time_s(narrow, phase=phase, winograd=layer.operation.winograd)[0])
            seconds[c, i] *= share / whole[k] if whole[k] > 0 else 1.0


def _narrow(layer: Layer, degree: int) -> Layer:
    """The layer with its share of the input channels; a grouped convolution keeps a channel for each group."""
    shape = layer.input_shapes[0]
    groups = getattr(layer.operation, "groups", 1)
    channels = max(-(-shape.size("channel") // degree), groups) // groups * groups
    return replace(layer, input_shapes=(Shape(shape.dims, (shape.sizes[0], channels, *shape.sizes[2:])),))
