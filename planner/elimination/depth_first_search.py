"""The depth-first search that the layer-wise paper compares with (Table 3; Jia et al., ICML 2018, Sec. 5.2)."""

import math

import numpy as np
from numba import njit

from hwprofiles import Floats, InfeasiblePlanError, Ints
from planner.elimination.search_problem import SearchProblem, Solution, strategy_cost
from simulator.graph import pack_rows

__all__ = ["depth_first"]


@njit(
    "int64(float64[::1], int64[::1], float64[::1], int64[::1], int64[:,::1], int64[::1], int64[::1], int64[::1],"
    " boolean, int64, int64[::1])",
    cache=True,
    nogil=True,
)
def _search(
    node_cost: Floats,
    node_start: Ints,
    table: Floats,
    layout: Ints,
    slots: Ints,
    slot_start: Ints,
    rival_start: Ints,
    rivals: Ints,
    prune: bool,
    most: int,
    best: Ints,
) -> int:
    """Fill ``best`` with the cheapest choice and return the partial strategies priced; stop above ``most``.

    ``slots`` has a row for every consuming edge, in the order of the consumers: producer, offset in ``table``,
    offset in ``layout``.  ``rivals`` lists for every slot the earlier ones of the same tensor, as rows of slots,
    then their consumers: who asked for a layout before pays for it.
    """
    nodes = len(node_start) - 1
    choice, partial = np.full(nodes, -1), np.zeros(nodes + 1)
    least, visits, node = np.inf, 0, 0
    while node >= 0:
        choice[node] += 1
        width = node_start[node + 1] - node_start[node]
        if choice[node] == width:
            choice[node] = -1
            node -= 1
            continue
        visits += 1
        if visits > most:
            return visits
        total = partial[node] + node_cost[node_start[node] + choice[node]]
        for slot in range(slot_start[node], slot_start[node + 1]):
            price = table[slots[slot, 1] + choice[slots[slot, 0]] * width + choice[node]]
            if price < np.inf:
                asked = layout[slots[slot, 2] + choice[node]]
                for i in range(rival_start[slot], rival_start[slot + 1]):
                    rival = rivals[i]
                    if layout[slots[rival, 2] + choice[slots[rival, 3]]] == asked:
                        price = 0.0
                        break
            total += price
        if prune and total >= least:
            continue
        if node == nodes - 1:
            if total < least:
                least = total
                best[:] = choice
            continue
        node += 1
        partial[node] = total
    return visits


def _rows(problem: SearchProblem) -> tuple[Floats, Ints, Ints, list[int], list[list[int]]]:
    """Tables laid out for ``_search``: prices, layouts, slots, slots per node, rivals per slot."""
    listed = sorted(
        (consumer, index, place)
        for index, tensor in enumerate(problem.tensors)
        for place, consumer in enumerate(tensor.consumers)
    )
    tables: list[Floats] = []
    layouts: list[Ints] = []
    slots: list[tuple[int, int, int, int]] = []
    rivals: list[list[int]] = []
    seen: dict[int, list[int]] = {}
    table_offset = layout_offset = 0
    for slot, (consumer, index, place) in enumerate(listed):
        tensor = problem.tensors[index]
        tables.append(tensor.cost_s[place].ravel())
        layouts.append(tensor.layout[place])
        slots.append((tensor.producer, table_offset, layout_offset, consumer))
        rivals.append(list(seen.setdefault(index, [])))
        seen[index].append(slot)
        table_offset += tables[-1].size
        layout_offset += layouts[-1].size
    per_node = np.bincount([consumer for consumer, _, _ in listed], minlength=len(problem.counts)).tolist()
    return (
        np.concatenate([*tables, np.zeros(0)]),
        np.concatenate([*layouts, np.zeros(0, dtype=np.int64)]),
        np.array(slots, dtype=np.int64).reshape(-1, 4),
        per_node,
        rivals,
    )


def depth_first(problem: SearchProblem, *, prune: bool = False, max_visits: int = 10**12) -> Solution:
    """Return a strategy of least cost by trying them all, layer after layer.

    Of several with the same cost, the first in lexicographic order.

    Args:
        problem: Cost tables.
        prune: Turn back where the cost so far reaches the best found.
        max_visits: Give up after so many partial strategies; about 10^8 a second are visited.

    Raises:
        InfeasiblePlanError: There are more than ``max_visits``, or every strategy costs ``inf``.
    """
    table, layout, slots, per_node, rivals = _rows(problem)
    counts = problem.counts
    best = np.full(len(counts), -1, dtype=np.int64)
    visits = _search(
        np.concatenate([*problem.node_cost_s, np.zeros(0)]),
        np.cumsum([0, *counts]),
        table,
        layout,
        slots,
        np.cumsum([0, *per_node]),
        *pack_rows(rivals),
        prune,
        max_visits,
        best,
    )
    if visits > max_visits:
        raise InfeasiblePlanError(
            f"depth-first search gives up after {max_visits} partial strategies; there are {math.prod(counts):.1e} "
            "whole ones"
        )
    if counts and best[0] < 0:
        raise InfeasiblePlanError("every strategy uses a forbidden pair of configurations: the least cost is inf")
    choice = tuple(best.tolist())
    return Solution(
        choice=choice,
        cost_s=strategy_cost(problem, choice),
        width=max(0, len(counts) - 1),
        core_nodes=len(counts),
        candidates=visits,
    )
