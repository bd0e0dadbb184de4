"""Work of products with trained matrices: one price, whatever dimensions their operands have."""

from abc import abstractmethod
from collections.abc import Sequence

from groundwork.array_types import Floats
from hwprofiles.compute.kernels import ConvolutionWindow, Kernels
from planner.operations.base import OperationBase, Part


class MatrixWork(OperationBase):
    """Work of a product that sums so many terms for each element of its output.

    Work: flop = 2 x outputs x terms, the same for each of the two gradients.  Traffic: inputs, weights and outputs
    once; the gradient of a bias, a sum over all rows, is a pass of its own over the outputs' gradient, while its
    addition is part of the product.  Passes of a convolution's bias are for the software to say.
    """

    __slots__ = ()

    @abstractmethod
    def _rows(self, part: Part) -> Floats | float:
        """Return the rows of the product of each part: the features that it computes."""

    @abstractmethod
    def _depth(self, part: Part) -> Floats | float:
        """Return the terms of each sum of each part."""

    def _matrices(self, part: Part) -> Floats | float:
        """Return the products of each part that have matrices of their own: one, unless a kind overrides it."""
        return 1.0

    @property
    def _loaded_share(self) -> float:
        """Share of the inputs that the product and the gradient of its weights read."""
        return 1.0

    @property
    def window(self) -> ConvolutionWindow | None:
        """Geometry of a convolution; None, unless a kind overrides it."""
        return None

    def _weights(self, part: Part) -> Floats:
        """Return the elements of the parameters that the products of each part read."""
        return self.held_elements(part)

    def _streamed(self, part: Part) -> tuple[Floats | float, Floats | float]:
        """Return the elements that passes read and write behind the product, and with the gradient of its weights."""
        if self.window:  # software says what the bias of a convolution costs
            return 0.0, 0.0
        biases = sum(each.elements > 0 and len(each.module_shape) == 1 for each in self.parameters(part.inputs))
        return 0.0, biases * part.outputs / (part.slices if self.completes_sums else 1.0)

    def _forward(self, part: Part) -> Kernels:
        rows, streamed = self._rows(part), self._streamed(part)[0]
        return self._product(part, rows, part.outputs / rows, self._depth(part), streamed=streamed)

    def _activation_gradient(self, part: Part) -> Kernels:
        # With stride > 1 an input position meets only some positions of the kernel; output positions as columns and
        # all kernel positions in the depth count exactly those multiply-adds.
        made, volume = self._rows(part), self.window.positions if self.window else 1
        return self._product(part, self._depth(part) / volume, part.outputs / made, made * volume, loads=False)

    def _weight_gradient(self, part: Part) -> Kernels:
        if not self.parameters(part.inputs):
            return part.streaming(flop=0.0, elements=0.0)
        rows, matrices, streamed = self._rows(part), self._matrices(part), self._streamed(part)[1]
        columns, depth = self._depth(part) * matrices, part.outputs / (rows * matrices)
        return self._product(part, rows, columns, depth, streamed=streamed)

    def _product(
        self,
        part: Part,
        rows: Floats | float,
        columns: Floats | float,
        depth: Floats | float,
        *,
        streamed: Floats | float = 0.0,
        loads: bool = True,
    ) -> Kernels:
        inputs = self.all_inputs(part) * (self._loaded_share if loads else 1.0)
        elements = inputs + self._weights(part) + part.outputs
        return part.matrix(
            rows=rows, columns=columns, depth=depth, elements=elements, streamed=streamed, window=self.window
        )


def loaded_share(kernel: Sequence[int], stride: Sequence[int]) -> float:
    """Return the share of an input's rows that windows touch: strides larger than a window pass over others."""
    return min(kernel[0] / stride[0], 1.0) if len(kernel) > 1 else 1.0
