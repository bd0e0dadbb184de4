"""The depth-first search that the layer-wise paper compares with (Table 3; Jia et al., ICML 2018, Sec. 5.2)."""

import math
from typing import NamedTuple

import numpy as np

from groundwork.array_types import Floats, Ints
from groundwork.errors import InfeasiblePlanError
from planner.elimination.search_problem import SearchProblem, Solution, strategy_cost
from simulator.compiled.jit import kernel
from simulator.graph.task_graph import pack_rows


class _Tables(NamedTuple):
    """The cost tables of a search problem, one after another, with a slot for every consuming edge.

    Slots are in the order of their consumers.  Two consumers b and c of one tensor a, whose transfers may be shared::

        slot    consumer    rivals
        0       b           none
        1       c           [0]: c pays nothing for a layout that b needs too
    """

    node_cost: Floats
    """Costs of the configurations, node after node."""
    node_start: Ints
    """First entry of each node in ``node_cost``, shape (N + 1,)."""
    table: Floats
    """Transfer times of the slots, rows of the producer, slot after slot."""
    layout: Ints
    """Layouts of the consumer's configurations, slot after slot."""
    slots: Ints
    """Producer, offset in ``table``, offset in ``layout``, and consumer of each slot, shape (slots, 4)."""
    slot_start: Ints
    """First slot of each node, shape (N + 1,)."""
    rival_start: Ints
    """First entry of each slot in ``rivals``, shape (slots + 1,)."""
    rivals: Ints
    """Earlier slots of the same tensor, which pay for the layouts that they need first."""


@kernel(lambda tables, *_: 1e-5 * np.prod(np.diff(tables.node_start), dtype=float))
def _search(tables: _Tables, prune: bool, most: int, best: Ints) -> int:
    """Fill ``best`` with the cheapest choice and return the number of partial strategies priced.

    Args:
        tables: Cost tables.
        prune: Turn back where the cost so far reaches the best complete one.
        most: Number of partial strategies after which the search stops.
        best: Result: the configuration of each node.
    """
    node_cost, node_start, table, layout, slots, slot_start, rival_start, rivals = tables
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
                # A tensor in the layout that an earlier consumer of it needs, too, has been paid for there.
                needed = layout[slots[slot, 2] + choice[node]]
                for i in range(rival_start[slot], rival_start[slot + 1]):
                    rival = rivals[i]
                    if layout[slots[rival, 2] + choice[slots[rival, 3]]] == needed:
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


def _tables(problem: SearchProblem) -> _Tables:
    """Lay the tables of a problem out for ``_search``."""
    listed = sorted(
        (consumer, index, position)
        for index, tensor in enumerate(problem.tensors)
        for position, consumer in enumerate(tensor.consumers)
    )
    tables: list[Floats] = []
    layouts: list[Ints] = []
    slots: list[tuple[int, int, int, int]] = []
    rivals: list[list[int]] = []
    seen: dict[int, list[int]] = {}
    table_offset = layout_offset = 0
    for slot, (consumer, index, position) in enumerate(listed):
        tensor = problem.tensors[index]
        tables.append(tensor.cost_s[position].ravel())
        layouts.append(tensor.layout[position])
        slots.append((tensor.producer, table_offset, layout_offset, consumer))
        rivals.append(list(seen.setdefault(index, [])))
        seen[index].append(slot)
        table_offset += tables[-1].size
        layout_offset += layouts[-1].size
    per_node = np.bincount([consumer for consumer, _, _ in listed], minlength=len(problem.counts)).tolist()
    rival_start, rival_slots = pack_rows(rivals)
    return _Tables(
        node_cost=np.concatenate([*problem.node_cost_s, np.zeros(0)]),
        node_start=np.cumsum([0, *problem.counts]),
        table=np.concatenate([*tables, np.zeros(0)]),
        layout=np.concatenate([*layouts, np.zeros(0, dtype=np.int64)]),
        slots=np.array(slots, dtype=np.int64).reshape(-1, 4),
        slot_start=np.cumsum([0, *per_node]),
        rival_start=rival_start,
        rivals=rival_slots,
    )


def depth_first(problem: SearchProblem, *, prune: bool = False, max_visits: int = 10**12) -> Solution:
    """Return a strategy of least cost by trying all strategies, layer after layer.

    Of several with the same cost, it is the first in lexicographic order.

    Args:
        problem: Cost tables.
        prune: Turn back where the cost so far reaches the best complete one.
        max_visits: Give up after this number of partial strategies; about 10^8 a second are visited.

    Raises:
        InfeasiblePlanError: There are more than ``max_visits``, or every strategy costs ``inf``.

    Source:
        Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018,
        Sec. 5.2: the baseline of its search.
    """
    counts = problem.counts
    best = np.full(len(counts), -1, dtype=np.int64)
    visits = _search(_tables(problem), prune, max_visits, best)
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
