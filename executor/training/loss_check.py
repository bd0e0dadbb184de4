"""Check that losses are finite, with the first layer whose output is not."""

import math
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor


class LossCheck:
    """Checks the losses of a training step."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.begin(0)

    def begin(self, step: int) -> None:
        """Begin a training step."""
        self._step = step
        self._outputs: list[tuple[int, weakref.ref[Tensor]]] = []

    def watch(self, layer: int, output: Tensor) -> None:
        """Add the output of a layer to those searched for the cause, without keeping it in memory."""
        self._outputs.append((layer, weakref.ref(output)))

    def check(self, layer: int, loss: Tensor) -> None:
        """Check the loss that a layer computes.

        Raises:
            FloatingPointError: The loss is not finite; the message names the first layer seen to be at fault.
        """
        if not math.isfinite(loss):
            raise FloatingPointError(self._cause(layer))

    def _cause(self, layer: int) -> str:
        """Return a message with the origin of a loss that is not finite, as far as this rank can see."""
        for index, watched in self._outputs:
            output = watched()
            if output is not None and not bool(torch.isfinite(output).all()):
                name = self._names[index]
                return f"loss is not finite at step {self._step}: {name} is the first layer with such outputs"
        return f"loss is not finite at step {self._step}, in layer {self._names[layer]}"
