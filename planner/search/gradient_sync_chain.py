"""Rewriting of a program so that gradient synchronisation runs in an order, in slices, with updates behind it.

In a lowered program all updates end the iteration, and all-reduces of different layers share links as they come.  The
functions of this module move every layer's update before the layer's next forward pass, divide large buffers into
slices, and chain the all-reduces so that one follows the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from groundwork.array_types import Ints
from planner.lowering.program import KINDS, Collective, Program
from planner.simulation.execution_models import build_program_graph
from simulator.timelines.timeline import alone_s

_LATENCY_SHARE = 0.05
"""Most of a slice's time that its latency may take; slices are larger if it would take more."""
_UPDATE = KINDS.index("update")


def gradient_syncs_of(program: Program) -> list[int]:
    """Return the collectives that sum gradients of parameters, in program order."""
    return [task for task in sorted(program.collectives) if program.syncs_gradients[task]]


def slice_gradient_syncs(program: Program, slice_bytes: float) -> Program:
    """Return the program with large all-reduces in slices, and updates just before parameters are used again.

    Args:
        program: Lowered program without micro-batches; each layer's gradients are synchronised in one round.
        slice_bytes: Least size of a slice; slices are larger if latency would take too much of their time.
    """
    return _with_updates_before_use(program, _slice_counts(program, slice_bytes))


def _slice_counts(program: Program, slice_bytes: float) -> Ints:
    """Return the number of slices of each task, shape (T,): 1 for all but large all-reduces."""
    graph, syncs = build_program_graph(program).graph, gradient_syncs_of(program)
    whole_s, latency_s = alone_s(graph), graph.latency_s
    counts = np.ones(program.size, dtype=np.int64)
    for task in syncs:
        by_size = program.collectives[task].buffer_bytes / slice_bytes
        by_latency = whole_s[task] * _LATENCY_SHARE / latency_s[task] if latency_s[task] else np.inf
        counts[task] = max(int(min(by_size, by_latency)), 1)
    for layer in np.unique(program.layer[list(syncs)]).tolist():  # all replicas of a layer have equal slices
        of_layer = [task for task in syncs if program.layer[task] == layer]
        counts[of_layer] = counts[of_layer].min()
    return counts


def _with_updates_before_use(program: Program, slices: Ints) -> Program:
    """Divide all-reduces into slices, and move updates that wait for them before their layers' next forward tasks.

    An update that moves runs in the next iteration, so dependencies on it and of it change places: those inside an
    iteration become dependencies on the iteration before, and the other way round::

                      before                             after
        update        waits for all-reduce               waits for all-reduce of the iteration before
        forward task  waits for update of the            waits for update
                      iteration before
    """
    late, early = program.waiting, program.after
    is_sync = np.zeros(program.size, dtype=np.bool_)
    is_sync[gradient_syncs_of(program)] = True
    moves = np.zeros(program.size, dtype=np.bool_)
    moves[late[is_sync[early] & (program.kind[late] == _UPDATE)]] = True
    # New program order: by (group, slice, task).  Groups are doubled so that a moved update gets an odd one, just
    # before the forward tasks of its layer.
    group = 2.0 * program.group
    forward = (program.kind == KINDS.index("forward")) & ~program.recomputed
    first = {int(layer): int(row) for layer, row in zip(program.layer[forward], program.group[forward], strict=True)}
    group[moves] = [2.0 * first[int(layer)] - 1.0 for layer in program.layer[moves]]
    source = np.repeat(np.arange(program.size), slices)
    # Tasks 4 and 5 in one and in two slices have the sources 4, 5, 5 and the slice indices 0, 0, 1.
    slice_index = np.arange(len(source)) - np.repeat(np.cumsum(slices) - slices, slices)
    order = np.lexsort((source, slice_index, group[source]))
    source, slice_index = source[order], slice_index[order]
    copies = _copies(source, program.size)
    pairs = [(late[~moves[late]], early[~moves[late]]), (late[moves[late]], early[moves[late]])]
    carried_late, carried_early = program.carried.T
    stays = ~moves[carried_early]
    inside = _pairs_of_copies(copies, [pairs[0], (carried_late[~stays], carried_early[~stays])])
    carried = _pairs_of_copies(copies, [pairs[1], (carried_late[stays], carried_early[stays])])
    # A new group begins where the old group or the slice changes.
    rows = np.column_stack([group[source], slice_index])
    start = np.any(np.diff(rows, axis=0, prepend=rows[:1] - 1) != 0, axis=1)
    return _rebuilt(program, source, slices, np.cumsum(start) - 1, inside, carried)


def _copies(source: Ints, size: int) -> list[list[int]]:
    """Return the new tasks of each old task."""
    copies: list[list[int]] = [[] for _ in range(size)]
    for number, task in enumerate(source.tolist()):
        copies[task].append(number)
    return copies


def _pairs_of_copies(copies: Sequence[Sequence[int]], rows: Iterable[tuple[Ints, Ints]]) -> Ints:
    """Return the pairs between all copies of the tasks of given pairs, sorted, shape (N, 2)."""
    pairs = [
        (a, b)
        for late, early in rows
        for one, other in zip(late.tolist(), early.tolist(), strict=True)
        for a in copies[one]
        for b in copies[other]
    ]
    return np.unique(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=0)


def _rebuilt(program: Program, source: Ints, slices: Ints, group: Ints, inside: Ints, carried: Ints) -> Program:
    """Return a program of copies of a program's tasks.

    Args:
        program: The old program.
        source: Old task of each new task.
        slices: Number of slices of each old task.
        group: Group of each new task.
        inside: Pairs (task, task that it waits for) of new tasks in one iteration, sorted.
        carried: Pairs of new tasks where the second belongs to the iteration before.
    """
    columns = program.columns_of(source) | {"group": group}
    columns["size_bytes"] = columns["size_bytes"] / slices[source]
    collectives = {
        number: _slice(program.collectives[task], int(slices[task]))
        for number, task in enumerate(source.tolist())
        if task in program.collectives
    }
    counts = np.bincount(inside[:, 0], minlength=len(source))
    return replace(
        program,
        collectives=collectives,
        after_start=np.concatenate([[0], np.cumsum(counts)]),
        after=inside[:, 1],
        carried=carried,
        **columns,
    )


def _slice(collective: Collective, count: int) -> Collective:
    """Return one of ``count`` equal slices of a collective."""
    return replace(collective, buffer_bytes=collective.buffer_bytes / count) if count > 1 else collective


def chain_gradient_syncs(program: Program, order: Sequence[int] | None = None) -> Program:
    """Let each all-reduce wait for the one before it that shares a device with it, also of the iteration before.

    Args:
        program: Result of ``slice_gradient_syncs``, or a program with another order, which this one replaces.
        order: All of its all-reduces of gradients; None: program order.
    """
    order = gradient_syncs_of(program) if order is None else order
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    pairs: set[tuple[int, int]] = set()
    for task in order:
        for device in program.collectives[task].devices:
            if device in last:
                pairs.add((task, last[device]))
            first.setdefault(device, task)
            last[device] = task
    over = {(task, last[device]) for device, task in first.items()}
    late = program.waiting
    inside = np.concatenate([_unchained(program, np.column_stack([late, program.after])), _pairs(pairs)])
    inside = np.unique(inside, axis=0)
    counts = np.bincount(inside[:, 0], minlength=program.size)
    return replace(
        program,
        sync_order=tuple(order),
        after_start=np.concatenate([[0], np.cumsum(counts)]),
        after=inside[:, 1],
        carried=np.concatenate([_unchained(program, program.carried), _pairs(over)]),
    )


def _unchained(program: Program, pairs: Ints) -> Ints:
    """Return the pairs of tasks without those between two all-reduces of gradients."""
    return pairs[~np.isin(pairs, gradient_syncs_of(program)).all(axis=1)]


def _pairs(rows: Iterable[tuple[int, int]]) -> Ints:
    """Return pairs as an array, sorted, shape (N, 2)."""
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
