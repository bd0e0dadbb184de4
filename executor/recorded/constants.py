"""Tensors that do not depend on the data, computed from the slices of parameters that a part holds."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from executor.recorded.calls import function_of, keywords_of
from groundwork.errors import ConfigError
from planner.operations.computation import Constant

MOST_CONSTANT_ELEMENTS = 2**28
"""Most elements of a constant."""
_RESHAPES = frozenset(["view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "view_copy"])
_EXPANDS = frozenset(["expand", "expand_as", "broadcast_to"])


def value_of(
    constant: Constant,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """Compute a constant.

    Raises:
        ConfigError: A buffer has no value, or an operation is unknown.
    """
    if constant.parameter:
        return parameters[constant.parameter]
    if constant.buffer:
        if constant.buffer not in buffers:
            raise ConfigError(f"buffer {constant.buffer} has no value: give the module's state_dict with --init")
        return buffers[constant.buffer]
    rows = {name: value_of(each, parameters, buffers, dtype=dtype, device=device) for name, each in constant.operands}
    arguments = dict(constant.arguments)
    item = arguments.pop("item", None)
    if constant.call == "values":
        return _values(arguments["values"], str(arguments["dtype"]), dtype, device)
    if constant.along is not None and (constant.call in _RESHAPES or constant.call in _EXPANDS):
        return _resized(constant, rows)
    keywords = {**in_lists(rows), **keywords_of(arguments, dtype)}
    if not rows:
        keywords["device"] = device
    result: Any = function_of(constant.call)(**keywords)
    tensor: Tensor = result if item is None else result[item]
    if tensor.numel() > MOST_CONSTANT_ELEMENTS:
        raise ConfigError(
            f"operation {constant.call} makes a constant of more than {MOST_CONSTANT_ELEMENTS:,} elements"
        )
    return tensor


@lru_cache(maxsize=1024)
def _values(values: Any, kind: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers that the model file holds; kept, since a copy to a GPU makes the host wait."""
    return torch.tensor(**keywords_of({"data": values, "dtype": kind}, dtype), device=device)


def _resized(constant: Constant, rows: Mapping[str, Tensor]) -> Tensor:
    """Return a view with the sizes of a slice of the constant."""
    name, inner = constant.operands[0]
    tensor, shape = rows[name], list(constant.shape)
    assert constant.along is not None
    assert inner.along is not None
    shape[constant.along] = tensor.shape[inner.along]
    return tensor.expand(shape) if constant.call in _EXPANDS else tensor.reshape(shape)


def in_lists(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return operands by argument, those that are numbered as lists with None where one is missing."""
    result: dict[str, Any] = {}
    for name, each in rows.items():
        base, dot, number = name.partition(".")
        if not dot:
            result[name] = each
            continue
        row = result.setdefault(base, [])
        row += [None] * (int(number) + 1 - len(row))
        row[int(number)] = each
    return result
