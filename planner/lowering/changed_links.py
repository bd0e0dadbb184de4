"""A program on a cluster whose links have changed: lowered again only where lowering looks at what has changed."""

from dataclasses import replace

import numpy as np

from planner.cost.cost_model import CostModel
from planner.layouts.device_classes import MessageClasses
from planner.lowering.alike_replicas import with_like_links
from planner.lowering.gradient_sync_tasks import round_among
from planner.lowering.program import Collective, Program


def relinked(program: Program, before: CostModel, now: CostModel) -> Program | None:
    """Return what lowering a strategy again would give on a cluster with other links, or None.

    What is computed and sent does not depend on links, but where parameters go over the links of a host, and where
    rings follow the fastest links.  The algorithms of collectives are chosen again: while they have as many rounds of
    as many bytes, tasks stay what they are.

    Args:
        program: The strategy lowered before, each round of a collective as one task.
        before: Prices that it was lowered with.
        now: Prices on the changed cluster, made from these by ``CostModel.on``.

    Returns:
        The program on the changed cluster, whose arrays are those of ``program``; None where it may differ.
    """
    if program.compressed or program.framework.has_servers or program.framework != now.conditions.framework:
        return None
    if now.gradient_sync != before.gradient_sync or program.bucket_choices:
        return None
    if now.cluster.devices != before.cluster.devices or now.compute_times is not before.compute_times:
        return None
    if not np.array_equal(now.network.rank, before.network.rank):
        return None
    collectives = _chosen_again(program, now)
    if collectives is None:
        return None
    again = replace(program, cluster=now.cluster, conditions=now.conditions, collectives=collectives)
    if isinstance(program.classes, MessageClasses):  # which links may have changed
        return None
    linked = again if program.classes is None else with_like_links(again, now.cluster)
    return linked if isinstance(linked, Program) else None


def _chosen_again(program: Program, now: CostModel) -> dict[int, Collective] | None:
    """Return the collectives of a program by algorithms chosen on a changed cluster; None where tasks would change."""
    found = {}
    for task, collective in program.collectives.items():
        chosen, (number, count, *groups) = collective.chosen, collective.place
        if chosen is None:
            return None
        plans = chosen.rounds(now.network, now.gradient_sync)
        devices = np.frombuffer(chosen.groups, dtype=np.int64).reshape(-1, chosen.ranks)
        if any(len(plan) != count for plan in plans):
            return None
        rounds = [round_among(plans[g][number], tuple(devices[g].tolist())) for g in groups]
        if rounds[0].traffic.sent.sum() != collective.round.traffic.sent.sum():
            return None
        found[task] = replace(collective, round=rounds[0], others=tuple(rounds[1:]))
    return found
