"""The ladder: the iteration time of one program under one execution model after the other, from the simplest on."""

from dataclasses import dataclass

from hwprofiles.devices import DeviceGraph
from planner.lowering import Program
from planner.simulation.interference_use import check_interference, interferes
from planner.simulation.program_replay import Replay, replay
from planner.simulation.rank_spread import check_spread, spreads

__all__ = ["DETAILED", "Reality", "ladder_s", "reality_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reality:
    """Rungs above contention: what a replay takes into account of devices that are no ideal machines."""

    interference: bool = False
    """True if messages and arithmetic take from one another on every device."""
    spread: bool = False
    """True if iterations wait for the slowest rank."""

    @classmethod
    def declared(cls, cluster: DeviceGraph) -> "Reality":
        """Return the rungs of which a cluster declares something."""
        return cls(interference=interferes(cluster), spread=spreads(cluster))

    def check(self, cluster: DeviceGraph) -> None:
        """Refuse a cluster that declares nothing of what is to be taken into account.

        Raises:
            ConfigError: No device declares communication channels, or a spread.
        """
        if self.interference:
            check_interference(cluster)
        if self.spread:
            check_spread(cluster)


DETAILED = Reality()
"""Overlap and contention, and nothing above."""


def ladder_s(
    program: Program, additive_s: float, full: Replay | None = None, reality: Reality = DETAILED
) -> dict[str, float]:
    """Return the iteration time of a program under each execution model.

    Args:
        program: One iteration.
        additive_s: Its additive cost.
        full: Its replay with overlap and contention and nothing above, if there is one already.
        reality: Rungs above contention.

    Returns:
        Seconds by rung: additive, overlap, contention, and those above that are on.
    """
    full = replay(program) if full is None else full
    rungs = {"additive": additive_s, "overlap": replay(program, contention=False).iteration_s}
    rungs["contention"] = full.iteration_s
    return rungs | reality_s(program, reality)


def reality_s(program: Program, reality: Reality) -> dict[str, float]:
    """Return the iteration time of a program on the rungs above contention that are on, each with those below it."""
    rungs = {}
    if reality.interference:
        rungs["interference"] = replay(program, interference=True).iteration_s
    if reality.spread:
        rungs["spread"] = replay(program, interference=reality.interference, spread=True).iteration_s
    return rungs
