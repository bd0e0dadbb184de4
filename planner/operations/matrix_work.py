"""Work of products with trained matrices: one price, whatever dimensions their operands have."""

from abc import abstractmethod

from groundwork.array_types import Floats
from hwprofiles.compute.kernels import Kernels
from planner.operations.base import OperationBase, Part


class MatrixWork(OperationBase):
    """Work of a product that sums so many terms for each element of its output.

    Work: flop = 2 x outputs x terms, the same for each of the two gradients.  Traffic: inputs, weights and outputs
    once; the gradient of a bias, a sum over all rows, is a pass of its own over the outputs' gradient, while its
    addition is part of the product.
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

    def _forward(self, part: Part) -> Kernels:
        rows = self._rows(part)
        return self._product(part, rows=rows, columns=part.outputs / rows, depth=self._depth(part))

    def _activation_gradient(self, part: Part) -> Kernels:
        rows, depth = self._depth(part), self._rows(part)
        return self._product(part, rows=rows, columns=part.outputs / depth, depth=depth)

    def _weight_gradient(self, part: Part) -> Kernels:
        weights = self.parameters(part.inputs)
        if not weights:
            return part.streaming(flop=0.0, elements=0.0)
        biases = sum(len(weight.module_shape) == 1 and bool(weight.elements) for weight in weights)
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
    ) -> Kernels:
        elements = self.all_inputs(part) + self.held_elements(part) + part.outputs
        return part.matrix(rows=rows, columns=columns, depth=depth, elements=elements, streamed=streamed)
