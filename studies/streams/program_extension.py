"""New tasks in a lowered program: sub-tasks of the backward pass, with everything that waits for them."""

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from hwprofiles import Floats, Ints
from planner.lowering import KINDS, Program

__all__ = ["with_sub_tasks"]

_EPILOGUE, _ACTIVATION, _WEIGHT, _BIAS = (
    KINDS.index(f"{name}_gradient") for name in ("epilogue", "activation", "weight", "bias")
)


def with_sub_tasks(program: Program, kinds_of: Callable[[int], Collection[int]]) -> Program:
    """The program with the tasks of epilogues and biases beside the gradients that they belong to.

    Args:
        program: Lowered.
        kinds_of: For a layer, the kinds of sub-tasks that its weight gradient turns into.

    Returns:
        The same work; new tasks have the times of the weight gradients that they were part of, to be set.
    """
    first: dict[tuple[int, int, int], int] = {}
    found: list[tuple[float, int, int]] = []  # place in program order, task that it belongs to, kind
    for task in np.flatnonzero(np.isin(program.kind, [_ACTIVATION, _WEIGHT])).tolist():
        unit = int(program.layer[task]), int(program.sub_batch[task]), int(program.part[task])
        first.setdefault(unit, task)
        if program.kind[task] == _WEIGHT:
            kinds = kinds_of(unit[0])
            found += [(first[unit] - 0.5, task, _EPILOGUE)] if _EPILOGUE in kinds else []
            found += [(task + 0.5, task, _BIAS)] if _BIAS in kinds else []
    # all parts of a layer before, or behind, the whole row of tasks that they belong to
    place = np.array([row[0] for row in found])
    if len(found):
        place = np.where(place % 1 > 0, _row_edges(program, found), place)
    order = np.argsort(np.concatenate([np.arange(program.size, dtype=np.float64), place]), kind="stable")
    return _renumbered(program, found, order)


def _row_edges(program: Program, found: list[tuple[float, int, int]]) -> Floats:
    """Half a place before the first, or behind the last, task of the group that each new task belongs to."""
    start = np.searchsorted(program.group, program.group, side="left")
    stop = np.searchsorted(program.group, program.group, side="right")
    edges = []
    for place, task, kind in found:
        anchor = int(place + 0.5) if kind == _EPILOGUE else task
        edges.append(start[anchor] - 0.5 if kind == _EPILOGUE else stop[anchor] - 0.5)
    return np.array(edges)


def _renumbered(program: Program, found: list[tuple[float, int, int]], order: Ints) -> Program:
    """Rows of the new tasks, everything by its new number."""
    size, owner = program.size + len(found), np.array([row[1] for row in found], dtype=np.int64)
    number = np.empty(size, dtype=np.int64)
    number[order] = np.arange(size)
    kind = np.concatenate([program.kind, np.array([row[2] for row in found], dtype=np.int64)])[order]
    source = np.concatenate([np.arange(program.size), owner])[order]
    columns = {
        name: getattr(program, name)[source]
        for name in (
            "layer", "consumer", "slot", "sub_batch", "backward", "statistics", "again", "device", "peer", "part",
            "size_bytes", "work_s", "made_bytes", "taken_bytes", "group", "box_low", "box_high",
        )
    }  # fmt: skip
    late, early = _dependencies(program, found)
    pairs = np.unique(number[late] * size + number[early])
    late, early = np.divmod(pairs, size)
    return replace(
        program,
        kind=kind,
        collectives={int(number[task]): row for task, row in program.collectives.items()},
        after_start=np.concatenate([[0], np.cumsum(np.bincount(late, minlength=size))]),
        after=early,
        carried=number[program.carried],
        **columns,
    )


def _dependencies(program: Program, found: list[tuple[float, int, int]]) -> tuple[Ints, Ints]:
    """Pairs (task, what it waits for), in old numbers; new tasks count on from the last."""
    unit = np.column_stack([program.layer, program.sub_batch, program.part])
    epilogue_of, bias_of = np.full(program.size, -1), np.full(program.size, -1)
    gradients = np.flatnonzero(np.isin(program.kind, [_ACTIVATION, _WEIGHT]))
    rows = {
        tuple(unit[task].tolist()): program.size + i for i, (_, task, kind) in enumerate(found) if kind == _EPILOGUE
    }
    for task in gradients.tolist():
        epilogue_of[task] = rows.get(tuple(unit[task].tolist()), -1)
    for i, (_, task, kind) in enumerate(found):
        if kind == _BIAS:
            bias_of[task] = program.size + i
    late = program.waiting
    early = program.after
    moved = epilogue_of[late] >= 0  # the epilogue waits for what its gradients waited for
    starts, waits = [np.where(moved, epilogue_of[late], late)], [early]
    has = np.flatnonzero(epilogue_of >= 0)
    biased = np.flatnonzero(bias_of >= 0)
    behind, alone = biased[epilogue_of[biased] >= 0], (bias_of[late] >= 0) & ~moved
    readers = bias_of[early] >= 0
    starts += [has, bias_of[behind], bias_of[late[alone]], starts[0][readers]]
    waits += [epilogue_of[has], epilogue_of[behind], early[alone], bias_of[early[readers]]]
    return np.concatenate(starts), np.concatenate(waits)
