"""Indices of maxima that a part keeps for its backward pass, against what PyTorch saves."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the oracle is torch")

from planner.graph.shapes import Shape  # noqa: E402
from planner.operations.base import Part  # noqa: E402
from planner.operations.pooling import GlobalPooling, Pooling  # noqa: E402

SIZES = (4, 6, 9, 7)


@pytest.mark.parametrize("mode", ["max", "average"])
@pytest.mark.parametrize("whole", [True, False])
def test_only_maxima_keep_indices(mode, whole):
    fields = {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 0)}
    operation = GlobalPooling(mode=mode) if whole else Pooling(mode=mode, **fields)
    layers = {
        (True, "max"): torch.nn.AdaptiveMaxPool2d(1),
        (True, "average"): torch.nn.AdaptiveAvgPool2d(1),
        (False, "max"): torch.nn.MaxPool2d(*fields.values()),
        (False, "average"): torch.nn.AvgPool2d(*fields.values()),
    }
    saved_bytes = []

    def keep(tensor):
        saved_bytes.append(tensor.nbytes if tensor.dtype == torch.int64 else 0)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layers[whole, mode](torch.zeros(SIZES, requires_grad=True))
    shape = Shape(("sample", "channel", "height", "width"), SIZES)
    output = operation.output([shape])
    sizes = {dim: np.array([float(size)]) for dim, size in zip(output.dims, output.sizes, strict=True)}

    kept = operation.saved_tensors(Part((shape,), output, sizes))

    assert np.sum(kept.index_bytes) == sum(saved_bytes)
