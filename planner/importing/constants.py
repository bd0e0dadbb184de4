"""Tensors of a program that do not depend on its data: parameters, buffers, and what is computed from them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.operations.computation import Constant, Plain
from planner.tracing.trace import TraceNode

MOST_NODES = 200
"""Most operations that a constant may be computed by; beyond that its layer can be planned only."""
Origin = tuple[str, int] | None
"""Parameter and axis of it that an axis of a constant is, whole and in order."""
_SAME_WORDS = "detach alias clone contiguous to _to_copy lift_fresh_copy lift_fresh type_as float positive"
_SAME = frozenset(_SAME_WORDS.split())
_COPIES = _SAME - {"detach"}
_RESHAPES = frozenset(["view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "view_copy"])
_MAKERS = frozenset(["arange", "zeros", "ones", "full", "linspace", "eye", "scalar_tensor"])
_DROPPED_WORDS = "device layout pin_memory memory_format generator requires_grad non_blocking copy"
_DROPPED = frozenset(_DROPPED_WORDS.split())


class UnrecordedError(Exception):
    """A computation cannot be written down; the message says why."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A tensor that does not depend on the data: made of parameters, or constant."""

    shape: tuple[int, ...]
    keys: tuple[str, ...] = ()
    """Parameters that it is computed from, by their key in the ``state_dict``."""
    buffer: str = ""
    """Key of the buffer that it is; empty for others."""
    call: str = ""
    """Operation that computes it; empty where it is a parameter or a buffer, or where that was not written down."""
    operands: tuple[tuple[str, "Fixed"], ...] = ()
    arguments: tuple[tuple[str, Plain], ...] = ()
    origin: tuple[Origin, ...] = ()
    """For each axis the axis of a parameter that it is; empty where it is computed otherwise."""
    nodes: int = 1
    """Operations that it is computed by."""
    is_number: bool = False
    """True if it is a parameter without axes."""

    @property
    def is_parameter(self) -> bool:
        """True if it is a parameter itself."""
        return not self.call and len(self.keys) == 1 and (bool(self.origin) or self.is_number)

    @property
    def is_recorded(self) -> bool:
        """True if it is known how it is computed."""
        return bool(self.call or self.buffer or self.is_parameter)

    @property
    def is_trained(self) -> bool:
        """True if it is a parameter itself, or has its elements and gradients."""
        if self.call in _COPIES and len(self.operands) == 1:
            return self.operands[0][1].is_trained
        return self.is_parameter

    def unrecorded(self) -> "Fixed":
        """Return a tensor of the same sizes and parameters of which no more is known."""
        return Fixed(self.shape, self.keys)


def computed(node: TraceNode, call: str, given: Mapping[str, Any], shape: tuple[int, ...], item: int | None) -> Fixed:
    """Return a result of an operation on constants."""
    operands = [*_tensors(given)]
    keys = tuple(dict.fromkeys(key for _, each in operands for key in each.keys))
    nodes = 1 + sum(each.nodes for _, each in operands)
    try:
        arguments = plain_arguments(given)
    except UnrecordedError:
        return Fixed(shape, keys)
    if nodes > MOST_NODES or not all(each.is_recorded for _, each in operands) or "rand" in call or "empty" in call:
        return Fixed(shape, keys)
    value = fill_value(call, given)
    if value is not None:
        return filled(shape, value, floating=node.results[0].floating)
    if call in _MAKERS and node.results and node.results[0].floating:
        arguments = (*((n, v) for n, v in arguments if n != "dtype"), ("dtype", "float"))
    if item is not None:
        arguments = (*arguments, ("item", item))
    origin = _origin(call, given, operands, shape, node.pointwise) if item is None else ()
    return Fixed(shape, keys, "", call, tuple(operands), arguments, origin, nodes)


def fill_value(call: str, given: Mapping[str, Any]) -> float | None:
    """Return the value of an operation that fills a tensor, also one of another's sizes or type; None of others."""
    kind = call.removeprefix("new_").removesuffix("_like")
    value = {"zeros": 0, "ones": 1}.get(kind, given.get("fill_value") if kind == "full" else None)
    return value if isinstance(value, int | float) else None


def filled(shape: tuple[int, ...], value: float, *, floating: bool) -> Fixed:
    """Return a tensor of one value."""
    arguments: tuple[tuple[str, Plain], ...] = (("size", shape), ("fill_value", _plain(value)))
    return Fixed(shape, call="full", arguments=(*arguments, ("dtype", "float" if floating else "int64")))


def listed(shape: tuple[int, ...], values: Sequence[float], *, floating: bool) -> Fixed:
    """Return a tensor of given elements: one value or a sequence of whole numbers where it is one, else all of them."""
    kind: tuple[str, Plain] = ("dtype", "float" if floating else "int64")
    if len(set(values)) == 1:
        return filled(shape, values[0], floating=floating)
    if tuple(values) == tuple(range(len(values))):
        ramp = Fixed((len(values),), call="arange", arguments=(("end", len(values)), kind))
    else:
        ramp = Fixed((len(values),), call="values", arguments=(("values", _plain(tuple(values))), kind))
    if len(shape) == 1:
        return ramp
    return Fixed(shape, call="reshape", operands=(("self", ramp),), arguments=(("shape", shape),), nodes=2)


def unsqueezed(fixed: Fixed, dim: int) -> Fixed:
    """Return a tensor with one more axis, of one element."""
    shape = (*fixed.shape[:dim], 1, *fixed.shape[dim:])
    if not fixed.is_recorded:
        return Fixed(shape, fixed.keys)
    origin = (*fixed.origin[:dim], None, *fixed.origin[dim:]) if fixed.origin else ()
    return Fixed(
        shape,
        fixed.keys,
        call="unsqueeze",
        operands=(("self", fixed),),
        arguments=(("dim", dim),),
        origin=origin,
        nodes=fixed.nodes + 1,
    )


def _tensors(given: Mapping[str, Any]) -> list[tuple[str, Fixed]]:
    """Return the tensors among arguments, those of lists numbered."""
    rows = []
    for name, value in given.items():
        if isinstance(value, Fixed):
            rows.append((name, value))
        elif isinstance(value, list | tuple):
            rows += [(f"{name}.{i}", each) for i, each in enumerate(value) if isinstance(each, Fixed)]
    return rows


def plain_arguments(given: Mapping[str, Any]) -> tuple[tuple[str, Plain], ...]:
    """Return the arguments that are no tensors, without those of memory and devices.

    Raises:
        UnrecordedError: One cannot be written down.
    """
    rows = []
    for name, value in given.items():
        if name in _DROPPED or value is None:
            continue
        if isinstance(value, list | tuple) and any(_is_tensor(each) for each in value):
            continue
        if not _is_tensor(value):
            rows.append((name, _plain(value)))
    return tuple(rows)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Fixed) or hasattr(value, "axes")


def _plain(value: Any) -> Plain:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    text = str(value)
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return "float" if "float" in text else text.removeprefix("torch.")
    raise UnrecordedError(f"an argument of type {type(value).__name__}")


def _origin(
    call: str, given: Mapping[str, Any], operands: Sequence[tuple[str, Fixed]], shape: tuple[int, ...], pointwise: bool
) -> tuple[Origin, ...]:
    """Return the axes of a parameter that the axes of a result are."""
    if not operands:
        return ()
    source = operands[0][1]
    row, rank = source.origin, len(source.shape)
    if call == "embedding" and isinstance(weight := given.get("weight"), Fixed) and len(weight.origin) == 2:
        return (*(None for _ in shape[:-1]), weight.origin[1])
    if not row:
        return ()
    if call in _SAME and source.shape == shape:
        return row
    if call in _RESHAPES:
        return _reshaped(row, source.shape, shape)
    if call in ("expand", "expand_as", "broadcast_to"):
        behind = zip(row, source.shape, shape[len(shape) - rank :], strict=True)
        return (*(None for _ in shape[rank:]), *(o if old == new else None for o, old, new in behind))
    if call in ("permute", "transpose", "t"):
        return _permuted(call, given, row)
    dim = given.get("dim", 0)
    if call == "unsqueeze":
        place = dim % (rank + 1)
        return (*row[:place], None, *row[place:])
    if call == "select":
        return (*row[: dim % rank], *row[dim % rank + 1 :])
    if call in ("slice", "narrow"):
        same = source.shape == shape
        return tuple(None if i == dim % rank and not same else o for i, o in enumerate(row))
    if pointwise and source.shape == shape and all(max(e.shape, default=1) == 1 for _, e in operands[1:]):
        return row
    return ()


def _reshaped(row: Sequence[Origin], old: Sequence[int], new: Sequence[int]) -> tuple[Origin, ...]:
    """Return the origins of the axes of a view: an axis stays one where as many elements lie before it."""
    places = {(math.prod(old[:i]), size): row[i] for i, size in enumerate(old) if size > 1}
    return tuple(places.get((math.prod(new[:i]), size)) for i, size in enumerate(new))


def _permuted(call: str, given: Mapping[str, Any], row: Sequence[Origin]) -> tuple[Origin, ...]:
    """Return the origins of axes in another order."""
    rank = len(row)
    if call == "permute":
        return tuple(row[d % rank] for d in given["dims"])
    order = list(range(rank))
    one, two = (0, rank - 1) if call == "t" else (given["dim0"] % rank, given["dim1"] % rank)
    order[one], order[two] = order[two], order[one]
    return tuple(row[d] for d in order)


def constant_of(fixed: Fixed, names: Mapping[str, str], along: int | None) -> Constant:
    """Return a tensor as it is written down.

    Raises:
        UnrecordedError: It is not known how it is computed, or from a parameter that the layer has not.
    """
    if not fixed.is_recorded:
        raise UnrecordedError("it is not known how a constant is computed")
    origin = fixed.origin[along] if along is not None and along < len(fixed.origin) else None
    place = fixed.origin.index(origin) if origin else None
    if not fixed.call:
        if fixed.buffer:
            return Constant(buffer=fixed.buffer, shape=fixed.shape, arguments=fixed.arguments)
        if fixed.keys[0] not in names:
            raise UnrecordedError(f"{fixed.keys[0]} is no parameter of the layer")
        return Constant(parameter=names[fixed.keys[0]], shape=fixed.shape, along=place)
    rows = []
    for name, each in fixed.operands:
        inner = each.origin.index(origin) if origin and origin in each.origin else None
        rows.append((name, constant_of(each, names, inner)))
    return Constant(call=fixed.call, shape=fixed.shape, along=place, operands=tuple(rows), arguments=fixed.arguments)
