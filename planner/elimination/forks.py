"""The fork rule: consumers of one tensor that may share transfers, eliminated together and exactly.

Producer ``u`` feeds clients ``v_1 .. v_k``; except for ``u``, each is joined with at most one common node ``e`` (the
end of an Inception module or of a residual block), or is ``e`` itself::

          ┌ v_1 ┐
        u ┼ v_2 ┼ e
          └ v_3 ┘

A client that needs the same layout as another pays nothing more, so the clients form blocks of one layout each, and

    R(cu, ce) = min over partitions of the clients of the sum over blocks B of
                min over layouts L of  x(cu, L) + sum over i in B of H_i(L, ce)

with ``x`` the time of the transfer and ``H_i(L, ce)`` the least cost of client ``i`` under layout ``L`` given ``ce``.
A partition with one layout in two blocks pays it twice, which is never cheaper, so R is exact.  A block costs one
(min,+) product.
"""

from typing import Any

from groundwork.array_types import Floats, Ints
from planner.elimination.elimination_state import EliminationState, Fork
from planner.elimination.fork_tables import Client, fork_choice, fork_table

MOST_CLIENTS = 8
"""Most clients that are eliminated together: a fork may take 2^8 products."""


def common_end(network: EliminationState, fork: Fork) -> tuple[bool, int | None]:
    """Return whether the rule applies, and the end ``e`` of the fork; None where the clients lead nowhere else."""
    clients = fork.clients
    if len(fork.slots) != len(clients) or len(clients) > MOST_CLIENTS:
        return False, None
    onward = {node: network.near[node].keys() - {fork.producer} for node in clients}
    outer = [node for node in clients if len(network.factors[node]) > 1 or len(onward[node]) > 1]
    if len(outer) > 1:
        return False, None
    ends = outer or sorted(set().union(*onward.values()), reverse=True)
    for end in ends:
        if all(onward[node] <= {end} for node in clients if node != end):
            return True, end
    return not ends, None


def reduce_fork(network: EliminationState, fork: Fork, end: int | None) -> None:
    """Eliminate all clients but ``end``; their costs go to the producer and ``end``.

    Args:
        network: State of the elimination.
        fork: Fork to which the rule applies.
        end: Node ``e`` as ``common_end`` returns it.

    Raises:
        InfeasiblePlanError: The ways to share one layout are too many for the memory limit.
    """
    u = fork.producer
    network.drop_factor(fork)
    own_transfer, fixed = None, None
    clients: dict[int, Client] = {}
    for node, transfer, layout in fork.slots:
        if node == end:
            own_transfer, fixed = transfer, layout
        else:
            extra = network.between(u, node) if node in network.near[u] else None
            onward = network.between(node, end) if end is not None and end in network.near[node] else None
            clients[node] = Client(transfer, layout, network.cost[node], extra, onward)
    table = network.memo(_fork_table, network, fixed, *(field for client in clients.values() for field in client))

    def undo(choice: list[int]) -> None:
        """Choose the configurations of the clients, given those of the producer and the end."""
        at_end = 0 if end is None else choice[end]
        free = None if fixed is None else int(fixed[at_end])
        picks = fork_choice(list(clients.values()), at_producer=choice[u], at_end=at_end, free=free)
        for node, pick in zip(clients, picks, strict=True):
            choice[node] = pick

    for node in clients:
        network.remove(node, joined=1 if end is None else 2)
    network.undo.append(undo)
    if end is None:
        network.cost[u] = network.cost[u] + table[:, 0]
        return
    network.add_pair(u, end, table)
    if own_transfer is not None:  # e pays its own transfer; clients with the layout of e pay nothing
        network.add_pair(u, end, own_transfer)


def _fork_table(network: EliminationState, fixed: Ints | None, *fields: Any) -> Floats:
    """Return ``fork_table`` of clients whose fields are given one after the other, as the memo compares objects."""
    width = len(Client._fields)
    clients = [Client(*fields[i : i + width]) for i in range(0, len(fields), width)]
    table, candidates = fork_table(fixed, clients, network.check_room)
    network.candidates += candidates
    return table
