"""A program on a cluster whose links have changed: lowered again only where lowering looks at what has changed."""

from dataclasses import replace

import numpy as np

from planner.cost.cost_model import CostModel
from planner.lowering.alike_replicas import with_like_links
from planner.lowering.program import Program
from simulator.collectives.schemes import ALL_REDUCES


def relinked(program: Program, before: CostModel, now: CostModel) -> Program | None:
    """Return what lowering a strategy again would give on a cluster with other links, or None.

    What is computed and sent does not depend on links, but where an all-reduce algorithm or a bucket is chosen by its
    time, where parameters go over the links of a host, and where rings follow the fastest links.

    Args:
        program: The strategy lowered before, without compression.
        before: Prices that it was lowered with.
        now: Prices on the changed cluster, made from these by ``CostModel.on``.

    Returns:
        The program on the changed cluster, whose arrays are those of ``program``; None where it may differ.
    """
    if program.compressed or program.framework.is_synchronous or now.conditions.framework.is_synchronous:
        return None
    if now.gradient_sync != before.gradient_sync or now.gradient_sync not in ALL_REDUCES:
        return None
    if now.cluster.devices != before.cluster.devices or now.compute_times is not before.compute_times:
        return None
    if not np.array_equal(now.network.rank, before.network.rank):
        return None
    again = replace(program, cluster=now.cluster, conditions=now.conditions)
    return again if program.replicas is None else with_like_links(again, now.cluster)
