"""Memory that delayed weight gradients hold, and a bound on it.

A weight gradient needs its layer's input and the gradient of its output.  Where it runs after the activation gradient
of its layer, these two stay in memory until it ends.
"""

from dataclasses import replace

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from planner.lowering.program import KINDS, Program
from studies.streams.stream_plan import StreamPlan, pairs_of, run_order

_WEIGHT = KINDS.index("weight_gradient")
_BACK = [KINDS.index(kind) for kind in ("epilogue_gradient", "activation_gradient")]
_Unit = tuple[int, int, int]
"""Layer, sub-batch and part."""


def needed_bytes(program: Program) -> Floats:
    """Return the bytes that each weight gradient reads: its part's share of input and output gradient.

    Returns:
        Bytes of each task, 0 for tasks of other kinds, shape (T,).
    """
    sizes = np.zeros(program.size)
    for task in np.flatnonzero(program.kind == _WEIGHT).tolist():
        layer = int(program.layer[task])
        row, parts = program.graph.layers[layer], len(program.spaces[layer].devices)
        elements = sum(shape.elements for shape in row.input_shapes) + row.output.elements
        sizes[task] = elements * program.graph.element_bytes / parts / program.micro_batching.of(layer)
    return sizes


def held_bytes(program: Program, end_s: Floats) -> float:
    """Return the most bytes that the weight gradients of one device hold at once.

    A weight gradient holds what it needs from the end of its layer's activation gradient to its own end.
    """
    size = needed_bytes(program)
    since, tasks = _last_gradients(program), np.flatnonzero(size > 0)
    peak = 0.0
    for device in range(len(program.cluster.devices)):
        mine = [t for t in tasks.tolist() if program.device[t] == device]
        spans = [(end_s[since[_unit(program, t)]], end_s[t], size[t]) for t in mine if _unit(program, t) in since]
        # releases sort before allocations at the same time, because they are negative
        events = sorted(
            [(end, -held) for begin, end, held in spans if end > begin]
            + [(begin, held) for begin, end, held in spans if end > begin]
        )
        peak = max(peak, float(np.cumsum([held for _, held in events]).max(initial=0.0)))
    return peak


def _unit(program: Program, task: int) -> _Unit:
    return int(program.layer[task]), int(program.micro_batch[task]), int(program.part[task])


def _last_gradients(program: Program) -> dict[_Unit, int]:
    """Return the last task of the activation gradient of each layer, sub-batch and part."""
    return {_unit(program, task): task for task in np.flatnonzero(np.isin(program.kind, _BACK)).tolist()}


def bounded(program: Program, plan: StreamPlan, limit_bytes: float) -> StreamPlan:
    """Return a plan in which the delayed weight gradients of a device hold at most ``limit_bytes``.

    Before a layer starts its backward pass, the oldest weight gradients must have ended until the rest fit.

    Raises:
        ConfigError: ``limit_bytes`` is negative or not a number.
    """
    if not limit_bytes >= 0:
        raise ConfigError(f"hold_bytes must be >= 0, got {limit_bytes!r}")
    sizes, order = needed_bytes(program), list(map(tuple, plan.order.tolist()))
    weight_of = {_unit(program, t): t for t in np.flatnonzero(program.kind == _WEIGHT).tolist()}
    late = np.concatenate([program.waiting, plan.order[:, 0]])
    early = np.concatenate([program.after, plan.order[:, 1]])
    tasks = run_order(late, early, np.zeros(program.size, dtype=np.int64))
    for device in range(len(program.cluster.devices)):
        waiting: list[int] = []
        begun: set[_Unit] = set()
        back = np.isin(program.kind, [*_BACK, _WEIGHT]) & (program.device == device)
        for task in [task for task in tasks if back[task]]:
            unit = _unit(program, task)
            if unit in begun:
                continue
            begun.add(unit)
            while waiting and sizes[waiting].sum() > limit_bytes:
                order.append((task, waiting.pop(0)))
            if unit in weight_of:
                waiting.append(weight_of[unit])
    return replace(plan, order=pairs_of(order))
