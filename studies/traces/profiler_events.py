"""Operations of a trace that PyTorch's profiler (Kineto) wrote: iteration by iteration, outermost ones only."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groundwork.errors import ConfigError
from groundwork.input_files import json_input
from groundwork.units import MICRO

_STEP = "ProfilerStep#"
_ENGINE = "autograd::engine::evaluate_function: "
_ACCUMULATE = "AccumulateGrad"
_STEPS, _OPTIMIZER = "Optimizer.step#", "Optimizer."
_DEVICE_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
_MOST_DIMS = 16


@dataclass(frozen=True, slots=True, eq=False)
class TracedOperation:
    """An outermost operation of a thread, or an annotation."""

    name: str
    start_s: float
    """Start on the processor, which tells the step and the pass that the operation belongs to."""
    end_s: float
    sequence: int = -1
    """Number of the autograd node that it makes, or that it evaluates; -1 if none."""
    dims: tuple[tuple[int, ...], ...] = ()
    """Shape of each input that is a tensor; () of others."""
    busy_s: float = 0.0
    """Time that it takes: its own on the processor, or that of the kernels which it launches."""
    kernels_s: tuple[float, float] | None = None
    """Start of the first and end of the last kernel that it launches, later than its own; None if it launches none."""

    @property
    def span_s(self) -> tuple[float, float]:
        """Start and end of its work: that of its kernels, else its own."""
        return self.kernels_s or (self.start_s, self.end_s)


@dataclass(frozen=True, slots=True)
class TracedIteration:
    """One iteration of one rank; seconds are those of the trace's clock."""

    start_s: float
    end_s: float
    annotations: tuple[TracedOperation, ...]
    forward: tuple[TracedOperation, ...]
    """Operations outside the backward pass and the optimizer, in order of time."""
    backward: tuple[TracedOperation, ...]
    """Evaluations of autograd nodes, in order of time; each has the sequence number of its node, or that of the node
    whose gradient it accumulates."""
    update: tuple[TracedOperation, ...]
    """Work of the optimizer."""
    owner: Mapping[int, TracedOperation]
    """Forward operation that made the autograd node of each number."""
    device_s: float
    """Time of all kernels; 0 where the trace has none."""


def traced_iterations(path: Path) -> list[TracedIteration]:
    """Return the iterations of a trace.

    An iteration is what the profiler calls a step; a trace without steps is one iteration.

    Raises:
        ConfigError: The file is no such trace, or lacks the operations or their sequence numbers.
    """
    tree = json_input(path, "trace")
    events = tree.get("traceEvents") if isinstance(tree, dict) else None
    if not isinstance(events, list):
        raise ConfigError(f"trace {path} must have a list traceEvents, as torch.profiler's export_chrome_trace writes")
    rows = [row for row in events if isinstance(row, dict) and row.get("ph") == "X"]
    operations = [row for row in rows if row.get("cat") == "cpu_op"]
    if not operations:
        raise ConfigError(f"trace {path} has no operations (cat cpu_op): record it with ProfilerActivity.CPU")
    if not any(_argument(row, "Sequence number") is not None for row in operations):
        raise ConfigError(
            f"trace {path} has no Sequence number of any operation: record forward and backward pass with gradients"
        )
    if not any(str(row.get("name")).startswith(_ENGINE) for row in operations):
        raise ConfigError(f"trace {path} has no backward pass: no operation is called {_ENGINE.strip()}")
    notes = [_operation(row, path) for row in rows if row.get("cat") in ("user_annotation", "python_function")]
    steps = [each for each in notes if each.name.startswith(_STEP)]
    threads = _outermost(operations, path)
    kernels = _kernels(rows, path)
    on_device = bool(kernels)
    if on_device:
        threads = [(_with_kernels(each, inside, kernels), inside) for each, inside in threads]
    if not steps:
        spans = [each for each, _ in threads]
        steps = [TracedOperation("all", min(each.start_s for each in spans), max(each.end_s for each in spans))]
    return [_iteration(step, notes, threads, on_device) for step in sorted(steps, key=lambda step: step.start_s)]


def _argument(row: Mapping[str, Any], key: str) -> Any:
    """Return an argument of an event; None where it is missing."""
    arguments = row.get("args")
    return arguments.get(key) if isinstance(arguments, dict) else None


def _operation(row: Mapping[str, Any], path: Path) -> TracedOperation:
    start, duration = row.get("ts"), row.get("dur", 0)
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in (start, duration)):
        raise ConfigError(f"trace {path}: ts and dur must be numbers of microseconds, got {start!r} and {duration!r}")
    if duration < 0:
        raise ConfigError(f"trace {path}: dur must be >= 0, got {duration!r}")
    sequence = _argument(row, "Sequence number")
    return TracedOperation(
        name=str(row.get("name")),
        start_s=float(start or 0.0) * MICRO,
        end_s=(float(start or 0.0) + float(duration)) * MICRO,
        sequence=sequence if isinstance(sequence, int) else -1,
        dims=tuple(_shapes(_argument(row, "Input Dims"))),
        busy_s=float(duration) * MICRO,
    )


def _shapes(dims: Any) -> Iterator[tuple[int, ...]]:
    for shape in dims if isinstance(dims, list) else ():
        plain = isinstance(shape, list) and len(shape) <= _MOST_DIMS and all(type(size) is int for size in shape)
        yield tuple(shape) if plain else ()


_Inside = list[tuple[int, Any]]
_Nested = tuple[TracedOperation, _Inside]
"""An outermost operation, with the sequence number and the external id of itself and of all operations inside."""


def _outermost(rows: Sequence[Mapping[str, Any]], path: Path) -> list[_Nested]:
    """Return the outermost operations of all threads, in order of time."""
    threads: dict[Any, list[tuple[TracedOperation, Any]]] = {}
    for row in rows:
        key = (str(row.get("pid")), str(row.get("tid")))
        threads.setdefault(key, []).append((_operation(row, path), _argument(row, "External id")))
    found: list[_Nested] = []
    for entries in threads.values():
        entries.sort(key=lambda entry: (entry[0].start_s, -entry[0].end_s))
        last: _Nested | None = None
        for operation, external in entries:
            if last is None or operation.start_s >= last[0].end_s:
                last = (operation, [])
                found.append(last)
            last[1].append((operation.sequence, external if isinstance(external, int) else None))
    return sorted(found, key=lambda entry: entry[0].start_s)


def _kernels(rows: Sequence[Mapping[str, Any]], path: Path) -> dict[int, list[TracedOperation]]:
    """Return the kernels that each operation launched, by its external id."""
    found: dict[int, list[TracedOperation]] = {}
    for row in rows:
        external = _argument(row, "External id")
        if row.get("cat") in _DEVICE_KINDS and isinstance(external, int):
            found.setdefault(external, []).append(_operation(row, path))
    return found


def _iteration(
    step: TracedOperation, notes: Sequence[TracedOperation], threads: Sequence[_Nested], on_device: bool
) -> TracedIteration:
    """Return the operations within a step, divided into forward pass, backward pass and update."""
    notes = [each for each in notes if step.start_s <= each.start_s < step.end_s]
    optimizers = [each for each in notes if each.name.startswith(_OPTIMIZER)]
    forward, backward, update = list[TracedOperation](), list[TracedOperation](), list[TracedOperation]()
    owner: dict[int, TracedOperation] = {}
    device_s, number = 0.0, -1
    for operation, inside in threads:
        if not step.start_s <= operation.start_s < step.end_s:
            continue
        device_s += operation.busy_s if on_device else 0.0
        if operation.name.startswith(_ENGINE):
            # Gradients of parameters are added up right after the node that computed them.
            number = number if _ACCUMULATE in operation.name else operation.sequence
            backward.append(replace(operation, sequence=number))
        elif owning := [each for each in optimizers if each.start_s <= operation.start_s < each.end_s]:
            update += [operation] if owning[0].name.startswith(_STEPS) else []
        else:
            forward.append(operation)
            # A node takes the number that was the next one when its operation began: the last such one made it.
            owner |= {sequence: operation for sequence, _ in inside if sequence >= 0}
    if not on_device:
        update = [each for each in optimizers if each.name.startswith(_STEPS)]
    return TracedIteration(
        step.start_s, step.end_s, tuple(notes), tuple(forward), tuple(backward), tuple(update), owner, device_s
    )


def _with_kernels(
    operation: TracedOperation, inside: _Inside, kernels: dict[int, list[TracedOperation]]
) -> TracedOperation:
    """Return an operation with the time and the span of the kernels that it launched, which it takes away."""
    own = [kernel for _, external in inside for kernel in kernels.pop(external, [])]
    span_s = (min(each.start_s for each in own), max(each.end_s for each in own)) if own else None
    return replace(operation, busy_s=sum(each.busy_s for each in own), kernels_s=span_s)
