"""Order of gradient synchronisation: all-reduces follow one another, and updates wait for their own only.

As lowered, all updates end an iteration, and all-reduces share links as they come.  With an order, every layer's update
stands before the layer's next forward pass instead, and one all-reduce follows the other.  The backward pass makes the
gradients of the last layer first, but the next forward pass needs the parameters of the first layer first: so waiting
all-reduces go by reuse distance, those of the first layers before those of later layers.  Large gradients are divided
into slices, or one all-reduce would hold the links while more urgent ones wait.

The order is fixed by simulation and is part of the program: all replicas use one order, and what the simulation
replays is what runs.

Source:
    "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
"""

from collections.abc import Sequence

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import ConfigError
from planner.graph.layer_paths import dependency_distances
from planner.lowering.program import Program
from planner.search.gradient_sync_chain import chain_gradient_syncs, gradient_syncs_of, slice_gradient_syncs
from planner.simulation.execution_models import ITERATIONS, ProgramGraph, build_program_graph
from planner.simulation.program_replay import replay
from simulator.engines.engine import simulate
from simulator.timelines.timeline import alone_s

GRADIENT_SYNC_ORDERS = ("end", "ready", "reuse")
"""``end``: all updates end the iteration; else each waits for its own all-reduce.  ``ready``: all-reduces go in the
order in which gradients are computed; ``reuse``: by reuse distance, the first layers first."""
SLICE_BYTES = (float("inf"), 2.0**22, 2.0**20)
"""Sizes of slices that are tried: small ones let urgent all-reduces overtake sooner, but their latencies add up."""
_TRIES = 2
"""Orders by reuse that are simulated for each size, each based on the times under the one before."""


def check_gradient_sync_order(order: str) -> None:
    """Refuse an unknown order.

    Raises:
        ConfigError: ``order`` is none of ``GRADIENT_SYNC_ORDERS``.
    """
    if order not in GRADIENT_SYNC_ORDERS:
        raise ConfigError(f"gradient_sync_order must be one of {', '.join(GRADIENT_SYNC_ORDERS)}, got {order!r}")


def order_gradient_syncs(program: Program, order: str, *, slice_bytes: Sequence[float] = SLICE_BYTES) -> Program:
    """Return the program with its gradient synchronisation in an order, and updates before parameters are used again.

    Args:
        program: Lowered program with collectives as single activities.
        order: One of ``GRADIENT_SYNC_ORDERS``.
        slice_bytes: Least sizes of slices that are tried for ``reuse``; infinity: no slices.

    Returns:
        The same program for ``end``, or if no gradients are synchronised; else one whose ``Program.sync_order`` is
        set.  For ``reuse`` it has the shortest simulated iteration among all sizes of slices, ``ready`` and ``end``.

    Raises:
        ConfigError: An unknown order, micro-batches, shared parameters that are sent, compressed gradients, storage
            that replicas divide, or an all-reduce of several rounds.

    Source:
        "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
    """
    check_gradient_sync_order(order)
    syncs = gradient_syncs_of(program)
    if order == "end" or not syncs:
        return program
    if program.micro_batching.parts > 1:
        raise ConfigError(f"gradient_sync_order must be end with sub-batches or micro-batches, got {order!r}")
    if program.moves_parameters.any():
        raise ConfigError(f"gradient_sync_order must be end where shared parameters are sent, got {order!r}")
    if program.compressed.gradients:
        raise ConfigError(f"gradient_sync_order must be end if gradients are compressed, got {order!r}")
    if program.conditions.storage.divides:
        raise ConfigError(f"gradient_sync_order must be end if zero is not 0, got {order!r}")
    if np.isin(program.waiting, syncs)[np.isin(program.after, syncs)].any():
        raise ConfigError(f"gradient_sync_order must be end unless gradient_sync is ring, one round, got {order!r}")
    ready = chain_gradient_syncs(slice_gradient_syncs(program, np.inf))
    if order == "ready":
        return ready
    candidates = [program, ready]
    for size in slice_bytes:
        last = chain_gradient_syncs(slice_gradient_syncs(program, size))
        for _ in range(_TRIES):
            last = chain_gradient_syncs(last, _by_reuse(last))
            candidates.append(last)
    return min(candidates, key=lambda candidate: replay(candidate).iteration_s)


def _by_reuse(program: Program) -> list[int]:
    """Return an order by list scheduling: when devices are free, the ready all-reduce of least reuse distance is next.

    Args:
        program: Program with some order, whose steady iteration tells when gradients are ready.

    Source:
        "TurboDL", Sec. 3.3, Extension to Multiple GPUs.
    """
    program_graph = build_program_graph(program, iterations=ITERATIONS)
    graph = program_graph.graph
    ready_s = _gradients_ready_s(program, program_graph)
    duration_s = (alone_s(graph) + graph.latency_s)[: program.size]
    distance = dependency_distances(program.graph)
    # slices of one all-reduce, the last first: they are interchangeable
    queues: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for task in sorted(program.sync_order, reverse=True):
        queues.setdefault((int(program.layer[task]), program.collectives[task].devices), []).append(task)
    heads = sorted(queues, key=lambda key: (distance[key[0]], key))
    free_s = np.zeros(len(program.cluster.devices))
    order = []
    while heads:
        begins_s = [max(ready_s[queues[key][-1]], free_s[list(key[1])].max()) for key in heads]
        begin_s = min(begins_s)
        key = heads[begins_s.index(begin_s)]  # the first of equals has the least reuse distance
        task = queues[key].pop()
        free_s[list(key[1])] = begin_s + duration_s[task]
        order.append(task)
        if not queues[key]:
            heads.remove(key)
    return order


def _gradients_ready_s(program: Program, program_graph: ProgramGraph) -> Floats:
    """Return the time in a steady iteration at which the gradients of each all-reduce are computed; 0 for other tasks.

    Returns:
        Seconds, shape (T,).
    """
    ends_s = simulate(program_graph.graph).end_s[program_graph.task_of[ITERATIONS - 2]]
    late = program.waiting
    ready_s = np.zeros(program.size)
    computed = program.is_compute[program.after]
    np.maximum.at(ready_s, late[computed], ends_s[program.after[computed]])
    return ready_s
