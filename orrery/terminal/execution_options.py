"""Execution models as options: what a replay takes into account, rung by rung."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hwprofiles import option, whole_number

if TYPE_CHECKING:
    from planner.plan import PlanRequest

__all__ = ["ComparedConditions", "ExecutionModel", "planned_execution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionModel:
    """How a plan is replayed."""

    overlap: bool = option(True, help="Start each task once its inputs are there, not at a barrier between phases.")
    contention: bool = option(True, help="Let transfers share the links and devices that they have in common.")
    interference: bool | None = option(
        None, help="Let messages and arithmetic take from one another; else as the plan says."
    )
    spread: bool | None = option(None, help="Let iterations wait for the slowest rank; else as the plan says.")
    seed: int | None = option(
        None, help="Draw the time of every rank in every iteration, where there is a spread.", metavar="N", low=0
    )
    iterations: int = option(
        4, help="Iterations to replay until the steady state.", metavar="K", parser=whole_number
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedConditions:
    """The conditions under which strategies are compared."""

    framework: str = option(
        "ideal", help="Training software that synchronises gradients: ideal, ddp, horovod or ps.", metavar="F"
    )
    interference: bool = option(
        False, help="Let messages and arithmetic take from one another.", names=("--interference",)
    )
    spread: bool = option(False, help="Let iterations wait for the slowest rank.", names=("--spread",))


def planned_execution(execution: ExecutionModel, request: "PlanRequest") -> dict[str, Any]:
    """Return the arguments of ``planner.simulation.replay``, with those of the plan where none were given.

    A replay without contention has no interference.
    """
    planned = {"interference": request.interference and execution.contention, "spread": request.spread}
    given = {name: value for name, value in asdict(execution).items() if value is not None}
    return planned | given
