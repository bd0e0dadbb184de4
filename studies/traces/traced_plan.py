"""Traces of PyTorch's profiler set against a plan's timeline, task by task.

Layers of a graph found among the operations of a trace: by annotations with their names, else by their shapes.

A layer of a graph may be several operations: those behind it (normalisation, activation, reshaping) belong to it up to
the first operation of the next layer, in the order in which they ran.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph, Layer
from planner.operations.loss import Loss
from planner.simulation.program_replay import Replay, iteration_rows
from studies.traces.profiler_events import TracedIteration, TracedOperation, traced_iterations

if TYPE_CHECKING:
    import pandas as pd

    from planner.lowering.program import Program


_OPERATORS = {
    "convolution": "conv1d conv2d conv3d convolution _convolution conv_transpose1d conv_transpose2d conv_transpose3d",
    "linear": "linear addmm mm matmul",
    "pooling": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices",
    "global_pooling": "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d mean",
    "add": "add add_",
    "concat": "cat concat",
    "batch_norm": "batch_norm",
    "dropout": "dropout dropout_",
    "loss": "cross_entropy_loss nll_loss nll_loss_nd mse_loss",
}
"""Operations of PyTorch (``aten::``) that a layer of each kind begins with."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Times of the layers of a graph in one iteration of one rank."""

    forward: Mapping[str, tuple[float, float, float]]
    """Start and end after the beginning of the iteration, and the time taken, in seconds, by layer."""
    backward: Mapping[str, tuple[float, float, float]]
    update: tuple[float, float, float] | None
    iteration_s: float
    covered: float
    """Share of the iteration that layers and update account for: of its time, or of that of all kernels."""


def traced_layer_times(graph: ComputationGraph, iteration: TracedIteration) -> LayerTimes:
    """Return the times of the layers of a graph in an iteration.

    Raises:
        ConfigError: No layer is found: the trace has neither shapes nor annotations, or is of another network.
    """
    layers = _layers_of(graph, iteration)
    forward: dict[str, list[TracedOperation]] = {}
    for operation in iteration.forward:
        if id(operation) in layers:
            forward.setdefault(layers[id(operation)], []).append(operation)
    backward: dict[str, list[TracedOperation]] = {}
    for operation in iteration.backward:
        maker = iteration.owner.get(operation.sequence)
        if maker is not None and id(maker) in layers:
            backward.setdefault(layers[id(maker)], []).append(operation)
    origin_s = iteration.start_s
    own = [each for rows in (*forward.values(), *backward.values(), list(iteration.update)) for each in rows]
    whole_s = iteration.device_s or iteration.end_s - iteration.start_s
    return LayerTimes(
        forward={name: _span(rows, origin_s) for name, rows in forward.items()},
        backward={name: _span(rows, origin_s) for name, rows in backward.items()},
        update=_span(iteration.update, origin_s) if iteration.update else None,
        iteration_s=iteration.end_s - iteration.start_s,
        covered=sum(each.busy_s for each in own) / whole_s if whole_s > 0 else 0.0,
    )


def _span(operations: Sequence[TracedOperation], origin_s: float) -> tuple[float, float, float]:
    """Return the start and end of operations after a time, and how long they took."""
    shown = [each for each in operations if each.busy_s > 0] or operations  # others launch no kernel
    start_s, end_s = min(each.span_s[0] for each in shown), max(each.span_s[1] for each in shown)
    return start_s - origin_s, end_s - origin_s, sum(each.busy_s for each in operations)


def _layers_of(graph: ComputationGraph, iteration: TracedIteration) -> dict[int, str]:
    """Return the layer of each forward operation that belongs to one, by the operation's identity."""
    names = {layer.name for layer in graph.layers}
    notes = [each for each in iteration.annotations if each.name in names]
    if not notes and not any(any(each.dims) for each in iteration.forward):
        raise ConfigError(
            "trace has neither Input Dims nor annotations with the names of layers: record it with record_shapes=True"
        )
    found = _first_operations(graph, iteration.forward)
    result: dict[int, str] = {}
    current = ""
    for operation in iteration.forward:
        inside = [note for note in notes if note.start_s <= operation.start_s < note.end_s]
        if inside:
            current = min(inside, key=lambda note: note.end_s - note.start_s).name
        current = found.get(id(operation), current)
        if current:
            result[id(operation)] = current
    if not result:
        raise ConfigError(f"trace shows no layer of {graph.name}: it is of another network")
    return result


def _first_operations(graph: ComputationGraph, operations: Sequence[TracedOperation]) -> dict[int, str]:
    """Return the layer that each operation begins, where it begins one.

    Layers and operations of one kind are joined shape by shape in their order; where shapes differ, as those of parts
    do, in their order alone if there are equally many.
    """
    result: dict[int, str] = {}
    for kind, operators in _OPERATORS.items():
        names = [f"aten::{operator}" for operator in operators.split()]
        layers = [layer for layer in graph.layers if _kind(layer) == kind]
        seen = [(each, _signature(kind, each)) for each in operations if each.name in names and _counts(kind, each)]
        if not layers or not seen:
            continue
        wanted = [_layer_signature(kind, layer) for layer in layers]
        if len(layers) == len(seen) and Counter(wanted) != Counter(signature for _, signature in seen):
            result |= {id(each): layer.name for (each, _), layer in zip(seen, layers, strict=True)}
            continue
        waiting = dict[tuple[int, ...], list[str]]()
        for layer, signature in zip(layers, wanted, strict=True):
            waiting.setdefault(signature, []).append(layer.name)
        for each, signature in seen:
            if waiting.get(signature):
                result[id(each)] = waiting[signature].pop(0)
    return result


def _kind(layer: Layer) -> str:
    """Return the kind of a layer's operation."""
    operation = layer.operation
    return "loss" if isinstance(operation, Loss) else str(getattr(operation, "kind", ""))


def _counts(kind: str, operation: TracedOperation) -> bool:
    """Return whether an operation may begin a layer: sums of counters and of scalars do not."""
    return kind != "add" or (len(operation.dims) > 1 and len(operation.dims[0]) > 1 and len(operation.dims[1]) > 1)


def _signature(kind: str, operation: TracedOperation) -> tuple[int, ...]:
    """Return what tells operations of a kind apart: sizes of weights, or the channels of the first input."""
    dims = operation.dims
    if kind == "convolution" and len(dims) > 1:
        return dims[1]
    if kind == "linear" and len(dims) > 1:
        weight = dims[1] if operation.name == "aten::linear" else dims[-1][::-1]
        return weight
    return dims[0][1:] if dims and kind in ("pooling", "global_pooling", "add", "batch_norm") else ()


def _layer_signature(kind: str, layer: Layer) -> tuple[int, ...]:
    """Return the same of a layer."""
    operation = layer.operation
    first = layer.input_shapes[0]
    if kind == "convolution":
        groups = int(getattr(operation, "groups", 1))
        return (layer.output.size("channel"), first.size("channel") // groups, *getattr(operation, "kernel", ()))
    if kind == "linear":
        inputs = 1
        for size in first.sizes[1:]:
            inputs *= size
        return (layer.output.size("channel"), inputs)
    return tuple(first.sizes[1:]) if kind in ("pooling", "global_pooling", "add", "batch_norm") else ()


@dataclass(frozen=True, slots=True)
class TracedPlan:
    """A plan's tasks, predicted and traced."""

    layers: "pd.DataFrame"
    """A row for each layer and phase: layer, phase, predicted_s, measured_s, error.  Measured times are medians of
    iterations, then means of ranks; NaN where a trace does not show the layer."""
    timeline: "pd.DataFrame"
    """Tasks of a typical iteration in the form of a simulated timeline; those that the traces show."""
    predicted_s: float
    measured_s: float
    """Median time of an iteration, of the slowest rank."""
    covered: float
    """Least share of an iteration's time that the layers and the update account for."""
    missing: tuple[str, ...]
    """Layers and phases that the plan has and no trace shows."""


def traced_plan(program: "Program", replay: Replay, paths: Sequence[Path]) -> TracedPlan:
    """Return a plan's tasks beside those of traces.

    Args:
        program: Program of the plan.
        replay: Its replay.
        paths: A trace for each rank, in their order; fewer than there are devices leave the others out.

    Raises:
        ConfigError: A file is no trace with the fields needed, is of another network, or there are more files than
            devices.
    """
    devices = len(program.cluster.devices)
    if len(paths) > devices:
        raise ConfigError(f"traces must be at most one for each of {devices} devices, got {len(paths)}")
    traces = [[traced_layer_times(program.graph, each) for each in traced_iterations(path)] for path in paths]
    start_s, end_s = _task_times(
        program, [sorted(rows, key=lambda each: each.iteration_s)[(len(rows) - 1) // 2] for rows in traces]
    )
    shown = ~np.isnan(start_s)
    timeline = iteration_rows(program, start_s, end_s, iteration=0, origin="measured")[shown].reset_index(drop=True)
    layers = _layer_rows(program, traces)
    absent = layers[layers["measured_s"].isna()]
    return TracedPlan(
        layers=layers,
        timeline=timeline,
        predicted_s=replay.iteration_s,
        measured_s=max(float(np.median([each.iteration_s for each in rows])) for rows in traces),
        covered=min(each.covered for rows in traces for each in rows),
        missing=tuple(f"{row.layer}, {row.phase}" for row in absent.itertuples()),
    )


def _phases(program: "Program") -> list[tuple[str, np.ndarray]]:
    """Return the computing tasks of each phase, as flags."""
    from planner.lowering.program import KINDS

    update = program.kind == KINDS.index("update")
    computes = program.is_compute & ~program.is_codec
    return [
        ("forward", computes & ~program.backward & ~update & ~program.recomputed),
        ("backward", computes & program.backward & ~update),
        ("update", computes & update),
    ]


def _task_times(program: "Program", ranks: Sequence[LayerTimes]) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of each task of one iteration, NaN where no trace shows it.

    What a trace shows as one, such as both gradients of a layer, is divided in proportion to the predicted times.
    """
    start_s, end_s = np.full(program.size, np.nan), np.full(program.size, np.nan)
    names = [layer.name for layer in program.graph.layers]
    for phase, tasks in _phases(program):
        for device, times in enumerate(ranks):
            here = tasks & (program.device == device)
            spans = {"forward": times.forward, "backward": times.backward}.get(phase)
            for layer in np.unique(program.layer[here]) if spans is not None else [-1]:
                span = spans.get(names[layer]) if spans is not None else times.update
                own = np.flatnonzero(here & (program.layer == layer) if layer >= 0 else here)
                if span is None or not len(own):
                    continue
                work_s = np.maximum(program.work_s[own], 1e-12)
                ends = span[0] + np.cumsum(work_s) / work_s.sum() * (span[1] - span[0])
                start_s[own], end_s[own] = np.concatenate([[span[0]], ends[:-1]]), ends
    return start_s, end_s


def _layer_rows(program: "Program", traces: Sequence[Sequence[LayerTimes]]) -> "pd.DataFrame":
    """Return predicted and measured times by layer and phase."""
    import pandas as pd

    names = [layer.name for layer in program.graph.layers]
    rows = []
    for phase, tasks in _phases(program):
        for layer in [-1] if phase == "update" else range(len(names)):
            predicted, measured = [], []
            for device, iterations in enumerate(traces):
                own = tasks & (program.device == device) & ((program.layer == layer) | (layer < 0))
                if not own.any():
                    continue
                predicted.append(float(program.work_s[own].sum()))
                spans = [_span_of(each, phase, names[layer] if layer >= 0 else "") for each in iterations]
                measured.append(float(np.median(spans)) if spans else np.nan)
            if predicted:
                rows.append(
                    {
                        "layer": names[layer] if layer >= 0 else "all layers",
                        "phase": phase,
                        "predicted_s": float(np.mean(predicted)),
                        "measured_s": float(np.mean(measured)),
                    }
                )
    table = pd.DataFrame(rows)
    return table.assign(error=table["predicted_s"] / table["measured_s"] - 1)


def _span_of(times: LayerTimes, phase: str, layer: str) -> float:
    """Return the time that a layer took in a phase; NaN where the trace does not show it."""
    if phase == "update":
        return times.update[2] if times.update else np.nan
    span = (times.forward if phase == "forward" else times.backward).get(layer)
    return span[2] if span else np.nan
