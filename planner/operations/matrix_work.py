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

    def _forward(self, part: Part) -> Kernels:
        rows = self._rows(part)
        return self._product(part, rows=rows, columns=part.outputs / rows, depth=self._depth(part))

    def _activation_gradient(self, part: Part) -> Kernels:
        # With stride > 1 an input position meets only some positions of the kernel; output positions as columns and
        # all kernel positions in the depth count exactly those multiply-adds.
        made, volume = self._rows(part), self.window.positions if self.window else 1
        rows, columns = self._depth(part) / volume, part.outputs / made
        return self._product(part, rows=rows, columns=columns, depth=made * volume, loads=False)

    def _weight_gradient(self, part: Part) -> Kernels:
        weights = self.parameters(part.inputs)
        if not weights:
            return part.streaming(flop=0.0, elements=0.0)
        trained = [each for each in weights if each.elements and not self.window]  # software says it of convolutions
        biases = sum(len(each.module_shape) == 1 for each in trained)
        rows, matrices = self._rows(part), self._matrices(part)
        return self._product(
            part,
            rows=rows,
            columns=self._depth(part) * matrices,
            depth=part.outputs / (rows * matrices),
            streamed=biases * part.outputs / (part.slices if self.completes_sums else 1.0),
        )

    def _product(
        self,
        part: Part,
        *,
        rows: Floats | float,
        columns: Floats | float,
        depth: Floats | float,
        streamed: Floats | float = 0.0,
        loads: bool = True,
    ) -> Kernels:
        inputs = self.all_inputs(part) * (self._loaded_share if loads else 1.0)
        return part.matrix(
            rows=rows,
            columns=columns,
            depth=depth,
            elements=inputs + self.held_elements(part) + part.outputs,
            streamed=streamed,
            window=self.window,
        )


def loaded_share(kernel: Sequence[int], stride: Sequence[int]) -> float:
    """Return the share of an input's rows that windows touch: strides larger than a window pass over others."""
    return min(kernel[0] / stride[0], 1.0) if len(kernel) > 1 else 1.0
