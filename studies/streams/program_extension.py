"""Sub-tasks of the backward pass as new tasks of a lowered program, with the dependencies through them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from planner.lowering.program import KINDS, Program

_EPILOGUE, _ACTIVATION, _WEIGHT, _BIAS = (
    KINDS.index(f"{name}_gradient") for name in ("epilogue", "activation", "weight", "bias")
)


class _NewTask(NamedTuple):
    """A sub-task that is added."""

    owner: int
    """Weight gradient that it was a part of."""
    kind: int
    neighbour: int
    """Task whose group it stands before or after."""


def with_sub_tasks(program: Program, kinds_of: Callable[[int], Collection[int]]) -> Program:
    """Return the program with tasks for the gradients of epilogues and biases.

    Of one part of a layer, the epilogue's gradient comes before the others and the bias's gradient after them:

        before:  activation gradient, weight gradient
        after:   epilogue gradient, activation gradient, weight gradient, bias gradient

    Returns:
        The same work; a new task has the time of the weight gradient that it was part of, for the caller to set.

    Source:
        "TurboDL", Sec. 2.2, Eqs. 2 to 4.
    """
    first: dict[tuple[int, int, int], int] = {}
    new: list[_NewTask] = []
    for task in np.flatnonzero(np.isin(program.kind, [_ACTIVATION, _WEIGHT])).tolist():
        unit = int(program.layer[task]), int(program.micro_batch[task]), int(program.part[task])
        first.setdefault(unit, task)
        if program.kind[task] == _WEIGHT:
            kinds = kinds_of(unit[0])
            new += [_NewTask(task, _EPILOGUE, first[unit])] if _EPILOGUE in kinds else []
            new += [_NewTask(task, _BIAS, task)] if _BIAS in kinds else []
    # a stable sort puts the new tasks between old ones, whose positions are whole numbers
    positions = np.concatenate([np.arange(program.size, dtype=np.float64), _positions(program, new)])
    return _renumbered(program, new, np.argsort(positions, kind="stable"))


def _positions(program: Program, new: Sequence[_NewTask]) -> Floats:
    """Return the position of each new task in program order.

    An epilogue's gradient is half a position before the group of tasks that its neighbour belongs to, a bias's
    gradient half a position after it, so that all parts of a layer stay together.
    """
    start = np.searchsorted(program.group, program.group, side="left")
    stop = np.searchsorted(program.group, program.group, side="right")
    return np.array([(start if row.kind == _EPILOGUE else stop)[row.neighbour] - 0.5 for row in new])


def _renumbered(program: Program, new: Sequence[_NewTask], order: Ints) -> Program:
    """Return the program with the new tasks, and all tasks by their new numbers."""
    size, owner = program.size + len(new), np.array([row.owner for row in new], dtype=np.int64)
    number = np.empty(size, dtype=np.int64)  # the new number of each task, the inverse of the order
    number[order] = np.arange(size)
    kind = np.concatenate([program.kind, np.array([row.kind for row in new], dtype=np.int64)])[order]
    # A new task takes all other columns over from the weight gradient that it was part of.
    source = np.concatenate([np.arange(program.size), owner])[order]
    columns = program.columns_of(source) | {"kind": kind}
    late, early = _dependencies(program, new)
    pairs = np.unique(number[late] * size + number[early])
    late, early = np.divmod(pairs, size)
    return replace(
        program,
        collectives={int(number[task]): row for task, row in program.collectives.items()},
        after_start=np.concatenate([[0], np.cumsum(np.bincount(late, minlength=size))]),
        after=early,
        carried=number[program.carried],
        **columns,
    )


def _dependencies(program: Program, new: Sequence[_NewTask]) -> tuple[Ints, Ints]:
    """Return the tasks that wait and the tasks that they wait for, shape (N,) each; new tasks count on from the last.

    With e, a, w, b for the four gradients of a part and x for the tasks around it:

        before:  a -> x, w -> x            (each waits for x)
        after:   e -> x, a -> e, w -> e, b -> e; tasks that waited for w wait for b too
    """
    unit = np.column_stack([program.layer, program.micro_batch, program.part])
    epilogue_of, bias_of = np.full(program.size, -1), np.full(program.size, -1)
    gradients = np.flatnonzero(np.isin(program.kind, [_ACTIVATION, _WEIGHT]))
    rows = {tuple(unit[row.owner].tolist()): program.size + i for i, row in enumerate(new) if row.kind == _EPILOGUE}
    for task in gradients.tolist():
        epilogue_of[task] = rows.get(tuple(unit[task].tolist()), -1)
    for i, row in enumerate(new):
        if row.kind == _BIAS:
            bias_of[row.owner] = program.size + i
    late, early = program.waiting, program.after
    moved = epilogue_of[late] >= 0  # the epilogue waits in place of the gradients that start from it
    starts, waits = [np.where(moved, epilogue_of[late], late)], [early]
    has = np.flatnonzero(epilogue_of >= 0)
    biased = np.flatnonzero(bias_of >= 0)
    behind, alone = biased[epilogue_of[biased] >= 0], (bias_of[late] >= 0) & ~moved
    readers = bias_of[early] >= 0
    starts += [has, bias_of[behind], bias_of[late[alone]], starts[0][readers]]
    waits += [epilogue_of[has], epilogue_of[behind], early[alone], bias_of[early[readers]]]
    return np.concatenate(starts), np.concatenate(waits)
