"""Checks that an imported layer can be computed as a plan divides it."""

from collections.abc import Iterator

import numpy as np
import torch

from executor.layers.base import TrainingStep
from executor.layers.factory import part_layer
from executor.recorded.calls import channels_apart, check_call
from executor.runtime.devices import torch_type
from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.graph.type_roles import types_of
from planner.layouts.configurations import ConfigSpace, part_bounds
from planner.operations.computation import Constant, parse_axis
from planner.operations.mapped import Mapped


def check_imported(graph: ComputationGraph, index: int, space: ConfigSpace) -> None:
    """Check that the parts of an imported layer can be computed.

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
    # Slices of what a layer sums over need a layer that does nothing else and reads parameters as they are.
    steps = getattr(layer.operation, "computes", ())
    if int(space.sums[0]) > 1 and (len(steps) != 1 or any(leaf.call for leaf in _constants(layer))):
        raise ConfigError(
            f"layer {layer.name} ({kind}) cannot be split in what it sums over to be run: it computes more than a sum "
            f"of its parameters as they are"
        )
    _check_whole(layer, degrees)
    _check_heads(layer, degrees["channel"])
    for part in dict.fromkeys((0, len(space.devices) - 1)):  # unequal parts, and the slices of sums, have two forms
        _dry_run(graph, index, space, part, kind)


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
    bounds = part_bounds(layer.output.size("channel"), parts)
    for step in getattr(layer.operation, "computes", ()):
        head = [factor.size for factor in parse_axis(step.out[-1])] if step.form == "attention" else []
        if len(head) != 1 or not head[0]:
            continue
        within_one = bounds[:-1] // head[0] == (bounds[1:] - 1) // head[0]
        if (bounds % head[0]).any() and not within_one.all():
            raise ConfigError(
                f"operation {step.call} of layer {layer.name} must be split into whole heads of {head[0]} channels or "
                f"into equal parts of one, got parts of {np.diff(bounds).max()} channels"
            )


def _dry_run(graph: ComputationGraph, index: int, space: ConfigSpace, number: int, kind: str) -> None:
    """Compute a part on the meta device, which has sizes and no elements."""
    layer, dtype = graph.layers[index], torch_type(types_of(graph.element_bytes).activation)
    part = part_layer(graph, index, space, number, dtype=dtype, device="meta")
    inputs = [torch.empty(box.shape, dtype=dtype, device="meta") for box in part.inputs]
    parameters = {name: torch.empty(box.shape, dtype=dtype, device="meta") for name, box in part.parameters.items()}
    part.constants = {key: torch.empty(shape, dtype=kind, device="meta") for key, shape, kind in _buffers(layer, dtype)}
    found = tuple(part.forward(inputs, parameters, TrainingStep(0, 0)).shape)
    part.release()
    if found != part.held.shape:
        raise ConfigError(f"layer {layer.name} ({kind}) computes {found} where its output has {part.held.shape}")


def _buffers(layer: Layer, dtype: torch.dtype) -> Iterator[tuple[str, tuple[int, ...], torch.dtype]]:
    """Yield keys, sizes and types of the buffers of the module that a layer computes with."""
    for constant in _constants(layer):
        for leaf in constant.leaves():
            if leaf.buffer:
                yield leaf.buffer, leaf.shape, torch.int64 if dict(leaf.arguments).get("dtype") == "int64" else dtype


def _constants(layer: Layer) -> Iterator[Constant]:
    """Yield the tensors that a layer computes with and that do not depend on the data."""
    for step in getattr(layer.operation, "computes", ()):
        yield from (operand.constant for operand in step.operands if operand.constant)
