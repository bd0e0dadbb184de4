"""Execution models as options: what a replay takes into account, rung by rung."""

from dataclasses import dataclass

from groundwork.requests import option, whole_number
from planner.plan.plan_request import Precision, SyncAlgorithm


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
    iterations: int = option(4, help="Iterations to replay until the steady state.", metavar="K", parser=whole_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedConditions:
    """The conditions under which strategies are compared."""

    dtype: Precision = option("float32", help="Data type of tensors and messages; float16 keeps master weights.")
    framework: str | None = option(
        None,
        help="Training software that synchronises gradients: ideal, ddp, horovod or ps; else ddp where the cluster "
        "describes a library of collectives, or ideal.",
        metavar="F",
    )
    software: str = option(
        "ideal", help="Software of one device, such as pytorch or torch-compile: its kernels and launches.", metavar="W"
    )
    input_images_per_s: float | None = option(
        None,
        help="Samples a second that storage and decoding bring to all devices together; else no bound.",
        metavar="R",
    )
    interference: bool | None = option(
        None, help="Let messages and arithmetic take from one another; else where the cluster declares channels."
    )
    spread: bool | None = option(
        None, help="Let iterations wait for the slowest rank; else where the cluster declares a spread."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedConditions(ComparedConditions):
    """The conditions under which plans are made, with the algorithm that synchronises their gradients."""

    gradient_sync: SyncAlgorithm | None = option(
        None, help="All-reduce that synchronises gradients; else library, where the cluster describes one, or ring."
    )
