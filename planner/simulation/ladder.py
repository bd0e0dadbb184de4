"""The ladder: the iteration time of one program under one execution model after the other, from the simplest on."""

from planner.cost.conditions import Conditions
from planner.lowering.program import Program
from planner.simulation.program_replay import replay

_ABOVE = ("interference", "spread")
"""Rungs above contention."""


def ladder_s(
    program: Program, additive_s: float, full_s: float | None = None, conditions: Conditions | None = None
) -> dict[str, float]:
    """Return the iteration time of a program under each execution model.

    Args:
        program: One iteration.
        additive_s: Its additive cost.
        full_s: Its time with overlap and contention and nothing above, if it is known.
        conditions: Rungs above contention; None: those of the program.

    Returns:
        Seconds by rung: additive, overlap, contention, and those above that are on.
    """
    if full_s is None:
        full_s = replay(program, interference=False, spread=False).iteration_s
    rungs = {
        "additive": additive_s,
        "overlap": replay(program, contention=False).iteration_s,
        "contention": full_s,
    }
    return rungs | upper_rungs_s(program, conditions or program.conditions)


def upper_rungs_s(program: Program, conditions: Conditions, last_s: float | None = None) -> dict[str, float]:
    """Return the iteration time of a program on the rungs above contention that are on, each with those below it.

    Args:
        program: One iteration.
        conditions: The rungs.
        last_s: Its time under all of them, if it is known.
    """
    on, rungs = [name for name in _ABOVE if getattr(conditions, name)], {}
    for count, rung in enumerate(on, 1):
        rung_s = last_s if count == len(on) else None
        if rung_s is None:
            now = on[:count]
            rung_s = replay(program, interference="interference" in now, spread="spread" in now).iteration_s
        rungs[rung] = rung_s
    return rungs
