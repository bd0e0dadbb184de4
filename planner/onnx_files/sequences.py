"""Lists of tensors, as PyTorch's exporter writes the parts of a split: ``SplitToSequence`` and ``SequenceAt``."""

from planner.onnx_files.node_view import NodeView
from planner.tracing import Argument, TraceTensor

__all__ = ["SEQUENCES", "read_sequence"]

SEQUENCES = ("SplitToSequence", "SequenceAt")


def read_sequence(node: NodeView) -> None:
    """Translate a node that makes a list of parts, or takes one of them.

    Raises:
        ConfigError: The sizes of the parts, or the place of the part, depend on the data.
    """
    from onnx import helper

    known, name = node.known, node.proto.output[0]
    if node.proto.op_type == "SequenceAt":
        kind = known.types[f"{node.proto.input[0]} {int(node.elements(1, 'position')):d}"]
        known.add(name, kind)
        node.ends("getitem", **{"0": node.input(0), "1": int(node.elements(1, "position"))})
        return
    shape, axis = node.shape(), node.attribute("axis", 0)
    axis %= len(shape)
    sizes = node.elements(1, "split")
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
    known.sizes[name] = TraceTensor(())
    node.list_of(parts, "split", self=Argument(node.proto.input[0]), dim=axis)
