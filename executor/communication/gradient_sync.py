"""Gradient synchronisation: gradients summed over replicas while the rank computes; the base of its two kinds."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.communication.reduction import Reducer
from executor.communication.shard_collectives import ShardCollectives
from executor.layers.base import NO_BUFFERS
from executor.program.rank_program import RankProgram
from executor.program.recorder import Recorder
from executor.runtime.devices import ComputeDevice, Handle, Lane, torch_type
from executor.runtime.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class Residual:
    """The part of a layer's gradients that one replica's compressed messages have left out so far."""

    replica: int
    """Index of the replica among those that sum."""
    replicas: int
    tensors: dict[str, Tensor]
    """Residual of each parameter, of the shape of the slice that the rank holds."""


class GradientSync(ABC):
    """Sums every layer's gradients over its replicas."""

    _carrier: Reducer | ShardCollectives
    """What sends the gradients."""

    def __init__(self, view: RankProgram, device: ComputeDevice, recorder: Recorder, options: RunOptions) -> None:
        self.overlap, self._timeout_s = options.overlap, options.timeout_s
        self._view, self._device, self._recorder = view, device, recorder
        types = view.program.types
        self._dtype, self._casts = torch_type(types.message), types.message != types.activation
        """Type in which gradients are summed over replicas."""
        self._lanes: list[Lane] = []
        self._flat_buffers: list[Tensor] = []
        self._buffers: dict[int, dict[str, Tensor]] = {}

    @property
    def held_bytes(self) -> float:
        """Most bytes so far of the buffers in which gradients are summed, and of the sums."""
        return float(sum(buffer.nbytes for buffer in self._flat_buffers))

    def sums_each(self, layer: int) -> bool:
        """Return whether a layer's gradients are summed for each micro-batch, though parameters are updated once."""
        return False

    def buffers_of(self, layer: int) -> Mapping[str, Tensor]:
        """Return the buffers in which a layer's gradients are summed, by parameter.

        There are none for a layer without replicas, and where gradients are summed in another type.  They may be
        written between the layer's update and its ``submit``.
        """
        return NO_BUFFERS if self._casts else self._buffers.get(layer, NO_BUFFERS)

    def submit(self, layer: int, gradients: Mapping[str, Tensor]) -> bool:
        """Begin the layer's next reduction as soon as all that must come first has begun.

        Returns:
            False where the layer has no replicas: its gradients are complete.
        """
        buffers = self._buffers.get(layer)
        if buffers is None:
            return False
        for name, buffer in buffers.items():
            if gradients[name] is not buffer:
                buffer.copy_(gradients[name])
        for handle in self._begin(layer):
            if not self.overlap:
                handle.wait(self._timeout_s)
        return True

    def wait(self, layer: int) -> dict[str, Tensor]:
        """Return a layer's gradients once they are summed; they are valid until the next ones are written.

        Raises:
            TimeoutError: They are not summed in time.
            RuntimeError: A connection broke.
        """
        self._last(layer).wait(self._timeout_s)
        return self._buffers[layer]

    def release(self, layer: int) -> None:
        """Note that a layer is updated and its sums are not read again; here they stay allocated for the whole run."""
        return

    def residuals(self) -> dict[int, Residual]:
        """Return the residuals of each layer whose compression keeps any; to be read or overwritten between steps."""
        return {}

    def close(self) -> None:
        """End threads and connections; all ranks must call it together."""
        for lane in self._lanes:
            lane.close()
        self._carrier.close()

    @abstractmethod
    def _begin(self, layer: int) -> Sequence[Handle]:
        """Begin all reductions that waited for a layer's gradients."""

    @abstractmethod
    def _last(self, layer: int) -> Handle:
        """Return the reduction after which a layer's gradients are complete."""

    def _allocate(self, layers: Sequence[int]) -> Tensor:
        """Allocate a flat buffer for the gradients of some layers, one after another."""
        graph = self._view.program.graph
        shapes = {}
        for i in layers:
            boxes = self._view.parts.parameters(i)
            shapes[i] = {each.name: boxes[each.name].shape for each in graph.layers[i].parameters if each.elements}
        size = sum(math.prod(shape) for rows in shapes.values() for shape in rows.values())
        flat = torch.zeros(size, dtype=self._dtype, device=self._device.torch_device)
        self._flat_buffers.append(flat)
        self._buffers |= views_of(flat, shapes)
        return flat


def views_of(flat: Tensor, shapes: Mapping[int, Mapping[str, Sequence[int]]]) -> dict[int, dict[str, Tensor]]:
    """Return views of a flat buffer, one for each layer and parameter, one after another."""
    views = iter(flat.split([math.prod(shape) for rows in shapes.values() for shape in rows.values()]))
    return {
        layer: {name: next(views).view(tuple(shape)) for name, shape in rows.items()} for layer, rows in shapes.items()
    }
