"""Gradients summed over replicas beside what a rank computes: what all ways to do it share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.communication.reduction import Reducer
from executor.layers import NOWHERE, parameter_box
from executor.program import RankProgram, Recorder
from executor.runtime import DTYPES, ComputeDevice, Handle, Lane

__all__ = ["GradientSync", "Residual", "views_of"]


@dataclass(frozen=True, slots=True)
class Residual:
    """What one replica of a layer's parameters keeps of gradients that its codes left out."""

    replica: int
    """Its place among those that sum."""
    replicas: int
    tensors: dict[str, Tensor]
    """By parameter, of the shape of the slice that the rank holds."""


class GradientSync(ABC):
    """Sums every layer's gradients over its replicas.

    Args:
        view: What this rank takes part in.
        device: Whose lanes run the sums.
        recorder: Told when tasks begin and end.
        overlap: Off: each sum is waited for before anything else is computed.
        timeout_s: How long a sum may keep the rank waiting.
    """

    def __init__(
        self, view: RankProgram, device: ComputeDevice, recorder: Recorder, *, overlap: bool, timeout_s: float
    ) -> None:
        self.overlap, self._timeout_s = overlap, timeout_s
        self._view, self._device, self._recorder = view, device, recorder
        self._reducer = Reducer(view, recorder, statistics=False, device=device.torch_device)
        self._lanes: list[Lane] = []
        self._flats: list[Tensor] = []
        self._places: dict[int, dict[str, Tensor]] = {}

    @property
    def buffers(self) -> list[Tensor]:
        """Where gradients are summed."""
        return self._flats

    def places(self, layer: int) -> Mapping[str, Tensor]:
        """By name, where a layer's gradients are summed, if it has replicas; free from its update to its ``submit``."""
        return self._places.get(layer, NOWHERE)

    def submit(self, layer: int, gradients: Mapping[str, Tensor]) -> bool:
        """Sum a layer's gradients, the next of its sums, as soon as nothing else has to come first.

        Returns:
            False where the layer has no replicas: its gradients are whole as they are.
        """
        places = self._places.get(layer)
        if places is None:
            return False
        for name, place in places.items():
            if gradients[name] is not place:
                place.copy_(gradients[name])
        for begun in self._begin(layer):
            if not self.overlap:
                begun.wait(self._timeout_s)
        return True

    def wait(self, layer: int) -> dict[str, Tensor]:
        """A layer's gradients, once they are summed; to be read before the next exist.

        Raises:
            TimeoutError: They are not summed in time.
            RuntimeError: A connection broke.
        """
        self._last(layer).wait(self._timeout_s)
        return self._places[layer]

    def residuals(self) -> dict[int, Residual]:
        """By layer, what codes have left out so far, where their type keeps it; loads write into it.  Between steps."""
        return {}

    def close(self) -> None:
        """End what runs beside; all ranks must call it together."""
        for lane in self._lanes:
            lane.close()
        self._reducer.close()

    @abstractmethod
    def _begin(self, layer: int) -> Sequence[Handle]:
        """Begin all that a layer's gradients were awaited for."""

    @abstractmethod
    def _last(self, layer: int) -> Handle:
        """What a layer's gradients are whole after."""

    def _make_places(self, layers: Sequence[int]) -> Tensor:
        """A buffer for the gradients of some layers, one after another."""
        graph = self._view.program.graph
        shapes = {
            i: {
                parameter.name: parameter_box(parameter, self._view.held(i), graph.layers[i].output).shape
                for parameter in graph.layers[i].parameters
            }
            for i in layers
        }
        size = sum(math.prod(shape) for rows in shapes.values() for shape in rows.values())
        flat = torch.zeros(size, dtype=DTYPES[graph.element_bytes], device=self._device.torch_device)
        self._flats.append(flat)
        self._places |= views_of(flat, shapes)
        return flat


def views_of(flat: Tensor, shapes: Mapping[int, Mapping[str, Sequence[int]]]) -> dict[int, dict[str, Tensor]]:
    """By layer and parameter, its place in a buffer that holds all of them, one after another."""
    pieces = iter(flat.split([math.prod(shape) for rows in shapes.values() for shape in rows.values()]))
    return {
        layer: {name: next(pieces).view(tuple(shape)) for name, shape in rows.items()} for layer, rows in shapes.items()
    }
