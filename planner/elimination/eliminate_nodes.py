"""Exact search by elimination, on every graph.

Four rules eliminate nodes as long as they apply: the two of Algorithm 1 of the layer-wise paper (nodes with two
neighbours, parallel edges), a rule for nodes with one neighbour, and the fork rule for shared transfers.  Where none
applies, elimination by width follows: the node whose joined table is smallest goes first.

Source:
    Jia et al., "Exploring Hidden Dimensions in Parallelizing Convolutional Neural Networks", ICML 2018, Sec. 5.2;
    DeePa, Sec. 4; bucket elimination: Dechter, Artificial Intelligence 113, 1999.
"""

import math

import numpy as np

from groundwork.array_types import Floats
from groundwork.errors import InfeasiblePlanError
from planner.elimination.elimination_state import Dense, EliminationState, Factor, Fork, broadcast_over
from planner.elimination.forks import common_end, reduce_fork
from planner.elimination.minplus import fold_columns, fold_rows
from planner.elimination.search_problem import SearchProblem, Solution, strategy_cost

DEFAULT_LIMIT_BYTES = 2e9
"""Largest table that elimination makes unless the caller sets another limit."""


def eliminate(
    problem: SearchProblem, *, limit_bytes: float = DEFAULT_LIMIT_BYTES, limit_sums: float = math.inf
) -> Solution:
    """Return a strategy of least cost.

    Where several strategies cost the same, the result is always the same one of them.

    Args:
        problem: Cost tables of N nodes with at most C configurations.  The time is C^3 for each node or edge of
            series-parallel graphs; a layer whose tables are the objects of an equal layer costs nothing.
        limit_bytes: Largest table that elimination by width may make.
        limit_sums: Most sums that elimination by width may compare, all tables together.

    Raises:
        GraphTooWideError: The graph is too wide for a limit.
        InfeasiblePlanError: Every strategy costs ``inf``.

    Source:
        Jia et al., ICML 2018, Algorithm 1, with the rules above in addition.
    """
    network = EliminationState(problem, limit_bytes=limit_bytes, limit_sums=limit_sums)
    spine = _spine(problem)
    core_nodes = 1
    while network.cost:
        if _fold_leaves(network) or _reduce_forks(network) or _eliminate_nodes(network, spine):
            continue
        if spine:
            spine = set()  # nothing else applies: now the nodes that were deferred
            continue
        core_nodes = max(core_nodes, len(network.cost))
        _eliminate_by_width(network)
    choice = [0] * len(problem.node_cost_s)
    for undo in reversed(network.undo):
        undo(choice)
    cost_s = strategy_cost(problem, choice)
    if cost_s == math.inf:
        raise InfeasiblePlanError("every strategy uses a forbidden pair of configurations: the least cost is inf")
    return Solution(
        choice=tuple(choice), cost_s=cost_s, width=network.width, core_nodes=core_nodes, candidates=network.candidates
    )


def _spine(problem: SearchProblem) -> set[int]:
    """Return the nodes next to a cut of the node order that a single edge crosses.

    They become leaves when one side of the cut is folded, which costs C^2 instead of C^3, so they are deferred::

        a - b - c - d - e        cuts crossed by one edge: a|b and d|e
            └───────┘            deferred: a, b, d, e
    """
    crossing = np.zeros(len(problem.node_cost_s) + 1, dtype=np.int64)
    for tensor in problem.tensors:
        for consumer in tensor.consumers:
            crossing[tensor.producer] += 1
            crossing[consumer] -= 1
    single = np.cumsum(crossing) == 1  # entry i: the cut between nodes i and i + 1
    return {node for node in range(len(single) - 1) if single[node] or single[node - 1]}


def _fold_leaves(network: EliminationState) -> bool:
    """Eliminate nodes with one neighbour or none until there are none; return whether there were any."""
    waiting = [node for node in network.cost if len(network.near[node]) < 2 and not network.factors[node]]
    progress = bool(waiting)
    while waiting:
        node = waiting.pop()
        if node not in network.cost:
            continue
        other = next(iter(network.near[node]), None)
        _fold_leaf(network, node, other)
        if other is not None and len(network.near[other]) < 2 and not network.factors[other]:
            waiting.append(other)
    return progress


def _fold_leaf(network: EliminationState, node: int, other: int | None) -> None:
    """Add the least cost of a leaf, under each configuration of its neighbour, to the neighbour."""
    own = network.cost[node]
    if other is None:
        network.undo.append(lambda choice: choice.__setitem__(node, int(own.argmin())))
        network.remove(node, joined=0)
        return
    table = network.near[node][other]
    message = network.memo(fold_rows, own, table) if node < other else network.memo(fold_columns, table, own)
    network.cost[other] = network.memo(np.add, network.cost[other], message)

    def undo(choice: list[int]) -> None:
        """Choose the configuration of the leaf, given that of its neighbour."""
        at = choice[other]
        choice[node] = int((own + (table[:, at] if node < other else table[at])).argmin())

    network.undo.append(undo)
    network.remove(node, joined=1)


def _reduce_forks(network: EliminationState) -> bool:
    """Apply the fork rule wherever it applies, except onto an end that node elimination can eliminate first.

    Returns:
        Whether it applied.
    """
    progress = False
    forks = {factor: None for factors in network.factors.values() for factor in factors if isinstance(factor, Fork)}
    for fork in forks:
        applies, end = common_end(network, fork)
        passing = end is not None and len(network.near[end]) == 2 and not network.factors[end]
        if applies and not passing:
            reduce_fork(network, fork, end)
            progress = True
    return progress


def _eliminate_nodes(network: EliminationState, spine: set[int]) -> bool:
    """Run one round of node elimination: smallest products first, no two neighbours.

    Equal blocks of layers go through equal rounds, so all but the first find their products in the memo.

    Returns:
        Whether the rule applied.

    Source:
        Jia et al., ICML 2018, Eq. 2.
    """
    ready = []
    for node, near in network.near.items():
        if len(near) == 2 and not network.factors[node] and node not in spine:
            sums = math.prod(len(network.cost[other]) for other in (node, *near))
            ready.append((sums, node))
    touched: set[int] = set()
    for _, node in sorted(ready):
        if node not in touched and len(network.near[node]) == 2:
            touched.update(network.near[node])
            _eliminate_node(network, node)
    return bool(ready)


def _eliminate_node(network: EliminationState, node: int) -> None:
    """Replace a node and its two edges by an edge between its neighbours."""
    first, second = sorted(network.near[node])
    left, own, right = network.between(first, node), network.cost[node], network.between(node, second)
    table = network.through(left, own, right)

    def undo(choice: list[int]) -> None:
        """Choose the configuration of the node, given those of its two neighbours."""
        choice[node] = int((left[choice[first]] + own + right[:, choice[second]]).argmin())

    network.undo.append(undo)
    network.remove(node, joined=2)
    network.add_pair(first, second, table)


def _eliminate_by_width(network: EliminationState) -> None:
    """Join all tables of one node and minimise over its configurations.

    Raises:
        GraphTooWideError: The smallest such table is above a limit.

    Source:
        Dechter, 1999: bucket elimination.
    """
    scopes = {node: _scope(network, node) for node in network.cost}
    sizes = {node: math.prod(len(network.cost[other]) for other in scope) for node, scope in scopes.items()}
    node = min(sizes, key=lambda node: (sizes[node] * len(network.cost[node]), node))
    scope = scopes[node]
    network.check_room(3 * sizes[node])  # the result, one term, and their sum
    network.spend(sizes[node] * len(network.cost[node]))
    factors: list[Factor] = [
        *(Dense(tuple(sorted((node, other))), table) for other, table in network.near[node].items()),
        *dict.fromkeys(network.factors[node]),
    ]
    own = network.cost[node]
    least = np.full([len(network.cost[other]) for other in scope], np.inf)
    axes = sorted((node, *scope))
    # One configuration of the node at a time: the table over the node and its scope is never made whole.
    for at in range(len(own)):
        window = {node: slice(at, at + 1)}
        total = sum((broadcast_over(factor.window(window), factor.scope, axes) for factor in factors), own[at])
        np.minimum(least, np.reshape(total, least.shape), out=least)

    def undo(choice: list[int]) -> None:
        """Choose the configuration of the node, given those of its scope."""
        window = {other: slice(choice[other], choice[other] + 1) for other in scope}
        choice[node] = int((own + sum(factor.window(window).ravel() for factor in factors)).argmin())

    for factor in [*network.factors[node]]:
        network.drop_factor(factor)
    network.undo.append(undo)
    network.remove(node, joined=len(scope))
    _add_table(network, scope, least)


def _scope(network: EliminationState, node: int) -> tuple[int, ...]:
    """Return all other nodes that share a table with a node, ascending."""
    joined = set(network.near[node]).union(*(factor.scope for factor in network.factors[node]))
    return tuple(sorted(joined - {node}))


def _add_table(network: EliminationState, scope: tuple[int, ...], table: Floats) -> None:
    """Add a table as a vector, a pair table or a factor, by the number of its nodes."""
    if len(scope) > 2:
        network.add_factor(Dense(scope, table))
    elif len(scope) == 2:
        network.add_pair(*scope, table)
    elif scope:
        network.cost[scope[0]] = network.cost[scope[0]] + table
