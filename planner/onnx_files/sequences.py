"""Lists of tensors, as PyTorch's exporter writes the parts of a split: ``SplitToSequence`` and ``SequenceAt``."""

import math

import numpy as np

from planner.onnx_files.node_view import NodeView
from planner.tracing.trace import Argument, TraceTensor

SEQUENCES = ("SplitToSequence", "SequenceAt")
MOST_PARTS = 1000
"""Most parts of a split."""


def read_sequence(node: NodeView) -> None:
    """Translate a node that makes a list of parts, or takes one of them.

    Raises:
        ConfigError: The sizes of the parts, or the place of the part, depend on the data.
    """
    from onnx import helper

    known, name = node.known, node.proto.output[0]
    if node.proto.op_type == "SequenceAt":
        count = known.sizes[node.proto.input[0]].shape[0]
        position = int(node.elements(1, "position"))
        if not -count <= position < count:
            raise node.problem(f"position must be that of one of {count} parts, got {position}")
        known.add(name, known.types[f"{node.proto.input[0]} {position % count}"])
        node.ends("getitem", **{"0": node.input(0), "1": position % count})
        return
    shape, axis = node.shape(), node.attribute("axis", 0)
    axis %= len(shape)
    sizes = node.elements(1, "split") if node.has(1) else np.array(1)
    if sizes.ndim == 0 and int(sizes) < 1:
        raise node.problem(f"split must be >= 1, got {int(sizes)}")
    if (math.ceil(shape[axis] / int(sizes)) if sizes.ndim == 0 else sizes.size) > MOST_PARTS:
        raise node.problem(f"split must make at most {MOST_PARTS:,} parts")
    if sizes.ndim == 0:
        step = int(sizes)
        rows = [min(step, shape[axis] - i) for i in range(0, shape[axis], step)]
    else:
        rows = [int(size) for size in sizes]
    element = known.types[node.proto.input[0]].tensor_type.elem_type
    parts = []
    for i, size in enumerate(rows):
        part = (*shape[:axis], size, *shape[axis + 1 :])
        known.add(f"{name} {i}", helper.make_tensor_type_proto(element, part))
        parts.append(TraceTensor(part, known.sizes[node.proto.input[0]].floating))
    known.sizes[name] = TraceTensor((len(parts),), floating=False)
    node.list_of(parts, "split", self=Argument(node.proto.input[0]), dim=axis)
