"""Pooling over windows, and over all positions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from groundwork.errors import ConfigError
from hwprofiles.compute.kernels import Kernels
from planner.graph.operation import SavedTensors
from planner.graph.shapes import IntervalMap, Shape, interval_map
from planner.operations.base import INDEX_BYTES, OperationBase, Part
from planner.operations.checks import check_window, shape_text, single, window_size

_MODES = ("max", "average")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling(OperationBase):
    """Maximum or mean of each window; a mean counts the zeros of the padding.

    Traffic: forward inputs and outputs once; backward both gradients once, and for the maximum also the
    inputs and outputs, to locate it.  Operations: one for each input of a window.
    """

    kind: ClassVar[str] = "pooling"
    mode: str
    """``max`` or ``average``."""
    kernel: tuple[int, ...]
    """Size of the window in each position dimension, as for the next two."""
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    ceil_mode: bool = False
    """True if the last window may end behind the padded input."""

    def __post_init__(self) -> None:
        _check_mode("pooling", self.mode)
        check_window("pooling", self.kernel, self.stride, self.pad, (1,) * len(self.kernel))
        for kernel, pad in zip(self.kernel, self.pad, strict=True):
            if 2 * pad > kernel:
                raise ConfigError(f"pooling.pad must be at most half the kernel {kernel}, got {pad}")

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the output: sample, channel, positions."""
        shape = single("pooling", inputs, len(self.kernel))
        windows = zip(shape.positions, self.kernel, self.stride, self.pad, strict=True)
        ceil_mode = self.ceil_mode
        positions = (
            window_size("pooling", size, kernel=k, stride=s, pad=p, ceil_mode=ceil_mode) for size, k, s, p in windows
        )
        return Shape(shape.dims, (*shape.sizes[:2], *positions))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return the same samples and channels, and the windows of a part's positions."""
        windows = zip(inputs[0].dims[2:], self.kernel, self.stride, self.pad, strict=True)
        return (
            interval_map(dim="sample"),
            interval_map(dim="channel"),
            *(interval_map(dim=dim, kernel=k, stride=s, pad=p) for dim, k, s, p in windows),
        )

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the input, which frameworks keep for its shape, and the indices of the maxima."""
        return SavedTensors(inputs=True, index_bytes=INDEX_BYTES * part.outputs if self.mode == "max" else 0.0)

    def _forward(self, part: Part) -> Kernels:
        flop = part.outputs * math.prod(self.kernel)
        return part.streaming(flop=flop, elements=self.read_elements(part) + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        accesses = 2 if self.mode == "max" else 1
        flop = part.outputs * math.prod(self.kernel)
        return part.streaming(flop=flop, elements=accesses * (self.read_elements(part) + part.outputs))


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalPooling(OperationBase):
    """Maximum or mean over all positions, which stay as dimensions of size 1.

    Traffic: as for ``Pooling``.  Operations: one for each input.
    """

    kind: ClassVar[str] = "global_pooling"
    mode: str = "average"
    """``max`` or ``average``."""

    def __post_init__(self) -> None:
        _check_mode("global_pooling", self.mode)

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the shape of the output: sample, channel, positions of size 1."""
        shape = single("global_pooling", inputs)
        if not shape.positions:
            raise ConfigError(f"global_pooling needs positions to pool over, got {shape_text(shape)}")
        return Shape(shape.dims, (*shape.sizes[:2], *(1 for _ in shape.positions)))

    def interval_maps(self, slot: int, inputs: Sequence[Shape]) -> tuple[IntervalMap, ...]:
        """Return all positions of a part's samples and channels."""
        return tuple(interval_map(dim=dim if dim in ("sample", "channel") else None) for dim in inputs[0].dims)

    def saved_tensors(self, part: Part) -> SavedTensors:
        """Return the indices of the maxima; a mean keeps nothing."""
        return SavedTensors(index_bytes=INDEX_BYTES * part.outputs if self.mode == "max" else 0.0)

    def _forward(self, part: Part) -> Kernels:
        read = self.read_elements(part)
        return part.streaming(flop=read, elements=read + part.outputs)

    def _activation_gradient(self, part: Part) -> Kernels:
        read = self.read_elements(part)
        accesses = 2 if self.mode == "max" else 1
        return part.streaming(flop=read, elements=accesses * (read + part.outputs))


def _check_mode(kind: str, mode: str) -> None:
    """Refuse a mode that is neither the maximum nor the mean."""
    if mode not in _MODES:
        raise ConfigError(f"{kind}.mode must be one of {', '.join(_MODES)}, got {mode!r}")
