"""What predicted iterations are made of, for their intervals: of replays and compared strategies."""

from typing import TYPE_CHECKING

import numpy as np

from hwprofiles import Floats
from studies.fidelity.likely_times import TimeParts

if TYPE_CHECKING:
    from planner.plan import StrategyResult
    from planner.simulation import Replay

__all__ = ["parts_of_replay", "parts_of_strategy"]


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


def _usual_bytes(
    size_bytes: Floats, is_collective: "np.ndarray[tuple[int], np.dtype[np.bool_]]", devices: int
) -> float:
    """Return the mean size of messages, weighted by their bytes; 0 where nothing is sent.

    The bytes of a collective are those of all its messages: about twice the buffer for every device.
    """
    sizes = np.where(is_collective, size_bytes / (2 * devices), size_bytes)
    total = sizes.sum()
    return float((sizes**2).sum() / total) if total > 0 else 0.0
