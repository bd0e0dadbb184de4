"""Memory that delayed weight gradients hold, and a bound on it.

A weight gradient needs its layer's input and the gradient of its output.  Where it runs behind the activation gradient
of its layer, these two stay until it ends.
"""

import heapq
from dataclasses import replace

import numpy as np

from hwprofiles import ConfigError, Floats
from planner.lowering import KINDS, Program
from studies.streams.stream_plan import StreamPlan, pairs_of

__all__ = ["bounded", "held_bytes", "needed_bytes"]

_WEIGHT = KINDS.index("weight_gradient")
_BACK = [KINDS.index(kind) for kind in ("epilogue_gradient", "activation_gradient")]


def needed_bytes(program: Program) -> Floats:
    """What each weight gradient needs: its part's share of input and output gradient; 0 for other tasks, shape (T,)."""
    sizes = np.zeros(program.size)
    for task in np.flatnonzero(program.kind == _WEIGHT).tolist():
        layer = int(program.layer[task])
        row, parts = program.graph.layers[layer], len(program.spaces[layer].devices)
        elements = sum(shape.elements for shape in row.input_shapes) + row.output.elements
        sizes[task] = elements * program.graph.element_bytes / parts / program.micro_batching.of(layer)
    return sizes


def held_bytes(program: Program, end_s: Floats) -> float:
    """Most bytes that weight gradients of one device hold at once, behind the end of their layers' own way back.

    Args:
        program: Decomposed.
        end_s: End of each task of one iteration, shape (T,).
    """
    size = needed_bytes(program)
    since, tasks = _gradients(program), np.flatnonzero(size > 0)
    peak = 0.0
    for device in range(len(program.cluster.devices)):
        mine = [t for t in tasks.tolist() if program.device[t] == device]
        spans = [(end_s[since[_unit(program, t)]], end_s[t], size[t]) for t in mine if _unit(program, t) in since]
        events = sorted([(end, -held) for begin, end, held in spans if end > begin]
                        + [(begin, held) for begin, end, held in spans if end > begin])  # fmt: skip
        peak = max(peak, float(np.cumsum([held for _, held in events]).max(initial=0.0)))
    return peak


def _unit(program: Program, task: int) -> tuple[int, int, int]:
    return int(program.layer[task]), int(program.sub_batch[task]), int(program.part[task])


def _gradients(program: Program) -> dict[tuple[int, int, int], int]:
    """By layer, sub-batch and part, the last task of the way back."""
    return {_unit(program, task): task for task in np.flatnonzero(np.isin(program.kind, _BACK)).tolist()}


def bounded(program: Program, plan: StreamPlan, limit_bytes: float) -> StreamPlan:
    """A plan in which weight gradients of a device hold at most so many bytes while later layers go back.

    Before a layer goes back, the oldest weight gradients must have ended until the rest fit.

    Raises:
        ConfigError: ``limit_bytes`` is negative or not a number.
    """
    if not limit_bytes >= 0:
        raise ConfigError(f"hold_bytes must be >= 0, got {limit_bytes!r}")
    sizes, order = needed_bytes(program), list(map(tuple, plan.order.tolist()))
    weight_of = {_unit(program, t): t for t in np.flatnonzero(program.kind == _WEIGHT).tolist()}
    for device in range(len(program.cluster.devices)):
        waiting: list[int] = []
        begun: set[tuple[int, int, int]] = set()
        back = np.isin(program.kind, [*_BACK, _WEIGHT]) & (program.device == device)
        for task in [task for task in _sorted(program, plan) if back[task]]:
            unit = _unit(program, task)
            if unit in begun:
                continue
            begun.add(unit)
            while waiting and sizes[waiting].sum() > limit_bytes:
                order.append((task, waiting.pop(0)))
            if unit in weight_of:
                waiting.append(weight_of[unit])
    return replace(plan, order=pairs_of(order))


def _sorted(program: Program, plan: StreamPlan) -> list[int]:
    """Tasks in program order as far as their dependencies and those of the plan allow."""
    late = program.waiting
    pairs = np.concatenate([np.column_stack([late, program.after]), plan.order])
    waits, readers = np.bincount(pairs[:, 0], minlength=program.size), [[] for _ in range(program.size)]  # type: ignore[var-annotated]
    for task, early in pairs.tolist():
        readers[early].append(task)
    ready, found = np.flatnonzero(waits == 0).tolist(), []
    while ready:
        task = heapq.heappop(ready)
        found.append(task)
        for reader in readers[task]:
            waits[reader] -= 1
            if waits[reader] == 0:
                heapq.heappush(ready, reader)
    return found
