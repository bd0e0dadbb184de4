"""What predicted iterations are made of, for their intervals: of plans, replays and compared strategies."""

from typing import TYPE_CHECKING

import numpy as np

from hwprofiles import Floats
from planner.simulation import additive_terms
from studies.fidelity.likely_times import TimeParts

if TYPE_CHECKING:
    from planner.cost import CostModel
    from planner.plan import Plan, StrategyResult
    from planner.simulation import Replay

__all__ = ["parts_of_plan", "parts_of_replay", "parts_of_strategy"]


def parts_of_replay(replay: "Replay") -> TimeParts:
    """Return the parts of a simulated iteration."""
    program, devices = replay.program, len(replay.program.cluster.devices)
    sent = ~program.is_compute
    is_collective = np.isin(np.flatnonzero(sent), list(program.collectives))
    return TimeParts(
        total_s=replay.iteration_s,
        exposed_s=replay.shares().exposed_communication_s,
        devices=devices,
        message_bytes=_usual_bytes(program.size_bytes[sent], is_collective, devices),
        nodes=program.cluster.node_count,
        real=replay.wait_share > 0,
    )


def parts_of_strategy(result: "StrategyResult", devices: int, nodes: int) -> TimeParts:
    """Return the parts of the iteration of a compared strategy.

    Args:
        result: The strategy.
        devices: Devices of the cluster.
        nodes: Its machines.
    """
    sent = result.timeline[result.timeline["bytes"] > 0]
    return TimeParts(
        total_s=result.simulated_s,
        exposed_s=result.exposed_communication_s,
        devices=devices,
        message_bytes=_usual_bytes(sent["bytes"].to_numpy(), (sent["kind"] == "collective").to_numpy(), devices),
        nodes=nodes,
        real="spread" in result.ladder_s,
    )


def parts_of_plan(plan: "Plan", model: "CostModel") -> TimeParts:
    """Return the parts of the iteration of a plan, from the terms of Eq. 1: a replay would take as long as planning.

    What the iteration takes beyond its computation counts as exposed, as far as there is communication.

    Args:
        plan: The plan.
        model: Costs of its network on its cluster.
    """
    terms = additive_terms(model, plan.configurations, plan.micro_batching)
    stages = len(plan.micro_batching.stages) or 1
    compute_s, communication_s = terms.compute_s.sum() / stages, (terms.gradient_sync_s + terms.transfer_s).sum()
    sizes = [layer.parameter_count * model.graph.element_bytes for layer in model.graph.layers]
    return TimeParts(
        total_s=plan.simulated_s,
        exposed_s=float(np.clip(plan.simulated_s - compute_s, 0.0, communication_s / stages)),
        devices=len(model.cluster.devices),
        message_bytes=_usual_bytes(np.array(sizes, dtype=float), np.zeros(len(sizes), dtype=bool), 1),
        nodes=model.cluster.node_count,
        real=model.conditions.spread,
    )


def _usual_bytes(
    size_bytes: Floats, is_collective: "np.ndarray[tuple[int], np.dtype[np.bool_]]", devices: int
) -> float:
    """Return the mean size of messages, weighted by their bytes; 0 where nothing is sent.

    The bytes of a collective are those of all its messages: about twice the buffer for every device.
    """
    sizes = np.where(is_collective, size_bytes / (2 * devices), size_bytes)
    total = sizes.sum()
    return float((sizes**2).sum() / total) if total > 0 else 0.0
