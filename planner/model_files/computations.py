"""Recorded computations in model files: one line for each step."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from groundwork.errors import ConfigError
from planner.graph.parameters import Parameter
from planner.graph.shapes import Shape
from planner.operations.computation import Constant, Operand, Plain, Step, parse_axis

MOST_STEPS, MOST_DEPTH, MOST_ARGUMENTS = 200, 100, 10_000
"""Most steps of a layer, operations within one another of a constant, and elements of an argument."""
MOST_LISTED, MOST_REPEATS, MOST_ELEMENTS = 1_000, 10_000, 2**28
"""Most tensors of a list of operands, repetitions of an axis of a small layer, and elements of a computed constant."""
_SIZES = ("size", "steps", "n", "output_size")
"""Arguments that are the sizes of what an operation makes."""

_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def step_row(step: Step) -> dict[str, Any]:
    """Return a step as a mapping of a model file."""
    row: dict[str, Any] = {"form": step.form, "call": step.call, "out": list(step.out)}
    row["of"] = {each.name: _operand_row(each) for each in step.operands}
    return row | ({"with": dict(step.arguments)} if step.arguments else {})


def _operand_row(operand: Operand) -> dict[str, Any]:
    if operand.constant is not None:
        return _constant_row(operand.constant)
    source = {"input": operand.input} if operand.input is not None else {"step": operand.step}
    return source | {"axes": list(operand.axes)}


def _constant_row(constant: Constant) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in ("parameter", "buffer", "call"):
        if value := getattr(constant, name):
            row[name] = value
    row["shape"] = list(constant.shape)
    if constant.along is not None:
        row["along"] = constant.along
    if constant.operands:
        row["of"] = {name: _constant_row(each) for name, each in constant.operands}
    given: dict[str, Any] = dict(constant.arguments)
    numbers = given.get("values")
    if constant.call == "values" and isinstance(numbers, tuple) and all(type(each) is int for each in numbers):
        given["values"] = " ".join(map(str, numbers))  # one text is read many times faster than a list
    return row | ({"with": given} if given else {})


def steps_of(rows: Any, inputs: Sequence[Shape], output: Shape, parameters: Sequence[Parameter]) -> tuple[Step, ...]:
    """Return the steps that a layer of a model file lists.

    Raises:
        ConfigError: They break a rule; the message names the step and the field.
    """
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_STEPS:
        raise ConfigError(f"computes must be a list of 1 to {MOST_STEPS} steps")
    named = {each.name: each.shape for each in parameters}
    return tuple(_step(f"step {i} of computes", row, i, inputs, output, named) for i, row in enumerate(rows))


def _step(
    where: str, row: Any, index: int, inputs: Sequence[Shape], output: Shape, named: Mapping[str, tuple[int, ...]]
) -> Step:
    _check(where, row, ("form", "call", "out", "of", "with"), ("form", "call", "out", "of"))
    out = _axes(f"{where}: out", row["out"], output)
    _check_partition(f"{where}: out", out, output)
    operands = []
    for name, each in _mapping(f"{where}: of", row["of"]).items():
        at = f"{where}: {name}"
        _check_name(where, name)
        if not isinstance(each, dict) or not ({"input", "step"} & set(each)):
            operands.append(Operand(name=name, constant=_constant(at, each, named, 0)))
            continue
        source = "input" if "input" in each else "step"
        _check(at, each, (source, "axes"), (source, "axes"))
        count = len(inputs) if source == "input" else index
        slot = _count(f"{at}: {source}", each[source], count)
        shape = inputs[slot] if source == "input" else output
        axes = _axes(f"{at}: axes", each["axes"], shape)
        place = (slot, None) if source == "input" else (None, slot)
        operands.append(Operand(name=name, input=place[0], step=place[1], axes=axes))
    return Step(
        form=_word(f"{where}: form", row["form"]),
        call=_word(f"{where}: call", row["call"]),
        out=out,
        operands=tuple(operands),
        arguments=_arguments(f"{where}: with", row.get("with", {})),
    )


def _constant(where: str, row: Any, named: Mapping[str, tuple[int, ...]], depth: int) -> Constant:
    known = ("parameter", "buffer", "call", "shape", "along", "of", "with")
    _check(where, row, known, ("shape",))
    if depth > MOST_DEPTH or sum(name in row for name in ("parameter", "buffer", "call")) != 1:
        raise ConfigError(
            f"{where} must be an input, a step, a parameter, a buffer or a call, no deeper than {MOST_DEPTH}"
        )
    shape = row["shape"]
    if not isinstance(shape, list) or not all(_is_count(each) for each in shape) or math.prod(shape) > 2**40:
        raise ConfigError(f"{where}: shape must be a list of integers >= 0, got {str(shape)[:80]}")
    if "parameter" in row and named.get(_word(where, row["parameter"])) != tuple(shape):
        raise ConfigError(f"{where}: parameter must be one of the layer's, of its shape, got {row['parameter']!r}")
    along = row.get("along")
    rows = _mapping(f"{where}: of", row.get("of", {}))
    for name in rows:
        _check_name(where, name)
    arguments = _arguments(f"{where}: with", _with_numbers(where, row))
    _check_sizes(where, _word(where, row.get("call", "")), dict(arguments), tuple(shape))
    return Constant(
        parameter=_word(where, row.get("parameter", "")),
        buffer=_word(where, row.get("buffer", "")),
        call=_word(where, row.get("call", "")),
        shape=tuple(shape),
        along=None if along is None else _count(f"{where}: along", along, len(shape)),
        operands=tuple((name, _constant(f"{where}.{name}", each, named, depth + 1)) for name, each in rows.items()),
        arguments=arguments,
    )


def _with_numbers(where: str, row: Mapping[str, Any]) -> Any:
    """Return the arguments of a constant; whole numbers that are written as one text become a list."""
    given = row.get("with", {})
    text = given.get("values") if isinstance(given, dict) and row.get("call") == "values" else None
    if not isinstance(text, str):
        return given
    words = text.split(" ")
    if not all(_NUMBER.fullmatch(word) for word in words):
        raise ConfigError(f"{where}: values must be whole numbers with one space in between, got {text[:80]!r}")
    return {**given, "values": [int(word) for word in words]}


def _check_name(where: str, name: str) -> None:
    """Refuse names of operands that are no arguments, or that number a list without bounds."""
    base, dot, number = name.partition(".")
    counted = number.isascii() and number.isdecimal() and len(number) < 5 and int(number) < MOST_LISTED
    if not base.isidentifier() or base == "out" or (dot and not counted):
        raise ConfigError(
            f"{where}: an operand must be an argument such as self or tensors.1, not out and of numbers below "
            f"{MOST_LISTED}, got {name[:80]!r}"
        )


def _check_sizes(where: str, call: str, arguments: Mapping[str, Plain], shape: tuple[int, ...]) -> None:
    """Refuse arguments with which an operation makes more elements than its constant is declared to have."""
    declared = math.prod(shape)
    if call and declared > MOST_ELEMENTS:
        raise ConfigError(f"{where}: shape of a call must have at most {MOST_ELEMENTS:,} elements, got {list(shape)}")
    made = [(name, _product(arguments[name])) for name in _SIZES if name in arguments]
    if call == "arange":
        start, end, step = (_product(arguments.get(name, one)) for name, one in (("start", 0), ("end", 0), ("step", 1)))
        made = [("end", (start + end) / step if step else math.inf)]
    for name, count in made:
        if not count <= max(2 * declared, MOST_LISTED):
            raise ConfigError(
                f"{where}: {name} must make no more elements than shape {list(shape)}, got {str(arguments)[:80]}"
            )


def _product(given: Plain) -> float:
    """Return the product of the sizes of numbers; infinity for what is no number."""
    rows = given if isinstance(given, tuple) else (given,)
    return math.prod(abs(float(each)) if isinstance(each, int | float) else math.inf for each in rows)


def _axes(where: str, given: Any, shape: Shape) -> tuple[str, ...]:
    """Return axes whose factors lie within the dimensions of a shape."""
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given) or len(given) > 32:
        raise ConfigError(f"{where} must be a list of axes, got {str(given)[:80]}")
    most = max(MOST_REPEATS, math.prod(shape.sizes[1:]), *shape.sizes)
    for axis in given:
        if math.prod(factor.size for factor in parse_axis(axis) if factor.dim is None) > most:
            raise ConfigError(f"{where}: repetitions of an axis must be at most {most:,}, got {axis!r}")
        for factor in parse_axis(axis):
            if factor.dim is not None and factor.dim not in shape.dims:
                raise ConfigError(f"{where} must name dimensions of {', '.join(shape.dims)}, got {factor.dim!r}")
            if factor.dim is not None and factor.size * factor.stride > shape.size(factor.dim):
                raise ConfigError(f"{where}: factors must lie within {factor.dim}, got {axis!r}")
    return tuple(given)


def _check_partition(where: str, axes: Sequence[str], shape: Shape) -> None:
    """Refuse axes of a result that are not each index of the output once."""
    rows = [factor for axis in axes for factor in parse_axis(axis)]
    for dim, size in zip(shape.dims, shape.sizes, strict=True):
        mine = [(f.stride, f.size or size) for f in rows if f.dim == dim]
        stride = 1
        for each, count in sorted(mine):
            if each != stride:
                break
            stride *= count
        if stride != size or any(f.dim is None for f in rows):
            raise ConfigError(f"{where} must have every index of {dim} once, got {list(axes)}")


def _arguments(where: str, given: Any) -> tuple[tuple[str, Plain], ...]:
    return tuple((name, _plain(f"{where}.{name}", each, 0)) for name, each in _mapping(where, given).items())


def _plain(where: str, given: Any, depth: int) -> Plain:
    if given is None or isinstance(given, bool | int | float | str):
        return given
    if not isinstance(given, list) or depth > 4 or len(given) > MOST_ARGUMENTS:
        raise ConfigError(f"{where} must be a number, a word, or a list of them, got {str(given)[:80]}")
    return tuple(_plain(where, each, depth + 1) for each in given)


def _mapping(where: str, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{where} must be a mapping, got {str(given)[:80]}")
    return given


def _check(where: str, row: Any, known: Sequence[str], required: Sequence[str]) -> None:
    for name in _mapping(where, row):
        if name not in known:
            raise ConfigError(f"{where}: unknown key {name!r}; keys are {', '.join(known)}")
    for name in required:
        if name not in row:
            raise ConfigError(f"{where}: {name} is missing")


def _word(where: str, given: Any) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"{where} must be a word, got {str(given)[:80]}")
    return given


def _is_count(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < 2**40


def _count(where: str, given: Any, below: int) -> int:
    if not _is_count(given) or given >= below:
        raise ConfigError(f"{where} must be an integer from 0 to {below - 1}, got {str(given)[:80]}")
    return int(given)
