"""Steps that only move elements: slices, shifts, joins, padding, rows in a fixed order."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from executor.recorded.calls import numbers_of_step
from executor.recorded.step_context import StepContext, every
from executor.recorded.views import ResultView, cover
from groundwork.array_types import Ints
from groundwork.errors import ConfigError


def taken_elements(context: StepContext) -> Tensor:
    """Return the elements of a view, a slice, one index, or a rotation of an operand, or rows of it."""
    step, indices = context.step, context.view.indices()
    if step.call == "index":
        return _rows(context, indices)
    sizes, rows = context.values["self"].sizes, list[Any](indices)
    if step.call == "select":
        rows.insert(_number(step.argument("dim", 0)), np.array([_number(step.argument("index", 0))]))
    elif step.call == "slice":
        dim = _number(step.argument("dim", 0))
        rows[dim] = _number(step.argument("start", 0)) + indices[dim] * _number(step.argument("step", 1))
    elif step.call == "roll":
        for shift, dim in zip(numbers_of_step(step, "shifts"), numbers_of_step(step, "dims"), strict=True):
            rows[dim] = (rows[dim] - shift) % sizes[dim]
    elif step.call != "view":
        raise ConfigError(f"{context.where}: {step.call} must be a view, slice, select, roll or index")
    result = context.read("self", rows)
    return result.squeeze(_number(step.argument("dim", 0))) if step.call == "select" else result


def _rows(context: StepContext, indices: list[Ints]) -> Tensor:
    """Return the rows of one or several neighbouring axes that constants number."""
    chosen = numbers_of_step(context.step, "dims")
    tables = [context.values[f"indices.{dim}"].tensor.long() for dim in chosen]
    tables = list(torch.broadcast_tensors(*tables))
    first, rank = chosen[0], tables[0].dim()
    for axis, index in enumerate(indices[first : first + rank]):
        kept = context.geometry.of(tables[0], partial(torch.tensor, index, device=tables[0].device))
        tables = [table.index_select(axis, kept) for table in tables]
    rows = [*indices[:first], *(None for _ in chosen), *indices[first + rank :]]
    source = context.read("self", rows)
    places: tuple[Any, ...] = (*(slice(None) for _ in range(first)), *tables)
    return source[places]


def dispatched_rows(context: StepContext) -> Tensor:
    """Return rows of a tensor at the places of the largest scores of each of the experts that the part holds."""
    indices, slot = context.view.indices(), len(context.values["scores"].sizes) - 1
    places = _picked(_places(context, indices[:slot]), slot, indices[slot])
    source = context.read("self", [indices[0], None, *indices[slot + 1 :]])
    taken = source.gather(1, _for_each(places, source))
    return taken.view(*places.shape, *source.shape[2:])


def combined_rows(context: StepContext) -> Tensor:
    """Return rows of the experts that the part reads, added up at the places of the largest of their scores."""
    indices, scores = context.view.indices(), context.values["scores"]
    assert scores.box is not None
    experts = ResultView(scores.axes, cover(scores.axes, scores.box)).indices()[1:-1]
    places = _places(context, [indices[0], *experts])
    source = context.read("src", [indices[0], *experts, None, *indices[2:]]).flatten(1, len(experts) + 1)
    sums = source.new_zeros(len(source), scores.sizes[-1], *source.shape[2:])
    sums = sums.scatter_add(1, _for_each(places, source), source)
    return _picked(sums, 1, indices[1])


def _places(context: StepContext, indices: Sequence[Ints | None]) -> Tensor:
    """Return the places of the largest scores along their last axis, for some indices of the others."""
    scores = context.read("scores", [*indices, None])
    return scores.detach().topk(_number(context.step.argument("k")), -1).indices


def _picked(tensor: Tensor, axis: int, index: Ints) -> Tensor:
    """Return some indices of an axis; the tensor itself where these are all."""
    if len(index) == tensor.shape[axis]:
        return tensor
    return tensor.index_select(axis, torch.from_numpy(index).to(tensor.device))


def _for_each(places: Tensor, rows: Tensor) -> Tensor:
    """Return the places of all experts one after another, the same for each element of a row."""
    flat = places.flatten(1)
    return flat.view(*flat.shape, *(1 for _ in rows.shape[2:])).expand(-1, -1, *rows.shape[2:])


def put_together(context: StepContext) -> Tensor:
    """Return the held indices of tensors one after another along an axis."""
    dim, indices, begin, pieces = _number(context.step.argument("dim", 0)), context.view.indices(), 0, []
    names = sorted(context.values, key=lambda name: int(name.partition(".")[2] or 0))
    for name in names:
        value = context.values[name]
        inside = indices[dim][(indices[dim] >= begin) & (indices[dim] < begin + value.sizes[dim])] - begin
        begin += value.sizes[dim]
        if not len(inside):
            continue
        rows = [
            inside if j == dim else every(1) if size == 1 else index
            for j, (index, size) in enumerate(zip(indices, value.sizes, strict=True))
        ]
        samples = next((j for j in range(len(indices)) if context.is_sample(j) and value.box is None), None)
        piece = context.read(name, rows, samples=samples)
        shape = [len(inside) if j == dim else len(index) for j, index in enumerate(indices)]
        pieces.append(piece.expand(shape).to(context.dtype))
    return torch.cat(pieces, dim)


def with_padding(context: StepContext) -> Tensor:
    """Return the held indices of a tensor with padding around it."""
    step, indices, sizes = context.step, context.view.indices(), context.values["self"].sizes
    mode, rows, inside = step.argument("mode", "constant"), list[Ints](), list[Ints]()
    pads: Any = step.argument("pads")
    for index, size, (left, _) in zip(indices, sizes, pads, strict=True):
        place = index - left
        inside.append((place >= 0) & (place < size))
        if mode == "reflect":
            place = np.abs(place)
            place = np.where(place >= size, 2 * (size - 1) - place, place)
        elif mode == "circular":
            place = place % size
        rows.append(np.clip(place, 0, size - 1) if mode != "constant" else place[inside[-1]])
    part = context.read("self", rows)
    if mode != "constant":
        return part
    fill: Any = step.argument("value", 0.0)
    widths = [side for mask in reversed(inside) for side in _outside(mask)]
    return torch.nn.functional.pad(part, widths, value=float(fill))


def _outside(mask: Any) -> tuple[int, int]:
    """Return the numbers of indices before and behind those that are inside; all are before where none is."""
    if not mask.any():
        return len(mask), 0
    first = int(mask.argmax())
    return first, len(mask) - first - int(mask.sum())


def _number(given: Any) -> int:
    if not isinstance(given, int):
        raise ConfigError(f"an argument of a step must be a whole number, got {str(given)[:80]}")
    return given
