"""Steps that compute: elementwise operations, products, attention, reductions, normalisations, whole operations."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from executor.recorded.calls import channels_apart, function_of, keywords_of, numbers_of_step
from executor.recorded.constants import in_lists
from executor.recorded.step_context import StepContext, check_one_sample, every
from executor.runtime.boxes import Box
from groundwork.array_types import Ints
from groundwork.errors import ConfigError
from planner.operations.computation import is_matrix_product

_CONDITIONS = {"where": ("condition",), "masked_fill": ("mask",)}
_LOGICAL = ("logical_not", "logical_and", "logical_or", "logical_xor")


def computed_pointwise(context: StepContext) -> Tensor:
    """Compute an operation element by element."""
    step, indices, rows = context.step, context.view.indices(), dict[str, Any]()
    for name in context.values:
        if step.call == "prelu" and name == "weight":
            size = context.values["weight"].sizes[0]
            rows[name] = context.read("weight", [every(1) if size == 1 else indices[1]])
        else:
            rows[name] = context.aligned(name, indices)
        logical = name in _CONDITIONS.get(step.call, ()) or step.call in _LOGICAL
        rows[name] = rows[name] != 0 if logical else rows[name]
    return _called(context, rows)


def _called(context: StepContext, rows: dict[str, Any], *, without: tuple[str, ...] = ()) -> Tensor:
    """Return the result of the step's operation, or the first of several."""
    arguments = {name: each for name, each in context.step.arguments if name not in without}
    result: Any = function_of(context.step.call)(**in_lists(rows), **keywords_of(arguments, context.dtype))
    return result if isinstance(result, Tensor) else result[0]


def contracted(context: StepContext) -> Tensor:
    """Compute a product of two tensors, summed over the labels that the result has not, with a bias of the last.

    Of a label of which the part holds a slice of the weights it sums over that slice.  The part with the first slice
    adds the bias; the others add nothing, and have the gradient of the bias all the same, so that theirs stays equal.
    """
    step, indices = context.step, context.view.indices()
    labels = {name: _labels(step.argument(name)) for name in ("first", "second", "out")}
    held = dict(zip(labels["out"], indices, strict=True))
    tensors, adds_bias = [], True
    for name, key in (("one", "first"), ("two", "second")):
        value = context.values[name]
        for axis, label in enumerate(labels[key]):
            if value.box is None and label not in held and value.tensor.shape[axis] < value.sizes[axis]:
                held[label] = value.held(axis)
                adds_bias = adds_bias and not held[label][0]
    for name, key in (("one", "first"), ("two", "second")):
        sizes = context.values[name].sizes
        sample = [
            j
            for j, label in enumerate(labels[key])
            if label in labels["out"] and context.is_sample(labels["out"].index(label))
        ]
        rows = [every(1) if size == 1 else held.get(label) for label, size in zip(labels[key], sizes, strict=True)]
        tensors.append(context.read(name, rows, samples=sample[0] if sample else None))
    bias = context.aligned("bias", indices) if "bias" in context.values else None
    bias = bias if bias is None or adds_bias else bias - bias.detach()
    return _product(tensors, labels, bias)


def _labels(given: Any) -> tuple[str, ...]:
    if not isinstance(given, tuple) or not all(isinstance(each, str) for each in given) or len(given) > 26:
        raise ConfigError(f"labels of a product must be a list of words, got {str(given)[:80]}")
    return given


def _product(tensors: list[Tensor], labels: dict[str, tuple[str, ...]], bias: Tensor | None) -> Tensor:
    first, second, out = (labels[name] for name in ("first", "second", "out"))
    if is_matrix_product(first, second, out):
        return functional.linear(tensors[0], tensors[1] if second == ("n", "k") else tensors[1].t(), bias)
    letters = {label: chr(97 + i) for i, label in enumerate(dict.fromkeys((*first, *second, *out)))}
    terms = ["".join(letters[label] for label in row) for row in (first, second, out)]
    result = torch.einsum(f"{terms[0]},{terms[1]}->{terms[2]}", *tensors)
    return result if bias is None else result + bias


def attended(context: StepContext) -> Tensor:
    """Compute attention: of the held queries and heads over all keys, in the held channels of values."""
    step, indices, values = context.step, context.view.indices(), context.values
    if float(step.argument("dropout_p", 0.0) or 0.0):  # type: ignore[arg-type]
        raise ConfigError(f"{context.where}: dropout of the weights of attention cannot be run: set it to 0")
    outer, rows, channels = indices[:-2], indices[-2], indices[-1]
    heads = context.sizes[:-2]
    tensors = []
    for name, inner in (("query", [rows, None]), ("key", [None, None]), ("value", [None, channels])):
        lead = [
            every(1) if size == 1 else index // (full // size)
            for index, size, full in zip(outer, values[name].sizes[:-2], heads, strict=True)
        ]
        tensors.append(context.read(name, [*lead, *inner]))
    mask, causal = None, bool(step.argument("is_causal", False))
    keys = values["key"].sizes[-2]
    if "attn_mask" in values:
        mask = _mask(context, indices, keys)
    elif causal and (len(rows) != values["query"].sizes[-2] or context.order is not None):
        causal, mask = False, context.geometry.of(tensors[0], lambda: _keys_before(context, rows, keys))
    scale: Any = step.argument("scale")
    query, key, value = tensors
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, scale=scale)


def _keys_before(context: StepContext, rows: Ints, keys: int) -> Tensor:
    """Return the mask of queries that see the keys up to themselves."""
    queries, axis = context.positions(len(context.sizes) - 2, rows), len(context.sizes) - 2
    return torch.from_numpy(context.positions(axis, np.arange(keys)) <= queries[:, None]).to(context.device)


def _mask(context: StepContext, indices: list[Ints], keys: int) -> Tensor:
    """Return the mask of the held queries, over all keys."""
    value = context.values["attn_mask"]
    shift, samples = len(indices) - len(value.sizes), None
    rows: list[Ints | None] = []
    for j, size in enumerate(value.sizes[:-1]):
        samples = j if value.box is None and context.is_sample(j + shift) else samples
        rows.append(every(1) if size == 1 else _of_one_sample(context, j, indices[j + shift], shift))
    mask = context.read("attn_mask", [*rows, every(1) if value.sizes[-1] == 1 else every(keys)], samples=samples)
    return mask if mask.is_floating_point() else mask != 0


def _of_one_sample(context: StepContext, axis: int, index: Ints, shift: int) -> Ints:
    """Return indices of a mask's axis of samples and windows in it, for any batch: a constant is the same for all."""
    value, (first, *others) = context.values["attn_mask"], context.view.axes[axis + shift]
    if value.box is not None or first.dim != 0 or not others:
        return index
    windows, mask = context.sizes[axis + shift] // first.size, value.tensor
    each = mask.unflatten(axis, (-1, windows))
    context.geometry.of(mask, lambda: check_one_sample(each, axis, f"{context.where}: attn_mask"))
    return index % windows


def computed_along(context: StepContext) -> Tensor:
    """Compute an operation that keeps its sizes and needs all of some axes."""
    indices = context.view.indices()
    rows = {name: context.read(name, indices) for name in context.values}
    return _called(context, rows, without=("axes",))


def computed_reduction(context: StepContext) -> Tensor:
    """Compute a reduction of some axes."""
    indices, chosen = context.view.indices(), set(numbers_of_step(context.step, "axes"))
    ((name, value),) = context.values.items()
    keeps = len(context.sizes) == len(value.sizes)
    rows, left = list[Ints | None](), iter(indices)
    for j, _ in enumerate(value.sizes):
        if j in chosen:
            rows.append(None)
            if keeps:
                next(left)
        else:
            rows.append(next(left))
    return _called(context, {name: context.read(name, rows)}, without=("axes",))


def normalised(context: StepContext, held: Box) -> Tensor:
    """Normalise all that belongs together, then scale and shift the region that the part holds.

    Where the part holds all that is normalised, one operation does both, and saves the values alone.

    Args:
        context: The step.
        held: The region, in the order of the output's dimensions.
    """
    values = context.read("input", context.view.indices())
    if values.numel() == held.elements:
        return context.placed(_normal(context, values, _factor(context, "weight"), _factor(context, "bias")), held)
    result = context.placed(_normal(context, values, None, None), held).clone()  # the rest of the values is released
    for name in ("weight", "bias"):
        if name not in context.values:
            continue
        value = context.values[name]
        if value.along is not None:
            scale = value.tensor.reshape(-1, *(1 for _ in held.shape[2:]))
        else:
            factor = _factor(context, name)
            assert factor is not None
            behind = 0 if context.step.call in ("layer_norm", "rms_norm") else values.dim() - 2
            factor = factor.reshape(*factor.shape, *(1 for _ in range(behind)))
            scale = context.placed(factor.expand(values.shape), held)
        result = result * scale if name == "weight" else result + scale
    return result


def _factor(context: StepContext, name: str) -> Tensor | None:
    """Return the scale or the shift of all that a part normalises; None where there is none."""
    if name not in context.values:
        return None
    value, indices = context.values[name], context.view.indices()
    last = context.step.call in ("layer_norm", "rms_norm")
    return context.read(name, indices[len(indices) - len(value.sizes) :] if last else [indices[1]])


def _normal(context: StepContext, values: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    step, eps = context.step, context.step.argument("eps")
    if step.call == "rms_norm":
        return functional.rms_norm(values, list(numbers_of_step(step, "normalized_shape")), weight, eps)  # type: ignore[arg-type]
    bound = float(eps or 1e-5)  # type: ignore[arg-type]
    if step.call == "layer_norm":
        return functional.layer_norm(values, list(numbers_of_step(step, "normalized_shape")), weight, bias, bound)
    if step.call == "group_norm":
        groups = int(step.argument("num_groups") or step.argument("group") or 1)  # type: ignore[arg-type]
        held = groups * values.shape[1] // context.sizes[1]
        return functional.group_norm(values, held, weight, bias, bound)
    if step.call == "instance_norm":
        return functional.instance_norm(values, weight=weight, bias=bias, eps=bound)
    raise ConfigError(f"{context.where}: normalisation must be layer_norm, rms_norm, group_norm or instance_norm")


def looked_up(context: StepContext) -> Tensor:
    """Look up the rows of a table, in the held channels; rows that lie outside of the held slice are zero."""
    indices, padding = context.view.indices(), context.step.argument("padding_idx", -1)
    rows = context.values["weight"].held(0)
    ids, table = context.read("indices", indices[:-1]).long(), context.read("weight", [rows, indices[-1]])
    row = padding - int(rows[0]) if isinstance(padding, int) and padding in rows else None
    if len(rows) == context.values["weight"].sizes[0]:
        return functional.embedding(ids, table, padding_idx=row)
    ids = ids - int(rows[0])
    outside = (ids < 0) | (ids >= len(rows))
    found = functional.embedding(ids.masked_fill(outside, 0), table, padding_idx=row)
    return found.masked_fill(outside[..., None], 0.0)


def computed_whole(context: StepContext) -> Tensor:
    """Compute an operation on all but the samples, which are its first axis."""
    indices, rows = context.view.indices(), dict[str, Any]()
    for name, value in context.values.items():
        divided = 0 if value.box is None else 2 if channels_apart(context.step.call) else 1
        divided = divided if value.sizes[:divided] == context.sizes[:divided] else 0
        rows[name] = context.read(name, [indices[j] if j < divided else None for j in range(len(value.sizes))])
    if context.step.call in ("view", "reshape", "_unsafe_view", "flatten", "unflatten"):
        (tensor,) = rows.values()
        result: Tensor = tensor.reshape(len(indices[0]), *context.sizes[1:])
        return result
    if "upsample" in context.step.call and "input" in rows:  # none of the two has a default
        given = dict(context.step.arguments)
        rows |= {name: None for name in ("output_size", "scale_factors") if name not in given}
    return _called(context, rows)
