"""Activations in place, and their gradients from the outputs alone."""

import torch
from torch import Tensor

SLOPE = 0.01
"""Slope of leaky ReLU below zero."""


def activate_(name: str | None, values: Tensor) -> Tensor:
    """Apply an activation of ``planner.operations`` in place; None applies none."""
    if name is None:
        return values
    if name == "leaky_relu":
        return torch.nn.functional.leaky_relu_(values, SLOPE)
    applied: Tensor = {"relu": torch.relu_, "sigmoid": torch.sigmoid_, "tanh": torch.tanh_}[name](values)
    return applied


def activation_backward(name: str | None, gradient: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of an activation's input; ``gradient`` itself where there is no activation.

    Every activation here is monotonic, so that its output determines its derivative.
    """
    aten, before = torch.ops.aten, gradient
    if name == "relu":
        before = aten.threshold_backward(gradient, output, 0)
    elif name == "leaky_relu":
        before = aten.leaky_relu_backward(gradient, output, SLOPE, True)
    elif name == "sigmoid":
        before = aten.sigmoid_backward(gradient, output)
    elif name == "tanh":
        before = aten.tanh_backward(gradient, output)
    return before
