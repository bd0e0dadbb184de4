"""The ladder: the iteration time of one program under one execution model after the other, from the simplest on."""

from planner.cost import Conditions
from planner.lowering import Program
from planner.simulation.program_replay import Replay, replay

__all__ = ["ladder_s", "upper_rungs_s"]


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


def upper_rungs_s(program: Program, conditions: Conditions) -> dict[str, float]:
    """Return the iteration time of a program on the rungs above contention that are on, each with those below it."""
    rungs, interference = {}, conditions.interference
    if interference:
        rungs["interference"] = replay(program, interference=True, spread=False).iteration_s
    if conditions.spread:
        rungs["spread"] = replay(program, interference=interference, spread=True).iteration_s
    return rungs
