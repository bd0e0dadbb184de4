"""The ladder: the iteration time of one program under one execution model after the other, from the simplest on."""

from planner.cost import Conditions
from planner.lowering import Program
from planner.simulation.program_replay import Replay, replay

__all__ = ["ladder_s", "upper_rungs_s"]

_ABOVE = ("interference", "spread")
"""Rungs above contention."""


def ladder_s(
    program: Program, additive_s: float, full: Replay | None = None, conditions: Conditions | None = None
) -> dict[str, float]:
    """Return the iteration time of a program under each execution model.

    Args:
        program: One iteration.
        additive_s: Its additive cost.
        full: Its replay with overlap and contention and nothing above, if there is one already.
        conditions: Rungs above contention; None: those of the program.

    Returns:
        Seconds by rung: additive, overlap, contention, and those above that are on.
    """
    full = replay(program, interference=False, spread=False) if full is None else full
    rungs = {"additive": additive_s, "overlap": replay(program, contention=False).iteration_s}
    rungs["contention"] = full.iteration_s
    return rungs | upper_rungs_s(program, conditions or program.conditions)


def upper_rungs_s(program: Program, conditions: Conditions, last: Replay | None = None) -> dict[str, float]:
    """Return the iteration time of a program on the rungs above contention that are on, each with those below it.

    Args:
        program: One iteration.
        conditions: The rungs.
        last: Its replay under all of them, if there is one already.
    """
    on, rungs = [name for name in _ABOVE if getattr(conditions, name)], {}
    for count, rung in enumerate(on, 1):
        replayed = last if count == len(on) else None
        if replayed is None:
            replayed = replay(program, interference="interference" in on[:count], spread="spread" in on[:count])
        rungs[rung] = replayed.iteration_s
    return rungs
