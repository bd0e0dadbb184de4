"""Checks that an imported layer can be computed as a plan divides it."""

from collections.abc import Iterator

import torch

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.layers.parameters import parameter_box
from executor.recorded.calls import channels_apart, check_call
from executor.runtime.devices import DTYPES
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.layouts.configurations import ConfigSpace
from planner.operations.computation import Constant, parse_axis
from planner.operations.mapped import Mapped


def check_imported(graph: ComputationGraph, index: int, space: ConfigSpace) -> None:
    """Check that the parts of an imported layer can be computed.

    Args:
        graph: The network.
        index: The layer.
        space: The space that holds its one configuration.

    Raises:
        ConfigError: They cannot; the message names the operation.
    """
    layer = graph.layers[index]
    operation = layer.operation
    assert isinstance(operation, Mapped)
    words = getattr(operation, "steps", None) or (getattr(operation, "function", ""),)
    kind = f"{operation.kind} {' '.join(words)}".strip()
    if not operation.computes:
        raise ConfigError(
            f"layer {layer.name} of {graph.name} is planned only and cannot be run: {kind} (what it computes is not "
            f"recorded: the import has no rule for that)"
        )
    for step in operation.computes:
        if step.form not in ("norm", "attention", "take", "join", "pad", "dropout", "contract", "embedding"):
            check_call(step.call)
    degrees = dict(zip(layer.output.dims, space.degrees[0].tolist(), strict=True))
    _check_parameters(layer, kind, degrees["channel"])
    _check_whole(layer, degrees)
    _check_heads(layer, degrees["channel"])
    _dry_run(graph, index, space, kind)


def _check_parameters(layer: Layer, kind: str, channels: int) -> None:
    """Refuse parameters that the executor cannot hold and synchronise."""
    for each in layer.parameters:
        where = f"parameter {each.name} of layer {layer.name} ({kind})"
        if not each.split and channels > 1 and any(other.split for other in layer.parameters):
            raise ConfigError(
                f"{where} is not split with the layer's channels, and others are: the layer cannot be split in channels"
            )
    if channels == 1:
        return
    whole = {each.name for each in layer.parameters if not each.split}
    for step in getattr(layer.operation, "computes", ()):
        for operand in step.operands:
            for leaf in operand.constant.leaves() if operand.constant else ():
                if leaf.parameter and leaf.along is None and leaf.parameter not in whole:
                    raise ConfigError(
                        f"operation {step.call} of layer {layer.name} ({kind}) cannot be split in channels: it "
                        f"computes with parameter {leaf.parameter} in another form"
                    )


def _check_whole(layer: Layer, degrees: dict[str, int]) -> None:
    """Refuse divisions of operations that are computed whole."""
    for step in getattr(layer.operation, "computes", ()):
        allowed = ("sample", "channel") if channels_apart(step.call) else ("sample",)
        wrong = [dim for dim, degree in degrees.items() if degree > 1 and dim not in allowed]
        if step.form == "whole" and wrong:
            raise ConfigError(
                f"operation {step.call} of layer {layer.name} cannot be split in {', '.join(wrong)} to be run, only in "
                f"{' and '.join(allowed)}"
            )


def _check_heads(layer: Layer, parts: int) -> None:
    """Refuse parts of attention that hold some channels of a head beside those of another one."""
    channels = layer.output.size("channel") // parts
    for step in getattr(layer.operation, "computes", ()):
        head = [factor.size for factor in parse_axis(step.out[-1])] if step.form == "attention" else []
        if len(head) == 1 and head[0] and channels % head[0] and head[0] % channels:
            raise ConfigError(
                f"operation {step.call} of layer {layer.name} must be split into whole heads of {head[0]} channels or "
                f"into equal parts of one, got parts of {channels} channels"
            )


def _dry_run(graph: ComputationGraph, index: int, space: ConfigSpace, kind: str) -> None:
    """Compute the first part on the meta device, which has sizes and no elements."""
    layer, dtype = graph.layers[index], DTYPES[graph.element_bytes]
    part = part_layer(graph, index, space, 0, dtype=dtype, device="meta")
    boxes = {each.name: parameter_box(each, part.held, layer.output) for each in layer.parameters}
    inputs = [torch.empty(box.shape, dtype=dtype, device="meta") for box in part.inputs]
    parameters = {name: torch.empty(box.shape, dtype=dtype, device="meta") for name, box in boxes.items()}
    part.constants = {key: torch.empty(shape, dtype=kind, device="meta") for key, shape, kind in _buffers(layer, dtype)}
    found = tuple(part.forward(inputs, parameters, TrainingStep(0, 0)).shape)
    part.release()
    if found != part.held.shape:
        raise ConfigError(f"layer {layer.name} ({kind}) computes {found} where its output has {part.held.shape}")


def _buffers(layer: Layer, dtype: torch.dtype) -> Iterator[tuple[str, tuple[int, ...], torch.dtype]]:
    """Yield keys, sizes and types of the buffers of the module that a layer computes with."""
    for leaf in _leaves(layer):
        if leaf.buffer:
            yield leaf.buffer, leaf.shape, torch.int64 if dict(leaf.arguments).get("dtype") == "int64" else dtype


def _leaves(layer: Layer) -> Iterator[Constant]:
    """Yield the parameters and buffers that a layer computes with."""
    for step in getattr(layer.operation, "computes", ()):
        for operand in step.operands:
            yield from operand.constant.leaves() if operand.constant else ()
