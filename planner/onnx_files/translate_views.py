"""Views, slices, joins and padding."""

from typing import Any

from planner.onnx_files.node_view import NodeView, translates
from planner.onnx_files.sequences import MOST_PARTS


@translates("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _view(node: NodeView) -> None:
    """Translate a view with other sizes."""
    node.ends("reshape", self=node.input(0))


@translates("Transpose")
def _transpose(node: NodeView) -> None:
    """Translate axes in another order."""
    node.ends("permute", self=node.input(0), dims=list(node.attribute("perm", range(len(node.shape()))[::-1])))


@translates("Expand")
def _expand(node: NodeView) -> None:
    """Translate repetitions of axes of one element."""
    node.ends("expand", self=node.input(0))


@translates("Tile")
def _tile(node: NodeView) -> None:
    """Translate repetitions of whole axes."""
    node.ends("repeat", self=node.input(0))


@translates("Slice")
def _slices(node: NodeView) -> None:
    """Translate slices of some axes, one after another."""
    starts, ends = node.setting("starts", 1), node.setting("ends", 2)
    axes = [a % len(node.shape()) for a in node.setting("axes", 3) or range(len(starts))]
    steps = node.setting("steps", 4) or [1] * len(starts)
    value, shape = node.input(0), list(node.shape())
    cuts = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            raise node.problem(f"steps must be >= 1, got {step}")
        first, last, _ = slice(start, end, step).indices(shape[axis])
        if (first, last, step) != (0, shape[axis], 1):
            cuts.append((first, last, axis, step))
    for first, last, axis, step in cuts[:-1]:
        shape[axis] = len(range(first, last, step))
        value = node.step("slice", shape, self=value, dim=axis, start=first, end=last, step=step)
    if not cuts:
        node.ends("alias", self=value)
        return
    first, last, axis, step = cuts[-1]
    node.ends("slice", self=value, dim=axis, start=first, end=last, step=step)


@translates("Split")
def _split(node: NodeView) -> None:
    """Translate a division of an axis."""
    if len(node.proto.output) == 1:
        node.ends("alias", self=node.input(0))
        return
    if len(node.proto.output) > MOST_PARTS:
        raise node.problem(f"split must make at most {MOST_PARTS:,} parts, got {len(node.proto.output):,}")
    if not all(node.proto.output):
        raise node.problem("each of its parts must have a name")
    node.ends("split", self=node.input(0), dim=node.attribute("axis", 0))


@translates("Concat")
def _concatenation(node: NodeView) -> None:
    tensors = [node.input(i) for i in range(len(node.proto.input))]
    node.ends("cat", tensors=tensors, dim=node.attribute("axis", 0))


@translates("Pad")
def _pad(node: NodeView) -> None:
    """Translate padding of some axes."""
    pads, rank = list(node.setting("pads", 1)), len(node.shape())
    axes = [a % rank for a in (node.setting("axes", 3) or range(rank))]
    widths = [(0, 0)] * rank
    for i, axis in enumerate(axes):
        widths[axis] = (pads[i], pads[i + len(axes)])
    node.ends("pad", self=node.input(0), pad=[width for pair in reversed(widths) for width in pair])


@translates("DepthToSpace", "SpaceToDepth")
def _shuffle(node: NodeView) -> None:
    """Translate channels that become positions, or positions that become channels."""
    (b, c, h, w), r = node.shape(), node.attribute("blocksize", 1)
    value: Any = node.input(0)
    if node.proto.op_type == "SpaceToDepth":
        apart, order = (b, c, h // r, r, w // r, r), [0, 3, 5, 1, 2, 4]
    elif node.attribute("mode", "DCR") == "DCR":
        apart, order = (b, r, r, c // r**2, h, w), [0, 3, 4, 1, 5, 2]
    else:
        apart, order = (b, c // r**2, r, r, h, w), [0, 1, 4, 2, 5, 3]
    value = node.step("reshape", apart, self=value)
    value = node.step("permute", [apart[d] for d in order], self=value, dims=order)
    node.ends("reshape", self=value)
